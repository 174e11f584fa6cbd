"""One runner at a time: carries out the supervisor's actions and hears its events.

Owned by the inference service's thread. Job output and losses go to the callbacks;
queries (tokenize, …) are answered here, each with a deadline.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace

from stoker import errors
from stoker.config.schema import Config, ModelConfig
from stoker.core import runner_life as life
from stoker.core import supervisor
from stoker.events import runner as wire
from stoker.events.inference import Ask
from stoker.ports.runner import RunnerLauncher, RunnerProcess
from stoker.ports.streams import Poller, Ready
from stoker.ports.system import StateFile
from stoker.services import job_errors
from stoker.units import Seconds

PING_EVERY_S = Seconds(1.0)
PING_IDLE_S = Seconds(2.0)  # each ping wakes four threads
QUERY_TIMEOUT_S = Seconds(30.0)
MAX_QUERIES = 8  # each may carry a megabyte, and the runner answers one at a time

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Callbacks:
    """What the inference service wants to hear."""

    ready: Callable[[], None]
    gone: Callable[[life.RunnerGone], None]
    deltas: Callable[[wire.Deltas], None]


@dataclass(slots=True)
class _Query:
    future: Future[Mapping[str, object]]
    deadline_s: Seconds


class RunnerLink:
    """The supervisor's hands."""

    def __init__(
        self,
        config: Config,
        launcher: RunnerLauncher,
        poller: Poller,
        memory: StateFile,
        threads: int,
        callbacks: Callbacks,
    ) -> None:
        self._config = config
        self._launcher = launcher
        self._poller = poller
        self._memory = memory
        self._threads = threads
        self._callbacks = callbacks
        self._process: RunnerProcess | None = None
        self._linked = False
        self._queries: dict[str, _Query] = {}
        self._serial = 0
        self._load_id = ""
        self._pinged_s = Seconds(float("-inf"))
        self._ping_every_s = PING_EVERY_S
        self.progress = 0.0
        self.hello = wire.Hello("", "", "", 0)
        self.loaded: wire.Loaded | None = None
        good = memory.load().get("last_good", "")
        names = _wanted_first(config)
        self.state = life.State(
            config.runner, config.restart, names, last_good=good if isinstance(good, str) else ""
        )

    @property
    def process(self) -> RunnerProcess | None:
        return self._process

    @property
    def threads(self) -> int:
        return self._threads

    def configure(self, config: Config) -> None:
        """New restart rules; the models stay what they were at start."""
        self.state = replace(self.state, restart=config.restart)

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
        self, make: Callable[[str], wire.Request], now: Seconds
    ) -> Future[Mapping[str, object]]:
        """Send a query; fails at once when no model is ready or too many wait."""
        future: Future[Mapping[str, object]] = Future()
        if self.state.phase is not life.Phase.READY:
            future.set_exception(self.unready())
            return future
        if len(self._queries) >= MAX_QUERIES:
            future.set_exception(job_errors.too_many_queries())
            return future
        request_id = self._next_id()
        self._queries[request_id] = _Query(future, Seconds(now + QUERY_TIMEOUT_S))
        self.send(make(request_id))
        return future

    def unready(self) -> errors.StokerError:
        """Why nothing can be answered now, typed."""
        phase = self.state.phase
        if phase is life.Phase.NO_MODEL:
            hint = "see 'stokerctl models'; configure one in stoker.toml or with --model"
            return errors.ModelUnavailable(f"cannot answer: {self.state.reason}", hint=hint)
        if phase is life.Phase.STOPPED:
            return errors.Unavailable("cannot answer: the service is stopping")
        details = {"progress": round(self.progress, 3)}
        return errors.ModelLoading("cannot answer: the model is loading", details=details)

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
        for request_id, query in list(self._queries.items()):
            if now >= query.deadline_s:
                del self._queries[request_id]
                query.future.set_exception(
                    errors.DeadlineExceeded("cannot answer query: the runner took too long")
                )

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
        self._poller.unwatch(process.exit_fileno())
        process.release()
        self._process = None
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
                self.step(life.LoadDone(now))
                self._callbacks.ready()
            case wire.Failed(id=load) if load == self._load_id:
                self.step(life.LoadFailed(now, event.message))
            case wire.Failed() | wire.Answer():
                self._answer(event)
            case wire.Deltas():
                self._callbacks.deltas(event)

    def _answer(self, event: wire.Failed | wire.Answer) -> None:
        query = self._queries.pop(event.id, None)
        if query is None:
            return
        if isinstance(event, wire.Answer):
            query.future.set_result(event.result)
        else:
            query.future.set_exception(
                job_errors.typed(event.code, event.message, event.hint, event.details)
            )

    def _carry_out(self, action: life.Action, now: Seconds) -> life.Event | None:
        match action:
            case life.Spawn():
                return self._spawn(now)
            case life.LoadModel(model=name):
                self._load(name)
            case life.CloseLink():
                if self._process is not None:
                    self._unlink(self._process)
            case life.Signal(signum=signum):
                if self._process is not None:
                    self._process.signal(signum)
            case life.RunnerGone():
                self._lose(action)
            case life.RememberGood(model=name):
                self._remember(name)
            case life.Log(level=level, text=text):
                _log.log(logging.getLevelNamesMapping()[level.upper()], "%s", text)
        return None

    def _spawn(self, now: Seconds) -> life.Event | None:
        try:
            process = self._launcher.start()
        except errors.StokerError as error:
            return life.LaunchFailed(now, error.message)
        except OSError as error:  # no descriptor, no process: the loop must live on
            return life.LaunchFailed(now, f"cannot start runner: {error}")
        self._process, self._linked = process, True
        self._pinged_s = now
        self._watch_link()
        self._poller.watch(process.exit_fileno(), readable=True)
        return None

    def _load(self, name: str) -> None:
        model = next(model for model in self._config.models if model.name == name)
        self._load_id, self.progress, self.loaded = self._next_id(), 0.0, None
        self.send(load_request(self._load_id, model, self._config, self._threads))

    def _remember(self, name: str) -> None:
        try:
            self._memory.save({"last_good": name})
        except errors.StokerError as error:  # a full disk must not stop answering
            _log.warning("%s", error.message)

    def _lose(self, action: life.RunnerGone) -> None:
        self.progress, self.loaded = 0.0, None
        failure = job_errors.query_lost(action)
        for query in self._queries.values():
            query.future.set_exception(failure)
        self._queries.clear()
        self._callbacks.gone(action)

    def _unlink(self, process: RunnerProcess) -> None:
        if self._linked:
            self._linked = False
            self._poller.unwatch(process.fileno())
            process.close()

    def _watch_link(self) -> None:
        process = self._process
        if process is not None and self._linked:
            waiting = not process.flush()
            self._poller.watch(process.fileno(), readable=True, writable=waiting)

    def _next_id(self) -> str:
        self._serial += 1
        return f"q{self._serial}"


