"""Whether a new set is well: it is brought in, probed and watched before it is kept.

The side of ``stoker_ota``'s port ``Health`` that the agent has: another model, runtime or adapter
goes through the swap of the inference service or beside what serves, so that the old set serves
until the new one has shown that it can answer. It runs in the update thread and may wait for
minutes.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from dataclasses import replace
from typing import Final, Protocol, TypeVar

from stoker import errors
from stoker.config.schema import Config, ModelConfig
from stoker.core.fit import Shortage, amount
from stoker.core.installed_set import InstalledSet, model_of, on_trial, served
from stoker.events.models import Probe, ProbeReport, Question, SwapResult, can_speak
from stoker.events.prompt import AdapterScale
from stoker.events.thermal import ThermalSnapshot
from stoker.ports.doors import InferenceSnapshot
from stoker.services.adapter_change import ADAPTERS, MODEL
from stoker.services.serving_probe import Asked, ServingProbe
from stoker.units import Seconds
from stoker_ota.core.manifest import Health, Manifest
from stoker_ota.errors import Cancelled, NoMemory, OtaError, Unhealthy, WrongTarget
from stoker_ota.values.deployment import Member

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
LOOK_S: Final = 0.1
SETTLE_S: Final = 300.0
"""For a runner that starts, or for somebody else's change of the model."""
ADAPTER_PROMPT: Final = "Say hello."
_SETTLED: Final = ("ready", "asleep", "no-model")


class Runtime(Asked, Protocol):
    """Of ``InferenceService``."""

    def swap(
        self, model: str | ModelConfig, probe: Probe | None = None, config: Config | None = None
    ) -> Future[SwapResult]: ...

    def shortage(self, file_bytes: int, adapter_bytes: int) -> Future[Shortage | None]: ...

    def difference(self, model: ModelConfig, config: Config) -> Future[str]: ...

    def adapt(self, config: Config, *, keep: bool) -> Future[None]: ...

    def snapshot(self) -> InferenceSnapshot: ...


class Settings(Protocol):
    """Which set serves. Paths and files are its business."""

    @property
    def config(self) -> Config:
        """As the files have it, with the policy that is in use."""

    @property
    def now(self) -> InstalledSet:
        """The set that is in use."""

    def locate(self, generation: int, members: tuple[Member, ...]) -> InstalledSet:
        """Raises StokerError when this device cannot use the set (any more)."""

    def read(self, installed: InstalledSet) -> Config:
        """The files' configuration under this set's policy. Raises ConfigInvalid."""

    def serve(self, installed: InstalledSet, config: Config) -> None:
        """From now on. Raises StokerError when nothing has changed."""


