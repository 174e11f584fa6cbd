"""Whether a new set is well: its model is loaded, probed and watched before it is kept.

The side of ``stoker_ota``'s port ``Health`` that the agent has: everything goes through the
swap of the inference service, so that the old model serves until the new one has shown
that it can answer. It runs in the update thread and may wait for minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from typing import Final, Protocol, TypeVar

from stoker import errors
from stoker.config.schema import Config, ModelConfig
from stoker.core.installed_set import InstalledSet, model_of
from stoker.events.models import Probe, ProbeReport, SwapResult, can_speak
from stoker.events.thermal import ThermalSnapshot
from stoker.ports.doors import InferenceSnapshot
from stoker.units import Seconds
from stoker_ota.core.manifest import Health, Manifest
from stoker_ota.errors import Cancelled, Unhealthy
from stoker_ota.values.deployment import Member

_T = TypeVar("_T")
LOOK_S: Final = 0.1
SETTLE_S: Final = 300.0
"""For a runner that starts, or for somebody else's change of the model."""
_SETTLED: Final = ("ready", "asleep", "no-model")


class Runtime(Protocol):
    """Of ``InferenceService``."""

    def swap(self, model: str | ModelConfig, probe: Probe | None = None) -> Future[SwapResult]: ...

    def snapshot(self) -> InferenceSnapshot: ...


class ModelHealth:
    """``serve`` hears which set serves from now on; ``cancelled`` may raise to end the wait."""

    def __init__(
        self,
        config: Callable[[], Config],
        runtime: Runtime,
        heat: Callable[[], ThermalSnapshot],
        *,
        locate: Callable[[int, tuple[Member, ...]], InstalledSet],
        serve: Callable[[InstalledSet], None],
        cancelled: Callable[[], bool],
    ) -> None:
        self._config, self._runtime, self._heat = config, runtime, heat
        self._locate, self._serve, self._cancelled = locate, serve, cancelled

    def test(self, manifest: Manifest, generation: int, members: tuple[Member, ...]) -> None:
        """See ``stoker_ota.ports.updates.Health``."""
        wanted = manifest.health
        timeout_s = max(float(wanted.startup_s), float(self._config().swap.probe_timeout_s))
        probe = Probe(
            judge=lambda report: judge(wanted, report),
            texts=tuple(item.text for item in wanted.probes),
            max_tokens=16,
            timeout_s=Seconds(timeout_s),
        )
        installed = self._locate(generation, members)
        self._change(installed, probe)
        self._watch(wanted)

    def switch(self, generation: int, members: tuple[Member, ...]) -> None:
        """See ``stoker_ota.ports.updates.Health``."""
        self._change(self._locate(generation, members), None)

    def _change(self, installed: InstalledSet, probe: Probe | None) -> None:
        model = model_of(self._config(), installed)
        if model is not None:
            self._swap(model, probe)
        self._serve(installed)

    def _swap(self, model: ModelConfig, probe: Probe | None) -> None:
        end = time.monotonic() + SETTLE_S
        while True:
            self._settle(end)
            try:
                self._wait(self._runtime.swap(model, probe))
                return
            except errors.Busy as error:
                if time.monotonic() >= end:
                    raise Unhealthy(f"cannot try {model.name}: {error.message}") from error
                time.sleep(LOOK_S)
            except errors.StokerError as error:
                self._cancelled()  # a service that stops is nobody's fault
                raise Unhealthy(error.message, hint=error.hint) from error

    def _settle(self, end: float) -> None:
        """A runner that is starting must not be disturbed."""
        while self._runtime.snapshot().state not in _SETTLED and time.monotonic() < end:
            self._cancelled()
            time.sleep(LOOK_S)

    def _wait(self, future: Future[_T]) -> _T:
        """A swap ends by itself, whatever is cancelled: one model serves then."""
        while True:
            try:
                return future.result(LOOK_S)
            except NotYet:
                self._cancelled()

    def _watch(self, wanted: Health) -> None:
        """The soak: it keeps answering, does not restart, does not run hot."""
        began = self._runtime.snapshot()
        end = time.monotonic() + wanted.soak_s
        while True:
            if self._cancelled():
                raise Cancelled("cannot go on testing: it was cancelled")
            now = self._runtime.snapshot()
            if now.runner_restarts != began.runner_restarts or now.state == "no-model":
                raise Unhealthy("cannot keep the set: its runner failed while it was watched")
            celsius = self._heat().temperature_c
            if celsius is not None and wanted.max_temp_c and celsius > wanted.max_temp_c:
                raise Unhealthy(
                    f"cannot keep the set: {celsius:.1f} °C, {wanted.max_temp_c:.1f} are allowed"
                )
            if time.monotonic() >= end:
                return
            time.sleep(LOOK_S)


def judge(wanted: Health, report: ProbeReport) -> str:
    """Why a manifest's probes are not passed; "" = they are."""
    fault = can_speak(report)
    if fault:
        return fault
    for probe, nats in zip(wanted.probes, report.nlls, strict=True):
        if not probe.min_nats <= nats <= probe.max_nats:  # NaN is outside too
            return (
                f"{nats:.3f} nats a token for {probe.text[:32]!r}, "
                f"{probe.min_nats:.3f} to {probe.max_nats:.3f} are wanted"
            )
    if report.decode_tok_s < wanted.min_tok_s:
        return f"{report.decode_tok_s:.1f} tokens a second, {wanted.min_tok_s:.1f} are wanted"
    return ""
