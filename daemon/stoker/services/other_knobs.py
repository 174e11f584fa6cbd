"""The knobs beside frequency caps, both only where the configuration asks for them.

Governor "performance" while anything is computed; and devfreq limits (a GPU on the same chip) in
proportion to the headroom. A listener of the thermal loop, on its thread.
"""

from __future__ import annotations

from typing import Final

from stoker.config.schema import ThermalConfig
from stoker.events.thermal import ThermalSnapshot
from stoker.services.held_files import HeldFiles

POLICIES: Final = "devices/system/cpu/cpufreq"
DEVFREQ: Final = "class/devfreq"
PERFORMANCE: Final = "performance"
FULL: Final = 0.98
"""Of the headroom: above it no other clock is limited."""


class OtherKnobs:
    def __init__(self, config: ThermalConfig, held: HeldFiles) -> None:
        self._config, self._held = config, held
        self._fast = False
        self._limits: dict[str, str] = {}

    def changed(self, now: ThermalSnapshot) -> None:
        if self._config.governor == PERFORMANCE:
            self._govern(bool(now.phase) and now.state in ("ok", "degraded"))
        for device in self._config.devfreq:
            self._limit(device, now.headroom)

    def stop(self) -> None:
        self._held.release_all()

    def _govern(self, fast: bool) -> None:
        if fast == self._fast:
            return
        self._fast = fast
        for policy in self._held.files.names(POLICIES):
            name = f"{POLICIES}/{policy}/scaling_governor"
            if not fast:
                self._held.release(name)
                continue
            offered = self._held.files.get(f"{POLICIES}/{policy}/scaling_available_governors")
            if offered is None or PERFORMANCE in offered.split():
                self._held.hold(name, PERFORMANCE)

    def _limit(self, device: str, headroom: float) -> None:
        """The highest step within that part of its highest one; never below its lowest."""
        name = f"{DEVFREQ}/{device}/max_freq"
        wanted = "" if headroom >= FULL else self._step(device, headroom)
        if wanted == self._limits.get(device, ""):
            return
        self._limits[device] = wanted
        if wanted:
            self._held.hold(name, wanted)
        else:
            self._held.release(name)

    def _step(self, device: str, part: float) -> str:
        listed = self._held.files.get(f"{DEVFREQ}/{device}/available_frequencies") or ""
        steps = sorted(int(word) for word in listed.split() if word.isdecimal())
        if not steps:
            return ""
        return str(max((s for s in steps if s <= part * steps[-1]), default=steps[0]))
