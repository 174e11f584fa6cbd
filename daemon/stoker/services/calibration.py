"""Measures the operating points of the loaded model: which threads, which clock, how fast, how hot.

A thread of its own while one runs. Clocks go through the thermal loop (journal, wall and all), so
that whatever ends it leaves nothing behind; answers to users come first; each point is kept.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from statistics import fmean
from typing import Any, Final

from stoker import errors
from stoker.core import calibration as core
from stoker.core import point_records
from stoker.core.thermal_plan import ThermalPlan
from stoker.events.operating import Calibration, Measured, Point, PointTable, Setting
from stoker.ports.doors import InferenceSnapshot
from stoker.ports.operating import Heat, SpeedMeter
from stoker.ports.system import Clock, StateFile
from stoker.units import Seconds, Watts

LIMIT_S: Final = Seconds(0.8)
TRIES: Final = 2
"""Of each point; the faster one counts, as others' work only ever slows it down."""
DISTURBED_CPUS: Final = 0.3
SETTLE_S: Final = 0.3
LOOK_S: Final = 0.2
RELEASE_S: Final = 2.0
"""Some ticks: a loop that does not tick any more is the watchdog's affair."""
COOL_S: Final = Seconds(240.0)
"""So long the points together wait for the board to cool; then they are left for another time."""
LEAST_W: Final = 0.05

_log = logging.getLogger(__name__)


class _CancelledError(Exception):
    pass


