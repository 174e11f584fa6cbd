"""One runner at a time: carries out the supervisor's actions and hears its events.

Owned by the inference service's thread. Job output, readiness and losses go to
``callbacks``; queries wait in ``runner_queries``, how a model is loaded is ``load_path``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from stoker import errors
from stoker.config.schema import Config, ModelConfig
from stoker.core import runner_life as life
from stoker.core import supervisor
from stoker.events import runner as wire
from stoker.ports.runner import RunnerLauncher, RunnerProcess
from stoker.ports.streams import Poller, Ready
from stoker.services import job_errors, load_path
from stoker.services.runner_memory import RunnerMemory
from stoker.services.runner_queries import OURSELVES, QUERY_TIMEOUT_S, Answered, RunnerQueries
from stoker.units import Seconds

PING_EVERY_S: Final = Seconds(1.0)
PING_IDLE_S: Final = Seconds(2.0)  # each ping wakes four threads
SHORTEST_ETA_S: Final = Seconds(1.0)
SMALLEST_PROGRESS: Final = 0.05  # less of it tells nothing about the rest

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Callbacks:
    """What the owner of a link wants to hear."""

    ready: Callable[[], None] = lambda: None
    gone: Callable[[life.RunnerGone], None] = lambda _gone: None
    deltas: Callable[[wire.Deltas], None] = lambda _deltas: None
    beat: Callable[[wire.Beat], None] = lambda _beat: None


@dataclass(frozen=True, slots=True)
class RunnerParts:
    """What every link of a service shares."""

    launcher: RunnerLauncher
    poller: Poller
    memory: RunnerMemory
    threads: int
    plan: load_path.PlanLoad = load_path.plan_as_configured
    plan_beside: load_path.PlanLoad = load_path.plan_as_configured  # a second runner's


class RunnerLink:
    """The supervisor's hands. ``models``: whom it may load, the wanted one first."""

    def __init__(
        self,
        config: Config,
        parts: RunnerParts,
        models: tuple[ModelConfig, ...],
        callbacks: Callbacks,
    ) -> None:
        self.config, self._parts = config, parts
        self.models = {model.name: model for model in models}
        self.callbacks = callbacks
        self._process: RunnerProcess | None = None
        self._linked = False
        self._queries = RunnerQueries()
        self._serial = 0
        self._load_id = ""
        self._pinged_s = Seconds(float("-inf"))
        self._ping_every_s = PING_EVERY_S
        self.progress = 0.0
        self.hello = wire.Hello("", "", "", 0)
        self.loaded: wire.Loaded | None = None
        self.state = life.State(
            config.runner,
            config.restart,
            tuple(self.models),
            last_good=parts.memory.last_good,
        )

    @property
    def process(self) -> RunnerProcess | None:
        return self._process

    @property
    def threads(self) -> int:
        return self._parts.threads

    @property
    def asked(self) -> bool:
        """Somebody waits for an answer to a query."""
        return bool(self._queries)

    def configure(self, config: Config) -> None:
        """New restart rules; the models stay what they were at start."""
        self.state = replace(self.state, restart=config.restart)

    def inherit(self, old: RunnerLink, parts: RunnerParts) -> None:
        """Serve in the place of another link: its other models are what is left if this
        one's fails, and what it knows of them stays known.
        """
        mine, self._parts = self.models, parts
        self.models = {**mine, **{k: v for k, v in old.models.items() if k not in mine}}
        theirs = old.state
        self.state = replace(
            self.state,
            models=tuple(self.models),
            restarts=theirs.restarts + self.state.restarts,
            last_good=theirs.last_good,
            aside={name: kept for name, kept in theirs.aside.items() if name not in mine},
            crashes={name: when for name, when in theirs.crashes.items() if name not in mine},
        )

    def eta_s(self, now: Seconds) -> Seconds:
        """Estimated time until a model is ready here; 0 = it is, or nothing is known."""
        state = self.state
        if state.phase in (life.Phase.READY, life.Phase.STOPPED, life.Phase.NO_MODEL):
            return Seconds(0.0)
        model = state.model or supervisor.candidate(state, now)
        learnt = self._parts.memory.load_s(model)
        under_way = state.phase is life.Phase.LOADING
        passed = now - state.since_s if under_way else 0.0
        if not learnt and self.progress > SMALLEST_PROGRESS:
            return Seconds(passed * (1.0 - self.progress) / self.progress)
        return Seconds(max(learnt - passed, SHORTEST_ETA_S) if learnt else 0.0)

    def step(self, event: life.Event) -> None:
        """Feed the supervisor and carry out what it decides, until nothing is left."""
        pending: list[life.Event] = [event]
        while pending:
            self.state, actions = supervisor.step(self.state, pending.pop(0))
            for action in actions:
                follow = self._carry_out(action, event.now_s)
                if follow is not None:
                    pending.append(follow)

    def send(self, request: wire.Request) -> None:
        if self._process is not None and self._linked:
            self._process.send(request)
            self._watch_link()

    def query(
        self,
        make: Callable[[str], wire.Request],
        now: Seconds,
        uid: int,
        timeout_s: Seconds = QUERY_TIMEOUT_S,
        caller: str = "",
    ) -> Answered:
        """Send a query of this user (``OURSELVES`` = the agent's own); fails at once when no
        model is ready or too many wait. It ends when ``caller`` leaves the bus.
        """
        refusal: errors.StokerError | None = self._queries.refusal(uid)
        if self.state.phase is not life.Phase.READY:
            refusal = job_errors.loading(self.progress, self.eta_s(now))
        if refusal is not None:
            refused = Answered()
            refused.set_exception(refusal)
            return refused
        return self._query(make, now, uid, timeout_s, caller)

    def vanish(self, caller: str) -> None:
        """This unique name left the bus."""
        self._cancel(self._queries.vanish(caller))

    def drop_queries(self, error: errors.StokerError) -> None:
        """Those of callers end with ``error``."""
        self._cancel(self._queries.drop(error))

    def _query(
        self,
        make: Callable[[str], wire.Request],
        now: Seconds,
        uid: int,
        timeout_s: Seconds = QUERY_TIMEOUT_S,
        caller: str = "",
    ) -> Answered:
        request_id = self._next_id()
        future = self._queries.add(request_id, uid, now, timeout_s, caller)
        try:
            self.send(make(request_id))
        except errors.RequestTooLarge as error:
            self._queries.give_up(request_id, error)
        return future

    def ready(self, event: Ready, now: Seconds) -> bool:
        """True if the descriptor was ours."""
        process = self._process
        if process is None:
            return False
        if self._linked and event.fd == process.fileno():
            if event.writable:
                self._watch_link()
            if event.readable or event.hangup:
                self._receive(process, now)
            return True
        if event.fd == process.exit_fileno():
            self._reap(process, now)
            return True
        return False

    def tick(self, now: Seconds, *, idle: bool = False) -> None:
        """``idle``: nobody asks or waits, so that a slower heartbeat will do."""
        self.step(life.Tick(now))
        # five chances to be heard, however short the configured limit
        calm = min(PING_IDLE_S, max(PING_EVERY_S, self.state.runner.heartbeat_timeout_s / 5))
        self._ping_every_s = Seconds(calm) if idle else PING_EVERY_S
        if self._linked and now - self._pinged_s >= self._ping_every_s:
            self._pinged_s = now
            self._serial += 1
            self.send(wire.Ping(self._serial))
        self._cancel(self._queries.tick(now))

    def next_wake_s(self) -> Seconds:
        wake = supervisor.next_wake_s(self.state)
        return min(wake, Seconds(self._pinged_s + self._ping_every_s)) if self._linked else wake

    def _receive(self, process: RunnerProcess, now: Seconds) -> None:
        events = process.receive()
        if events is None:
            self.step(life.LinkLost(now, "runner closed its connection"))
            return
        if events:
            self.step(life.SignOfLife(now))
        for event in events:
            self._hear(event, now)

    def _reap(self, process: RunnerProcess, now: Seconds) -> None:
        how = process.exited()
        if how is None:
            return
        while self._linked:  # what it said before it died still counts
            events = process.receive()
            if not events:
                break
            for event in events:
                self._hear(event, now)
        self._unlink(process)
        self._parts.poller.unwatch(process.exit_fileno())
        process.release()
        self._process = None
        if how.unstarted and self.state.phase is life.Phase.SPAWNING:
            self.step(life.LaunchFailed(now, how.unstarted))
        else:
            self.step(life.Exited(now, how))

    def _hear(self, event: wire.Event, now: Seconds) -> None:
        match event:
            case wire.Hello():
                self.hello = event
                self.step(life.Greeted(now))
            case wire.LoadProgress(id=load, fraction=fraction) if load == self._load_id:
                self.progress = fraction
            case wire.Loaded(id=load) if load == self._load_id:
                self.loaded, self.progress = event, 1.0
                self._parts.memory.learn_load(event.model, now - self.state.since_s)
                self.step(life.LoadDone(now))
                self.callbacks.ready()
            case wire.Failed(id=load) if load == self._load_id:
                self.step(life.LoadFailed(now, event.message, event.code, event.hint))
            case wire.Failed() | wire.Answer():
                self._queries.answered(event)
            case wire.Deltas():
                self.callbacks.deltas(event)
            case wire.Beat():
                self.callbacks.beat(event)

    def _carry_out(self, action: life.Action, now: Seconds) -> life.Event | None:
        match action:
            case life.Spawn():
                return self._spawn(now)
            case life.LoadModel(model=name):
                self._load(name, now)
            case life.CloseLink():
                if self._process is not None:
                    self._unlink(self._process)
            case life.Signal(signum=signum):
                if self._process is not None:
                    self._process.signal(signum)
            case life.RunnerGone():
                self._lose(action)
            case life.RememberGood(model=name):
                self._parts.memory.remember_good(name)
            case life.Log(level=level, text=text):
                _log.log(logging.getLevelNamesMapping()[level.upper()], "%s", text)
        return None

    def _spawn(self, now: Seconds) -> life.Event | None:
        try:
            process = self._parts.launcher.start(self.config.runner.libraries)
        except errors.StokerError as error:
            return life.LaunchFailed(now, error.message)
        except OSError as error:  # no descriptor, no process: the loop must live on
            return life.LaunchFailed(now, f"cannot start runner: {error}")
        self._process, self._linked = process, True
        self._pinged_s = now
        self._watch_link()
        self._parts.poller.watch(process.exit_fileno(), readable=True)
        return None

    def _load(self, name: str, now: Seconds) -> None:
        """Inspect first; Load when the facts are there (see ``load_path``)."""
        model = self.models[name]
        load_id = self._load_id = self._next_id()
        self.progress, self.loaded = 0.0, None

        def go_on(facts: load_path.Facts) -> None:
            if self._load_id != load_id or self.state.phase is not life.Phase.LOADING:
                return
            parts = self._parts
            try:
                self.send(parts.plan(load_id, model, self.config, parts.threads, facts))
            except errors.StokerError as error:
                seen = self.state.seen_s
                self.step(life.LoadFailed(seen, error.message, error.code, error.hint))

        inspected = self._query(lambda key: wire.Inspect(key, model.path), now, OURSELVES)
        load_path.inspect_then(inspected, go_on)

    def _lose(self, action: life.RunnerGone) -> None:
        self._load_id, self.progress, self.loaded = "", 0.0, None
        self._queries.lose(action)
        self.callbacks.gone(action)

    def _unlink(self, process: RunnerProcess) -> None:
        if self._linked:
            self._linked = False
            self._parts.poller.unwatch(process.fileno())
            process.close()

    def _watch_link(self) -> None:
        process = self._process
        if process is not None and self._linked:
            waiting = not process.flush()
            self._parts.poller.watch(process.fileno(), readable=True, writable=waiting)

    def _cancel(self, queries: list[str]) -> None:
        for query in queries:
            self.send(wire.Cancel(query))

    def _next_id(self) -> str:
        self._serial += 1
        return f"q{self._serial}"