def load_request(load_id: str, model: ModelConfig, config: Config, threads: int) -> wire.Load:
    """Load as the model's and the runner's settings say."""
    runner = config.runner
    return wire.Load(
        id=load_id,
        model=model.name,
        path=model.path,
        context_tokens=model.context_tokens,
        slots=runner.slots + runner.parked_slots,
        threads=threads,
        threads_batch=runner.threads_batch or threads,
        batch_tokens=runner.batch_tokens,
        prefill_target_ms=runner.prefill_target_ms,
        mmap=model.mmap,
        mlock=model.mlock,
        kv_type=model.kv_type,
        flash_attention=model.flash_attention,
        gpu_layers=model.gpu_layers,
    )


def generate_request(job: str, ask: Ask, max_tokens: int) -> wire.Generate:
    """A caller's question in the runner's words."""
    return wire.Generate(
        job=job,
        prompt=ask.prompt,
        messages=ask.messages,
        raw=ask.raw,
        max_tokens=max_tokens,
        stop=ask.stop,
        sampling=ask.sampling,
        reasoning=ask.reasoning,
    )


def _wanted_first(config: Config) -> tuple[str, ...]:
    names = sorted(model.name for model in config.models)
    wanted = config.default_model or (names[0] if names else "")
    return tuple(sorted(names, key=lambda name: name != wanted))
