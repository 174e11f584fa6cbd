"""The knobs beside frequency caps, both only where the configuration asks for them.

Governor "performance" while anything is computed; and devfreq limits (a GPU on the same chip) in
proportion to the headroom. A listener of the thermal loop, on its thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from stoker.config.schema import ThermalConfig
from stoker.events.thermal import ThermalSnapshot
from stoker.services.held_files import HeldFiles

POLICIES: Final = "devices/system/cpu/cpufreq"
DEVFREQ: Final = "class/devfreq"
PERFORMANCE: Final = "performance"
FULL: Final = 0.98
"""Of the headroom: above it no other clock is limited."""
AGAIN_S: Final = 5.0


class OtherKnobs:
    """One thread. What the kernel refused is tried again after ``AGAIN_S`` of ``now_s``."""

    def __init__(
        self,
        config: ThermalConfig,
        held: HeldFiles,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config, self._held, self._now_s = config, held, now_s
        self._fast: set[str] = set()
        self._limits: dict[str, str] = {}
        self._refused_s: dict[str, float] = {}

    def changed(self, now: ThermalSnapshot) -> None:
        if self._config.governor == PERFORMANCE:
            self._govern(bool(now.phase) and now.state in ("ok", "degraded"))
        for device in self._config.devfreq:
            self._limit(device, now.headroom)

    def stop(self) -> None:
        self._held.release_all()

    def _govern(self, fast: bool) -> None:
        if not fast:
            for name in tuple(self._fast):
                if self._due(name) and self._done(name, self._held.release(name)):
                    self._fast.discard(name)
            return
        for policy in self._held.files.names(POLICIES):  # one may come later
            name = f"{POLICIES}/{policy}/scaling_governor"
            if name in self._fast or not self._due(name):
                continue
            offered = self._held.files.get(f"{POLICIES}/{policy}/scaling_available_governors")
            held = offered is None or PERFORMANCE in offered.split()
            if self._done(name, held and self._held.hold(name, PERFORMANCE)):
                self._fast.add(name)

    def _limit(self, device: str, headroom: float) -> None:
        """The highest step within that part of its highest one; never below its lowest."""
        name = f"{DEVFREQ}/{device}/max_freq"
        wanted, top = ("", "") if headroom >= FULL else self._step(device, headroom)
        if wanted == self._limits.get(device, "") or not self._due(name):
            return
        held = self._held
        if self._done(name, held.hold(name, wanted, top) if wanted else held.release(name)):
            self._limits[device] = wanted

    def _due(self, name: str) -> bool:
        return self._now_s() - self._refused_s.get(name, -AGAIN_S) >= AGAIN_S

    def _done(self, name: str, done: bool) -> bool:
        if done:
            self._refused_s.pop(name, None)
        else:
            self._refused_s[name] = self._now_s()
        return done

    def _step(self, device: str, part: float) -> tuple[str, str]:
        """That step and the highest."""
        listed = self._held.files.get(f"{DEVFREQ}/{device}/available_frequencies") or ""
        steps = sorted(int(word) for word in listed.split() if word.isdecimal())
        if not steps:
            return "", ""
        wanted = max((s for s in steps if s <= part * steps[-1]), default=steps[0])
        return str(wanted), str(steps[-1])
