"""A new set's trial: probes judged, old model kept, faults of the world told apart."""

from __future__ import annotations

import math
from concurrent.futures import Future
from dataclasses import replace
from typing import TypeVar

import pytest
from tests.unit.ota.manifest_rig import manifest_payload

from stoker import errors
from stoker.config.schema import AdapterConfig, Config, ModelConfig
from stoker.core.fit import Shortage
from stoker.core.installed_set import InstalledSet
from stoker.events.inference import Ask, Owner
from stoker.events.models import Probe, ProbeReport, SwapResult
from stoker.events.thermal import ThermalSnapshot
from stoker.ports.doors import InferenceSnapshot, JobView
from stoker.services import model_health
from stoker.services.adapter_change import ADAPTERS, MODEL, NOTHING
from stoker.services.model_health import ModelHealth, judge
from stoker.units import Celsius, Fraction, Seconds
from stoker_ota.core.manifest import Canary, Health
from stoker_ota.core.manifest import Probe as Wanted
from stoker_ota.errors import Cancelled, NoMemory, Unhealthy, WrongTarget

T = TypeVar("T")
WANTED = Health(probes=(Wanted("plain words", 1.0, 3.0),), min_tok_s=5.0, max_temp_c=70.0)
GOOD = ProbeReport("yes", 4, decode_tok_s=9.0, nll_per_token=2.0, nlls=(2.0,))


class Runtime:
    """Swaps at once, with the report and after the errors that a test gives it."""

    def __init__(self) -> None:
        self.report, self.failures = GOOD, list[Exception]()
        self.swapped: list[str] = []
        self.under: list[Config] = []
        self.adapted: list[tuple[list[str], bool]] = []
        self.asked: list[Ask] = []
        self.now = InferenceSnapshot(state="ready")
        self.differs = MODEL
        self.short: Shortage | None = None
        self.sized: list[tuple[int, int]] = []

    def swap(
        self, model: str | ModelConfig, probe: Probe | None = None, config: Config | None = None
    ) -> Future[SwapResult]:
        assert isinstance(model, ModelConfig)
        assert config is not None
        done: Future[SwapResult] = Future()
        answers = ("yes",) * len(probe.questions) if probe is not None else ()
        bad = probe.judge(replace(self.report, answers=answers)) if probe is not None else ""
        if self.failures:
            done.set_exception(self.failures.pop(0))
        elif bad:
            done.set_exception(errors.ModelUnavailable(f"cannot use {model.name}: {bad}"))
        else:
            self.swapped.append(model.path)
            self.under.append(config)
            done.set_result(SwapResult(model.name, "old", True, Seconds(0.0), 0, self.report))
        return done

    def difference(self, model: ModelConfig, config: Config) -> Future[str]:
        return _done(self.differs)

    def shortage(self, file_bytes: int, adapter_bytes: int) -> Future[Shortage | None]:
        self.sized.append((file_bytes, adapter_bytes))
        return _done(self.short)

    def adapt(self, config: Config, *, keep: bool) -> Future[None]:
        if self.failures:
            failed: Future[None] = Future()
            failed.set_exception(self.failures.pop(0))
            return failed
        self.adapted.append(([item.name for item in config.adapters], keep))
        return _done(None)

    def surprise(self, text: str) -> Future[float]:
        return _done(self.report.nlls[0] if text == "plain words" else self.report.nll_per_token)

    def ask_ourselves(self, ask: Ask) -> Future[JobView]:
        self.asked.append(ask)
        text = "yes, Paris" if self.report.tokens else ""
        words = self.report.tokens * 1000
        return _done(JobView("j", Owner("", 0), "done", text=text, completion_tokens=words))

    def snapshot(self) -> InferenceSnapshot:
        return self.now


def _done(value: T) -> Future[T]:
    done: Future[T] = Future()
    done.set_result(value)
    return done


class Settings:
    """Sets by generation; a policy's text is the log level that it sets."""

    def __init__(self) -> None:
        self.config = Config(models=(ModelConfig("chat", "/m/chat"),))
        self.now = InstalledSet()
        self.sets: dict[int, InstalledSet] = {2: InstalledSet(2, {"chat": "/ota/2/chat"})}
        self.served: list[int] = []

    def locate(self, generation: int, members: object) -> InstalledSet:
        return self.sets.get(generation, InstalledSet())

    def read(self, installed: InstalledSet) -> Config:
        if "absurd" in installed.policy:
            raise errors.ConfigInvalid("cannot read configuration: wall_c: 300.0 is outside")
        level = installed.policy or "info"
        return replace(self.config, daemon=replace(self.config.daemon, log_level=level))

    def serve(self, installed: InstalledSet, config: Config) -> None:
        self.now, self.config = installed, config
        self.served.append(installed.generation)


class Bench:
    def __init__(self, health: Health = WANTED) -> None:
        self.runtime, self.settings = Runtime(), Settings()
        self.served = self.settings.served
        self.celsius: float | None = 40.0
        self.stop: BaseException | None = None
        self.cancel = False
        from stoker_ota.core.manifest import parse_manifest

        self.manifest = replace(parse_manifest(manifest_payload()), health=health)
        self.health = ModelHealth(self.settings, self.runtime, self.heat, cancelled=self.cancelled)

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