class CalibrationService:
    """``CalibrationDoor``."""

    def __init__(
        self,
        heat: Heat,
        meter: SpeedMeter,
        store: StateFile,
        clock: Clock,
        *,
        busy_cpu_s: Callable[[], float] = lambda: 0.0,
        wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ) -> None:
        """``busy_cpu_s``: of the whole machine, to tell others' work; ``wait`` as an event's."""
        self._heat, self._meter, self._store, self._clock = heat, meter, store, clock
        self._busy_cpu_s, self._wait = busy_cpu_s, wait
        self._others = 0.0  # CPUs that other programs used, at most
        self._patience_s: float = COOL_S
        self._lock = threading.Lock()
        self._tables = point_records.from_state(store.load())
        self._view = Calibration()
        self._viewing = threading.RLock()  # of the view, changed by several threads
        self._served = ("", "", 0)  # model, fingerprint, threads
        self._listeners: list[Callable[[Calibration], None]] = []
        self._cancel = threading.Event()
        self._caller = ""
        self._thread: threading.Thread | None = None
        self._ended: Future[None] = Future()

    def listen(self, listener: Callable[[Calibration], None]) -> None:
        self._listeners.append(listener)

    def view(self) -> Calibration:
        return self._view

    def heard(self, now: InferenceSnapshot) -> None:
        """The inference service's news: another model has other points."""
        served = (now.model, now.fingerprint, now.most_threads)
        if now.state != "ready" or served == self._served:
            return
        self._served = served
        self._cancel.set()  # what was being measured is gone
        self._use()
        table = point_records.find(self._tables, self._heat.plan.board, now.fingerprint)
        self._change(table=table)

    def calibrate(self, caller: str, *, fresh: bool) -> Future[None]:
        begun: Future[None] = Future()
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                begun.set_exception(errors.Busy("cannot calibrate: it is under way already"))
                return begun
            if not self._served[1]:
                begun.set_exception(
                    errors.ModelUnavailable(
                        "cannot calibrate: no model is loaded", hint="see 'stokerctl models'"
                    )
                )
                return begun
            self._cancel = threading.Event()
            self._caller, self._ended = caller, Future()
            self._thread = threading.Thread(
                target=self._run, args=(fresh, self._cancel), name="calibration", daemon=True
            )
            self._change(state="running", done=0, total=0, reason="")
            self._thread.start()
        begun.set_result(None)
        return begun

    def cancel(self) -> Future[None]:
        with self._lock:
            ended: Future[None] = Future()
            if self._thread is None or not self._thread.is_alive():
                ended.set_result(None)
                return ended
            self._cancel.set()
            self._ended.add_done_callback(lambda _done: ended.set_result(None))
            return ended

    def caller_vanished(self, unique_name: str) -> None:
        if unique_name == self._caller:
            self._cancel.set()

    def stop(self, timeout_s: Seconds) -> None:
        """Before the services that it uses."""
        self._cancel.set()
        thread = self._thread
        if thread is not None:
            thread.join(timeout_s)

    # Its thread.

    def _run(self, fresh: bool, cancel: threading.Event) -> None:
        state, reason = "done", ""
        try:
            reason = self._measure_all(fresh, cancel)
        except _CancelledError:
            state, reason = "cancelled", "what was measured is kept: it goes on from there"
        except errors.StokerError as error:
            state, reason = "failed", error.message
        except Exception:  # one deed's fault must not end the service
            _log.exception("the calibration failed")
            state, reason = "failed", "a fault in stokerd; see its journal"
        finally:
            self._heat.want(None)  # whatever becomes of the rest
        self._use()
        # Whoever hears of the end finds the clocks given back, and the points in use.
        self._wait(self._heat.want(None), RELEASE_S)
        _log.info("calibration %s: %s", state, reason or "all points are measured")
        with self._lock:  # whoever hears of the end may begin the next one
            self._thread, ended = None, self._ended
            self._change(state=state, reason=reason)
        ended.set_result(None)

    def _use(self) -> None:
        """The thermal loop has the newest points, or the reason why there are none."""
        _model, fingerprint, threads = self._served
        table = point_records.find(self._tables, self._heat.plan.board, fingerprint)
        self._heat.use_points(table, threads)

    def _measure_all(self, fresh: bool, cancel: threading.Event) -> str:
        plan, (model, fingerprint, threads) = self._heat.plan, self._served
        rungs = plan.board_ladder if plan.sets_clocks else None
        grid = core.grid(rungs, plan.tables, threads)
        table = point_records.find(self._tables, plan.board, fingerprint)
        empty = PointTable(
            plan.board, model, fingerprint, threads, len(grid), plan.meter is not None
        )
        if fresh or table is None or not core.fits(table, empty, grid):
            table = empty
        table, self._others = replace(table, skipped=()), 0.0
        self._patience_s = COOL_S
        known = {point.setting for point in table.points}
        idle_w = self._idle_w(plan, cancel) if len(known) < len(grid) else None
        for setting in grid:
            self._show(table, len(grid), "running", "")
            if setting in known:
                continue
            table = self._one(table, setting, plan, idle_w, cancel)
            if fingerprint != self._served[1]:
                raise errors.Cancelled("cannot go on: the model was changed")
            self._keep(table)
        self._show(table, len(grid), "running", "")
        if table.skipped:
            return f"{len(table.skipped)} points are left for another time: {table.skipped[0][1]}"
        if self._others > DISTURBED_CPUS:
            return (
                f"other programs used up to {self._others:.1f} CPUs meanwhile: "
                "measure again (--fresh) when the device is quiet"
            )
        return ""

    def _one(
        self,
        table: PointTable,
        setting: Setting,
        plan: ThermalPlan,
        idle_w: Watts | None,
        cancel: threading.Event,
    ) -> PointTable:
        """The table with this point, or with the reason why there is none."""
        why, first = "", True
        while first or self._patience_s > 0:
            first = False
            why = self._too_hot(setting, plan)
            if not why:
                self._ask(setting, cancel)  # one tick sets the clock, a later one reads it back
                self._look_at_others(cancel)
                self._ask(setting, cancel)
                why = self._refused(setting)
            if not why:
                try:
                    found, powers = self._best(setting, cancel)
                    self._ask(setting, cancel)  # the clock as it is now, not as it was before
                except (errors.Busy, errors.ModelLoading) as error:
                    # Whoever is answered has the whole clock meanwhile, and all the time.
                    self._heat.want(None)
                    self._show(table, table.size, "waiting", error.message)
                    self._pause(2 * LOOK_S, cancel)
                    first = True  # that is no fault of the heat
                    continue
                why = self._refused(setting)
                if not why:
                    point = self._point(setting, found, powers, plan, idle_w)
                    return replace(table, points=(*table.points, point))
            self._show(table, table.size, "waiting", why)
            since_s = self._clock.monotonic_s()
            self._pause(LOOK_S, cancel)
            self._patience_s -= max(LOOK_S, self._clock.monotonic_s() - since_s)
        return replace(table, skipped=(*table.skipped, (setting, why)))

    def _ask(self, setting: Setting, cancel: threading.Event) -> None:
        """A tick with these clocks is over. On a busy machine it comes late, and is waited for:
        that is no fault of the heat."""
        acted = self._heat.want(dict(setting.caps))
        for _ in range(round(RELEASE_S / LOOK_S)):
            if cancel.is_set():
                raise _CancelledError
            if self._wait(acted, LOOK_S):
                return

    def _look_at_others(self, cancel: threading.Event) -> None:
        """While the clock settles and we compute nothing: what is busy is others' work."""
        before_s, busy_s = self._clock.monotonic_s(), self._busy_cpu_s()
        self._pause(SETTLE_S, cancel)
        passed_s = max(self._clock.monotonic_s() - before_s, SETTLE_S)
        self._others = max(self._others, (self._busy_cpu_s() - busy_s) / passed_s)

    def _best(self, setting: Setting, cancel: threading.Event) -> tuple[Measured, list[float]]:
        tries = [self._measure(setting, cancel) for _ in range(TRIES)]
        return max(tries, key=lambda one: one[0].tokens / one[0].wall_s)

    def _measure(self, setting: Setting, cancel: threading.Event) -> tuple[Measured, list[float]]:
        future, powers = self._meter.measure(setting, LIMIT_S), list[float]()
        while True:
            try:
                return future.result(LOOK_S), powers[1:] or powers
            except TimeoutError:
                if cancel.is_set():
                    raise _CancelledError from None
                watts = self._heat.snapshot().power_w
                if watts is not None:
                    powers.append(watts)
                self._heat.poke()

    def _idle_w(self, plan: ThermalPlan, cancel: threading.Event) -> Watts | None:
        """What the meter reads while nothing is computed; it is no point's."""
        if plan.meter is None:
            return None
        powers: list[float] = []
        for _ in range(5):
            self._heat.poke()
            self._pause(LOOK_S, cancel)
            watts = self._heat.snapshot().power_w
            if watts is not None:
                powers.append(watts)
        return Watts(min(powers)) if powers else None

    def _point(
        self,
        setting: Setting,
        found: Measured,
        powers: list[float],
        plan: ThermalPlan,
        idle_w: Watts | None,
    ) -> Point:
        sizes = {name: len(policy.cpus) or 1 for name, policy in plan.policies.items()}
        full = (plan.full_w, max(1, self._served[2]))
        watts = core.estimate_w(plan.tables, sizes, setting, found.busy_cpus, full)
        if idle_w is not None and powers:
            watts = Watts(fmean(powers) - idle_w)
        return Point(setting, Watts(max(LEAST_W, watts)), found.tokens / found.wall_s)

    def _too_hot(self, setting: Setting, plan: ThermalPlan) -> str:
        """Why the wall does not allow this point now; "" = it does."""
        now = self._heat.snapshot()
        if now.state in ("safe", "stop"):
            return now.reason
        sizes = {name: len(policy.cpus) or 1 for name, policy in plan.policies.items()}
        full = (plan.full_w, max(1, self._served[2]))
        need_w = core.estimate_w(plan.tables, sizes, setting, setting.threads, full)
        if need_w <= now.headroom * plan.full_w * (1 + 1e-6):
            return ""
        return f"too hot for it: {now.temperature_c or 0.0:.1f} °C, wall {now.wall_c:.1f} °C"

    def _refused(self, setting: Setting) -> str:
        granted = self._heat.granted_khz()
        for name, khz in setting.caps:
            if granted.get(name) != khz:
                return f"{name} runs at most at {granted.get(name)} kHz, not {khz} kHz"
        return ""

    def _pause(self, seconds: float, cancel: threading.Event) -> None:
        if self._wait(cancel, seconds):
            raise _CancelledError

    def _keep(self, table: PointTable) -> None:
        self._tables = point_records.put(self._tables, table)
        self._store.save(point_records.to_state(self._tables))

    def _show(self, table: PointTable, total: int, state: str, reason: str) -> None:
        done = len(table.points) + len(table.skipped)
        self._change(state=state, done=done, total=total, reason=reason, table=table)

    def _change(self, **values: Any) -> None:
        """These values only: another thread may just have changed the others."""
        with self._viewing:
            self._view = view = replace(self._view, **values)
            for listener in tuple(self._listeners):
                listener(view)