class ModelHealth:
    """``cancelled`` may raise to end the wait."""

    def __init__(
        self,
        settings: Settings,
        runtime: Runtime,
        heat: Callable[[], ThermalSnapshot],
        *,
        cancelled: Callable[[], bool],
    ) -> None:
        self._settings, self._runtime, self._heat = settings, runtime, heat
        self._cancelled = cancelled
        self._serving = ServingProbe(runtime, cancelled)

    def room(self, manifest: Manifest) -> None:
        """See ``stoker_ota.ports.updates.Health``. The model that serves can give way, so that
        only what fits neither beside it nor in its place is refused.
        """
        model = next((item for item in manifest.artifacts if item.kind == "model"), None)
        if model is None:
            return  # a runtime or adapters for the model in use: it makes room for itself
        adapters = (i.size for i in manifest.artifacts if i.base_sha256 == model.sha256)
        short = self._wait(self._runtime.shortage(model.size, sum(adapters)))
        if short is not None:
            raise _no_room(model.name, short)

    def test(self, manifest: Manifest, generation: int, members: tuple[Member, ...]) -> None:
        """See ``stoker_ota.ports.updates.Health``. First whatever can be tried beside what
        serves, then the policy, and then the whole under it.
        """
        wanted = manifest.health
        with _unhealthy():
            installed = self._settings.locate(generation, members)
            config = self._settings.read(installed)
            before = self._settings.config
        proven = self._bring(installed, config, wanted)
        with _unhealthy():
            self._settings.serve(installed, config)
        if not proven or config != before:
            self._serving.run(self._probe(wanted, installed, config))
        self._watch(wanted)

    def switch(self, generation: int, members: tuple[Member, ...]) -> str:
        """See ``stoker_ota.ports.updates.Health``. A set that cannot be used any more (another
        model is configured) gives way to the package's own.
        """
        faults: list[str] = []
        try:
            installed = self._settings.locate(generation, members)
            config = self._settings.read(installed)
        except errors.StokerError as error:
            faults.append(f"cannot return to generation {generation}: {error.message}")
            installed = InstalledSet()
            config = self._settings.read(installed)
        proven = self._bring(installed, config, None)
        self._settings.serve(installed, config)
        if not proven and model_of(config, installed) is not None:
            try:
                timeout_s = config.swap.probe_timeout_s
                self._serving.run(Probe(timeout_s=timeout_s))
            except Unhealthy as error:  # nothing is left to return to
                faults.append(f"the set that was returned to is not well: {error.message}")
        for fault in faults:
            _log.error("%s", fault)
        return "; ".join(faults)

    def _probe(self, wanted: Health, installed: InstalledSet, config: Config) -> Probe:
        model = model_of(config, installed)  # of another model's nobody can say anything yet
        names = [item.name for item in installed.adapters if model and item.model == model.name]
        return probe_of(wanted, float(config.swap.probe_timeout_s), names)

    def _bring(self, installed: InstalledSet, config: Config, wanted: Health | None) -> bool:
        """The set's model, libraries and adapters serve, or Unhealthy; True if they were tried
        (``wanted``; None = a few words) before that.
        """
        whole, model = served(config, installed), model_of(config, installed)
        if model is None:
            if installed.adapters or installed.libraries:
                raise Unhealthy("cannot try the set: no model is configured")
            return False
        probe = None if wanted is None else self._probe(wanted, installed, config)
        end = time.monotonic() + SETTLE_S
        self._settle(end)
        difference = self._wait(self._runtime.difference(model, whole))
        if difference == ADAPTERS:
            self._adapt(whole, model.name, wanted, end)
            return wanted is not None
        if difference == MODEL:
            self._swap(model, probe, whole, end)
            return True
        return False

    def _adapt(self, whole: Config, model: str, wanted: Health | None, end: float) -> None:
        """New adapters are tried under other names, then they take the place of the old."""
        now = served(self._settings.config, self._settings.now)
        trial = on_trial(now, whole, model)
        try:
            if wanted is not None and trial:
                both = replace(now, adapters=(*now.adapters, *trial.values()))
                self._patiently(lambda: self._runtime.adapt(both, keep=False), end)
                timeout_s = float(whole.swap.probe_timeout_s)
                self._serving.run(probe_of(wanted, timeout_s, list(trial)))
            self._patiently(lambda: self._runtime.adapt(whole, keep=True), end)
        except Unhealthy:
            with contextlib.suppress(Unhealthy):  # a runner that died loads the old ones anyway
                self._patiently(lambda: self._runtime.adapt(now, keep=True), end)
            raise

    def _swap(self, model: ModelConfig, probe: Probe | None, whole: Config, end: float) -> None:
        self._patiently(lambda: self._runtime.swap(model, probe, whole), end)

    def _patiently(self, begin: Callable[[], Future[_T]], end: float) -> None:
        """What passes is waited for; the rest is Unhealthy."""
        while True:
            self._settle(end)
            try:
                self._wait(begin())
                return
            except (errors.Busy, errors.ModelLoading) as error:
                self._cancelled()
                if time.monotonic() >= end:
                    raise Unhealthy(f"cannot try the set: {error.message}") from error
                time.sleep(LOOK_S)
            except errors.StokerError as error:
                self._cancelled()  # a service that stops is nobody's fault
                raise Unhealthy(error.message, hint=error.hint) from error

    def _settle(self, end: float) -> None:
        """A runner that is starting, or on its way to sleep, must not be disturbed."""
        while time.monotonic() < end:
            now = self._runtime.snapshot()
            if now.state in _SETTLED and not (now.state == "asleep" and now.runner_pid):
                return
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


def _no_room(model: str, short: Shortage) -> OtaError:
    needed, free = amount(short.needed_bytes), amount(short.available_bytes)
    details = {"needed": short.needed_bytes, "free": short.available_bytes}
    if short.hopeless:
        return WrongTarget(
            f"cannot load {model}: it needs {needed} at least, this device has {free}",
            hint="a smaller model, or one with smaller weights, would fit",
            details=details,
        )
    return NoMemory(
        f"cannot load {model}: it needs {needed} at least, {free} are available when the model in "
        "use has given way",
        hint="nothing is fetched until there is more: end what takes it, or see [memory]",
        details=details,
    )


@contextlib.contextmanager
def _unhealthy() -> Iterator[None]:
    """What this device cannot use is the set's fault."""
    try:
        yield
    except errors.StokerError as error:
        raise Unhealthy(error.message, hint=error.hint) from error


def probe_of(wanted: Health, timeout_s: float, adapters: Sequence[str]) -> Probe:
    """A manifest's wishes, and a few words under each of these adapters."""
    canaries = tuple(Question(item.prompt, item.max_tokens) for item in wanted.canaries)
    under = tuple(Question(ADAPTER_PROMPT, 8, (AdapterScale(name),)) for name in adapters)
    return Probe(
        judge=lambda report: judge(wanted, report),
        texts=tuple(item.text for item in wanted.probes),
        max_tokens=16,
        timeout_s=Seconds(max(float(wanted.startup_s), timeout_s)),
        questions=canaries + under,
    )


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
    for canary, answer in zip(wanted.canaries, report.answers, strict=False):
        if not any(word.lower() in answer.lower() for word in canary.expect):
            return f"{answer[:64]!r} is the answer to {canary.prompt[:32]!r}"
    if not all(report.answers):
        return "it wrote nothing under an adapter"
    if report.decode_tok_s < wanted.min_tok_s:
        return f"{report.decode_tok_s:.1f} tokens a second, {wanted.min_tok_s:.1f} are wanted"
    return ""