def test_a_set_that_fits_neither_beside_nor_instead_is_refused_by_its_size(bench: Bench) -> None:
    bench.health.room(bench.manifest)
    bench.runtime.short = Shortage(912 << 20, 400 << 20)
    with pytest.raises(NoMemory, match="needs 912 MiB at least, 400 MiB are available"):
        bench.health.room(bench.manifest)
    bench.runtime.short = Shortage(9 << 30, 4 << 30, hopeless=True)
    with pytest.raises(WrongTarget, match=r"this device has 4\.0 GiB"):
        bench.health.room(bench.manifest)
    assert set(bench.runtime.sized) == {(1000, 0)}


def test_adapters_of_the_set_s_model_are_counted_with_it_and_others_make_room_themselves(
    bench: Bench,
) -> None:
    (model,) = bench.manifest.artifacts
    mine = replace(model, kind="adapter", name="terse", size=70, base_sha256=model.sha256)
    other = replace(mine, name="other", base_sha256="cd" * 32)
    bench.health.room(replace(bench.manifest, artifacts=(model, mine, other)))
    bench.health.room(replace(bench.manifest, artifacts=(mine,)))
    assert bench.runtime.sized == [(1000, 70)]


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


def test_libraries_and_adapters_come_in_with_a_new_runner_and_are_tried_in_it(
    bench: Bench,
) -> None:
    terse = AdapterConfig("terse", "/ota/3/terse", "chat")
    bench.settings.sets[3] = InstalledSet(3, {}, (terse,), "/ota/3/engine.d")
    bench.health.test(bench.manifest, 3, ())
    (config,) = bench.runtime.under
    assert config.runner.libraries == "/ota/3/engine.d"
    assert config.adapters == (terse,)
    bench.health.switch(0, ())
    assert bench.runtime.under[1].runner.libraries == ""
    assert bench.runtime.under[1].adapters == ()


def test_adapters_alone_are_tried_under_another_name_beside_what_serves(bench: Bench) -> None:
    bench.runtime.differs = ADAPTERS
    bench.settings.sets[3] = InstalledSet(3, {}, (AdapterConfig("terse", "/t", "chat"),))
    bench.health.test(bench.manifest, 3, ())
    assert bench.runtime.swapped == []
    assert bench.runtime.adapted == [(["terse~trial"], False), (["terse"], True)]
    tried = [ask.shape.adapters[0].name for ask in bench.runtime.asked if ask.shape.adapters]
    assert tried == ["terse~trial"]
    assert bench.served == [3]


def test_an_adapter_that_cannot_be_used_leaves_those_of_before(bench: Bench) -> None:
    bench.runtime.differs = ADAPTERS
    bench.runtime.failures = [errors.ModelUnavailable("cannot use adapter terse: other shape")]
    bench.settings.sets[3] = InstalledSet(3, {}, (AdapterConfig("terse", "/t", "chat"),))
    with pytest.raises(Unhealthy, match="other shape"):
        bench.health.test(bench.manifest, 3, ())
    assert bench.runtime.adapted == [([], True)]
    assert bench.served == []


def test_a_policy_is_taken_and_the_model_is_tried_under_it(bench: Bench) -> None:
    bench.runtime.differs = NOTHING
    bench.settings.sets[3] = InstalledSet(3, policy="debug")
    bench.health.test(bench.manifest, 3, ())
    assert bench.settings.config.daemon.log_level == "debug"
    assert bench.runtime.asked
    bench.health.switch(0, ())
    assert bench.settings.config.daemon.log_level == "info"


def test_an_absurd_policy_of_a_mixed_set_keeps_its_model_out_too(bench: Bench) -> None:
    bench.settings.sets[3] = InstalledSet(3, {"chat": "/ota/3/chat"}, policy="absurd")
    with pytest.raises(Unhealthy, match="300"):
        bench.health.test(bench.manifest, 3, ())
    assert bench.runtime.swapped == []
    assert bench.served == []


def test_a_canary_must_say_one_of_its_words(bench: Bench) -> None:
    bench.runtime.differs = NOTHING
    for word, passes in (("paris", True), ("london", False)):
        health = replace(WANTED, canaries=(Canary("Capital of France?", (word, "lutetia")),))
        bench.manifest = replace(bench.manifest, health=health)
        if passes:
            bench.test()
        else:
            with pytest.raises(Unhealthy, match="Paris"):
                bench.test()


def test_a_set_that_serves_already_is_tried_all_the_same(bench: Bench) -> None:
    bench.runtime.differs = NOTHING
    bench.runtime.report = replace(GOOD, nlls=(9.0,))
    with pytest.raises(Unhealthy, match="nats a token"):
        bench.test()


def test_the_set_that_is_returned_to_answers_before_it_counts(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.runtime.differs = NOTHING
    assert bench.health.switch(0, ()) == ""
    assert bench.runtime.asked
    assert not caplog.records
    bench.runtime.report = replace(GOOD, tokens=0)
    assert "is not well" in bench.health.switch(0, ())
    assert "is not well" in caplog.text
