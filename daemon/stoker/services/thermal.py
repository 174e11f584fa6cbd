"""The thermal loop: sense, decide (core.thermal), act, report. Keeps the device under its wall.

Runs in its own thread; one tick reads a few sysfs files and never blocks on anybody else.
Whatever a driver throws, the tick goes on: a dead loop would leave the last cap in place
without eyes. On a machine without zones or cpufreq it says so once and watches only.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import TypeVar

from stoker.config.schema import ThermalConfig
from stoker.core import token_mix
from stoker.core.boards import BoardPreset
from stoker.core.caps import Applied
from stoker.core.thermal import adopt, decide, follows_phase, start
from stoker.core.thermal_plan import ThermalPlan, make_plan, with_points
from stoker.core.thermal_resume import GRACE_S, SLEPT_S, resume
from stoker.core.thermal_state import Decision, Observation, Pause, ThermalState
from stoker.core.token_mix import Mix, Work
from stoker.events.heat_finds import Found, PowerMeter
from stoker.events.operating import PointTable
from stoker.events.thermal import FrequencyPolicy, Reading, Sensor, ThermalSnapshot
from stoker.ports.doors import ThermalDetails, ThermalListener
from stoker.services.cap_writer import CapWriter, tell_of_writers
from stoker.services.caps import FAULTS, Restored, ThermalPorts, restore_caps
from stoker.services.heat_search import HeatSearch
from stoker.services.other_sensors import OtherSensors
from stoker.services.tick_pace import TickPace
from stoker.units import Fraction, KiloHertz, Seconds, Watts

log = logging.getLogger(__name__)
T = TypeVar("T")

_NO_DIGITS = dict.fromkeys(map(ord, "0123456789"))
RESCAN_S, RESCAN_FAULT_S = 30.0, 2.0
_RESCAN_FAULTS = frozenset({"ENOENT", "ENODEV", "EBUSY", "ENXIO"})

__all__ = ["Restored", "ThermalPorts", "ThermalService", "restore_caps"]


class ThermalService:
    """``ThermalDoor``. ``pause`` is told when inference must stop and may go on; ``work`` says
    what it does now. Each tick reads and writes a few files and blocks on nobody."""

    def __init__(
        self,
        config: ThermalConfig,
        preset: BoardPreset,
        ports: ThermalPorts,
        *,
        pause: Callable[[bool, str], None] = lambda _paused, _reason: None,
        work: Callable[[], Work] = Work,
    ) -> None:
        self._config, self._preset, self._ports = config, preset, ports
        self._pause, self._work = pause, work
        self._writer = CapWriter(ports)
        self._plan: ThermalPlan = make_plan(preset, config, (), ())
        self._state: ThermalState = start(self._plan, ports.clock.monotonic_s())
        self._sensors: tuple[Sensor, ...] = ()
        self._readings: dict[str, Reading] = {}
        self._applied: dict[str, Applied] = {}
        self._scanned_s = Seconds(-1e9)
        self._asleep_s = ports.asleep_s()
        self._search = HeatSearch(ports.inventory)
        self._others = OtherSensors(self._read, ports.clock)
        self._mix = Mix()
        self._points: tuple[PointTable | None, int] = (None, 0)
        self._used_points: tuple[PointTable | None, int] = (None, 0)
        self._wanted_khz: Mapping[str, KiloHertz] | None = None
        self._granted_khz: Mapping[str, KiloHertz | None] = {}
        self.follows_phase = False  # the next tick acts on a change of phase; read by any thread
        self._said = ""
        self._complaints: dict[str, str] = {}
        self._last_tick_s: Seconds | None = None
        self._listeners: list[ThermalListener] = []
        self._pace = TickPace(ports.clock)
        self._thread: threading.Thread | None = None
        self._details = ThermalDetails(
            ThermalSnapshot(
                state="blind",
                temperature_c=None,
                wall_c=self._plan.wall_c,
                headroom=Fraction(1.0),
                board=preset.name,
                reason="not read yet" if config.enabled else "thermal.enabled is false",
            )
        )

    # The door: any thread, never blocks.
    def listen(self, listener: ThermalListener) -> None:
        self._listeners.append(listener)

    def snapshot(self) -> ThermalSnapshot:
        return self._details.snapshot

    def details(self) -> ThermalDetails:
        return self._others.fill(self._details, self._sensors, self._readings)

    def discover(self) -> Future[tuple[Found, ...]]:
        """All that is to be found of heat here, and what each is used for. Never the tick's
        own thread: a sensor on a slow bus must not hold up the next tick."""
        return self._search.start(self._plan)

    def last_tick_s(self) -> Seconds | None:
        """When the last tick ended; the watchdog is fed only while this advances."""
        return self._last_tick_s

    # For operating points; any thread.
    @property
    def plan(self) -> ThermalPlan:
        """Zones, policies and tables as they are now."""
        return self._plan

    def use_points(self, table: PointTable | None, threads: int) -> None:
        """The operating points of the model that is loaded, made with so many threads."""
        self._points = (table, threads)
        self._scanned_s = Seconds(-1e9)
        self.poke()

    def want(self, caps_khz: Mapping[str, KiloHertz] | None) -> threading.Event:
        """For a calibration; see ``ports.operating.Heat``."""
        self._wanted_khz = caps_khz
        return self._pace.ask()

    def granted_khz(self) -> Mapping[str, KiloHertz | None]:
        """What the frequency policies read back at the last tick."""
        return self._granted_khz

    def poke(self) -> None:
        """Act now: what inference does has changed, and its heat comes in a moment."""
        self._pace.poke()

    def lateness(self) -> dict[int, int]:
        """How late the loop looked so far; see ``tick_pace``."""
        return self._pace.lateness()

    # Life.
    def start(self) -> None:
        """Undo what a killed predecessor left, then run; the first tick is done on return."""
        self._guard("restore caps", self._writer.restore)
        self.tick()
        self._thread = threading.Thread(target=self._run, name="thermal", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and give the original caps back. Safe to call twice."""
        self._pace.stop()
        if self._thread is not None:
            self._thread.join(timeout=5.0)
            self._thread = None
        self._guard("restore caps", self._writer.end)

    def _run(self) -> None:
        self._ports.hasten()
        while (look := self._pace.wait(self.snapshot().period_s)) is not None:
            self.tick(look=look)

    # One tick.
    def tick(self, *, look: bool = True) -> None:
        """Sense, decide, act, report. Never raises; a tick that failed does not count for
        ``last_tick_s``, so that the watchdog sees a loop that runs but does nothing. Without
        ``look`` the sensors are left alone: two readings in a moment have no slope."""
        tick = partial(self._tick, look) if self._config.enabled else self._rest
        if self._guard("run a thermal tick", tick):
            self._last_tick_s = self._ports.clock.monotonic_s()

    def _rest(self) -> None:
        """Not enabled (any more): what is ours goes back; tried again where it cannot yet."""
        now_s = self._ports.clock.monotonic_s()
        if now_s - self._scanned_s < RESCAN_S:
            return
        self._scanned_s = now_s
        if self._state.paused:
            self._pause(False, "")
        if self._writer.held():
            self._writer.restore()
        self._state = start(self._plan, now_s)

    def reconfigure(self, config: ThermalConfig) -> None:
        """Take new settings with the next tick (wall, actuate, periods)."""
        self._config = config
        self._scanned_s = Seconds(-1e9)

    def _tick(self, look: bool) -> None:
        now_s = self._ports.clock.monotonic_s()
        self._notice_sleep(now_s)
        if now_s - self._scanned_s >= RESCAN_S:
            self._rescan(now_s)
        if look:
            self._pace.looked(now_s)
            self._readings = {z.sensor.name: self._read(z.sensor) for z in self._plan.zones}
        seen = self._sense(now_s, look)
        if self._lost_something(seen) and now_s - self._scanned_s >= RESCAN_FAULT_S:
            self._rescan(now_s)
        before = self._state.caps
        self._state, decision = decide(self._plan, self._state, seen)
        self.follows_phase = follows_phase(self._plan, self._state)
        tell_of_writers(before, self._state.caps)
        self._act(decision)
        self._report(decision.snapshot)

    def _notice_sleep(self, now_s: Seconds) -> None:
        asleep_s = self._ports.asleep_s()
        slept_s = asleep_s - self._asleep_s
        self._asleep_s = asleep_s
        if slept_s >= SLEPT_S:
            log.info("slept for %.0f s: sensors are given %.0f s to answer", slept_s, GRACE_S)
            self._state = resume(self._state, now_s)
            self._scanned_s = Seconds(-1e9)

    def _rescan(self, now_s: Seconds) -> None:
        self._scanned_s = now_s
        ports = self._ports
        meters: tuple[PowerMeter, ...] = ()
        if ports.meters is not None:
            meters = self._try("list power meters", ports.meters.discover, meters)
        if ports.firmware is not None:
            self._try("find the firmware's flags", ports.firmware.discover, None)
        sensors = self._try("list sensors", self._ports.sensors.discover, self._sensors)
        before = tuple(self._plan.policies.values())
        policies = self._try("list frequency policies", self._ports.policies.discover, before)
        plan = make_plan(self._preset, self._config, sensors, policies, meters)
        if self._eye_lost(plan):
            # Keep the old zones: the fail-safe must count the seconds without them.
            kept = [zone.sensor for zone in self._plan.zones]
            sensors = tuple({s.name: s for s in (*kept, *sensors)}.values())
            plan = make_plan(self._preset, self._config, sensors, policies, meters)
        self._sensors = sensors
        plan = self._pointed(plan)
        if plan != self._plan:
            self._plan = plan
            self._state = adopt(plan, self._state, now_s)
            zones = ", ".join(zone.sensor.name for zone in plan.zones) or "none"
            log.info("zones %s; policies %s", zones, ", ".join(plan.policies) or "none")

    def _pointed(self, plan: ThermalPlan) -> ThermalPlan:
        """With the model's points: made anew only when they or the clocks have changed."""
        now = self._plan
        same = plan.tables == now.tables and plan.actuated == now.actuated
        if same and self._points == self._used_points:
            return replace(plan, fronts=now.fronts, points=now.points)
        self._used_points = self._points
        return with_points(plan, *self._points)

    def _eye_lost(self, plan: ThermalPlan) -> bool:
        """A zone went away and no zone of the new plan sees what it saw."""
        here = {zone.sensor.name for zone in plan.zones}
        seen = [set(zone.policies) for zone in plan.zones]
        return any(
            zone.sensor.name not in here
            and not any(set(zone.policies) & set(plan.policies) <= other for other in seen)
            for zone in self._plan.zones
        )

    def _sense(self, now_s: Seconds, look: bool) -> Observation:
        granted = {name: self._granted(policy) for name, policy in self._plan.policies.items()}
        applied, self._applied = self._applied, {}
        self._granted_khz = granted
        work = self._work()
        self._mix = token_mix.step(self._mix, work, now_s)
        firmware = self._ports.firmware
        return Observation(
            now_s,
            self._readings,
            granted,
            applied,
            Fraction(min(1.0, max(0.0, work.busy))),
            power_w=self._power_w(),
            firmware=None if firmware is None else self._try("read flags", firmware.read, None),
            phase=work.phase,
            prefill_share=self._mix.prefill_share,
            wanted_khz=self._wanted_khz,
            held=self._writer.held(),
            sensed=look,
        )

    def _power_w(self) -> Watts | None:
        meter, meters = self._plan.meter, self._ports.meters
        if meter is None or meters is None:
            return None
        reading = self._try("read a power meter", partial(meters.read, meter), None)
        return None if reading is None else reading.watts

    def _read(self, sensor: Sensor) -> Reading:
        try:
            return self._ports.sensors.read(sensor)
        except FAULTS as error:
            return Reading(sensor.name, None, type(error).__name__)

    def _granted(self, policy: FrequencyPolicy) -> KiloHertz | None:
        return self._try("read a cap", lambda: self._ports.policies.cap_khz(policy), None)

    def _lost_something(self, seen: Observation) -> bool:
        faults = {reading.fault for reading in seen.readings.values()}
        return bool(faults & _RESCAN_FAULTS) or None in seen.granted_khz.values()

    def _act(self, decision: Decision) -> None:
        for action in decision.actions:
            if isinstance(action, Pause):
                level = logging.WARNING if action.paused else logging.INFO
                said = "paused" if action.paused else "may go on"
                log.log(level, "inference %s: %s", said, action.reason or "cool again")
                self._pause(action.paused, action.reason)
                continue
            policy = self._plan.policies[action.policy]
            self._applied[action.policy] = self._writer.apply(action, policy)

    def _report(self, snapshot: ThermalSnapshot) -> None:
        before = self._details.snapshot
        self._details = ThermalDetails(snapshot, (), tuple(self._plan.policies.values()))
        text = f"{snapshot.state}: {snapshot.reason}"
        said = text.translate(_NO_DIGITS)  # seconds that count up are no news
        if said != self._said and (snapshot.state != "ok" or before.state != "ok"):
            level = logging.INFO if snapshot.state in ("ok", "watching") else logging.WARNING
            log.log(level, "thermal state %s", text.rstrip(": "))
            self._said = said
        if snapshot != before:
            for listener in tuple(self._listeners):
                self._guard("tell a thermal listener", partial(listener.changed, snapshot))

    # Nothing below ends the loop; each complaint is said once until it changes.
    def _try(self, verb: str, call: Callable[[], T], otherwise: T) -> T:
        """A driver's call, or ``otherwise`` when the driver throws."""
        try:
            return call()
        except FAULTS as error:
            self._complain(verb, error)
            return otherwise

    def _guard(self, verb: str, call: Callable[[], object]) -> bool:
        """False when it threw, whatever it was: a bug must not leave the device unwatched."""
        try:
            call()
        except Exception as error:
            self._complain(verb, error)
            return False
        return True

    def _complain(self, verb: str, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        if self._complaints.get(verb) != text:
            self._complaints[verb] = text
            log.warning("cannot %s: %s", verb, text, exc_info=not isinstance(error, FAULTS))
