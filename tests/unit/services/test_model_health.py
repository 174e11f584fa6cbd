"""A new set's trial: probes judged, old model kept, faults of the world told apart."""

from __future__ import annotations

import math
from concurrent.futures import Future
from dataclasses import replace

import pytest
from tests.unit.ota.manifest_rig import manifest_payload

from stoker import errors
from stoker.config.schema import Config, ModelConfig
from stoker.core.installed_set import InstalledSet
from stoker.events.models import Probe, ProbeReport, SwapResult
from stoker.events.thermal import ThermalSnapshot
from stoker.ports.doors import InferenceSnapshot
from stoker.services import model_health
from stoker.services.model_health import ModelHealth, judge
from stoker.units import Celsius, Fraction, Seconds
from stoker_ota.core.manifest import Health
from stoker_ota.core.manifest import Probe as Wanted
from stoker_ota.errors import Cancelled, Unhealthy

WANTED = Health(probes=(Wanted("plain words", 1.0, 3.0),), min_tok_s=5.0, max_temp_c=70.0)
GOOD = ProbeReport("yes", 4, decode_tok_s=9.0, nll_per_token=2.0, nlls=(2.0,))


class Runtime:
    """Swaps at once, with the report and after the errors that a test gives it."""

    def __init__(self) -> None:
        self.report, self.failures = GOOD, list[Exception]()
        self.swapped: list[str] = []
        self.now = InferenceSnapshot(state="ready")

    def swap(self, model: str | ModelConfig, probe: Probe | None = None) -> Future[SwapResult]:
        assert isinstance(model, ModelConfig)
        done: Future[SwapResult] = Future()
        bad = probe.judge(self.report) if probe is not None else ""
        if self.failures:
            done.set_exception(self.failures.pop(0))
        elif bad:
            done.set_exception(errors.ModelUnavailable(f"cannot use {model.name}: {bad}"))
        else:
            self.swapped.append(model.path)
            done.set_result(SwapResult(model.name, "old", True, Seconds(0.0), 0, self.report))
        return done

    def snapshot(self) -> InferenceSnapshot:
        return self.now


class Bench:
    def __init__(self, health: Health = WANTED) -> None:
        self.runtime, self.served = Runtime(), list[int]()
        self.celsius: float | None = 40.0
        self.stop: BaseException | None = None
        self.cancel = False
        from stoker_ota.core.manifest import parse_manifest

        self.manifest = replace(parse_manifest(manifest_payload()), health=health)
        config = Config(models=(ModelConfig("chat", "/m/chat"),))
        self.health = ModelHealth(
            lambda: config,
            self.runtime,
            self.heat,
            locate=lambda number, _members: InstalledSet(
                number, {"chat": f"/ota/{number}/chat"} if number else {}
            ),
            serve=lambda installed: self.served.append(installed.generation),
            cancelled=self.cancelled,
        )

    def heat(self) -> ThermalSnapshot:
        celsius = None if self.celsius is None else Celsius(self.celsius)
        return ThermalSnapshot("ok", celsius, Celsius(80.0), Fraction(1.0), "x")

    def cancelled(self) -> bool:
        if self.stop is not None:
            raise self.stop
        return self.cancel

    def test(self) -> None:
        self.health.test(self.manifest, 2, ())


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(model_health, "LOOK_S", 0.0)
    return Bench()


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (GOOD, ""),
        (replace(GOOD, nlls=(3.1,)), "nats a token"),
        (replace(GOOD, nlls=(0.9,)), "nats a token"),
        (replace(GOOD, nlls=(math.nan,)), "nats a token"),
        (replace(GOOD, decode_tok_s=4.9), "tokens a second"),
        (replace(GOOD, tokens=0), "wrote nothing"),
        (replace(GOOD, nll_per_token=math.nan), "no numbers"),
    ],
)
def test_the_manifest_s_bounds_are_kept(report: ProbeReport, said: str) -> None:
    verdict = judge(WANTED, report)
    assert said in verdict
    assert bool(said) == bool(verdict)


def test_a_good_set_serves_and_a_return_goes_to_the_package_s_own(bench: Bench) -> None:
    bench.test()
    bench.health.switch(0, ())
    assert bench.runtime.swapped == ["/ota/2/chat", "/m/chat"]
    assert bench.served == [2, 0]


def test_a_sick_set_never_counts_as_served(bench: Bench) -> None:
    bench.runtime.report = replace(GOOD, nlls=(9.0,))
    with pytest.raises(Unhealthy, match="nats a token"):
        bench.test()
    assert bench.served == []


def test_another_change_of_the_model_is_waited_for(bench: Bench) -> None:
    bench.runtime.failures = [errors.Busy("cannot: another change")] * 2
    bench.test()
    assert bench.served == [2]


def test_heat_and_a_runner_that_fails_in_the_soak_are_told(bench: Bench) -> None:
    bench.celsius = 71.0
    with pytest.raises(Unhealthy, match=r"71\.0 °C"):
        bench.test()
    bench.celsius, bench.runtime.now = None, InferenceSnapshot(state="no-model")
    with pytest.raises(Unhealthy, match="runner failed"):
        bench.test()


def test_a_stop_is_no_verdict_and_a_cancel_ends_the_soak(bench: Bench) -> None:
    bench.cancel = True
    with pytest.raises(Cancelled):
        bench.test()

    class Stop(BaseException):
        pass

    bench.runtime.failures = [errors.Unavailable("cannot: the service is stopping")]
    bench.stop = Stop()
    with pytest.raises(Stop):
        bench.test()
