"""The step loop: requests in, one batch, samples out, over and over. One thread.

Cancel, Pause and SetThreads take effect between steps; a Cancel of every job in the
running step ends it early. One job's trouble never ends another job.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, assert_never

from stoker.errors import Busy, InternalError, StokerError
from stoker.events.runner import (
    Adapt,
    Answer,
    ApplyTemplate,
    Beat,
    Cancel,
    Delta,
    Deltas,
    Embed,
    Forget,
    Generate,
    Hello,
    Inspect,
    Load,
    Loaded,
    LoadProgress,
    Measure,
    Pause,
    Ping,
    Resize,
    Resume,
    Score,
    SetThreads,
    Stats,
    Tokenize,
    Unload,
)
from stoker.runner.cache import SequenceCache
from stoker.runner.channel import Broken, Channel, ChannelLostError, Closed, Letter, Rejected
from stoker.runner.desk import Desk, failed, need
from stoker.runner.engine import Engine, Facts
from stoker.runner.gather import EVERY_S, Gather
from stoker.runner.pacing import Pacing
from stoker.runner.steps import Steps

BEAT_EVERY_S: Final = 1.0
BEAT_IDLE_S: Final = 2.5  # beyond the agent's pings, which are answered: they set the pace then
PING_LIMIT_S: Final = 5.0
LETTERS_LIMIT_S: Final = 0.02
PROGRESS_EVERY_S: Final = 0.05
ASIDE_REST: Final = 3.0  # times as long as a chunk of a score or a vector took
FETCH_LOOK_S: Final = 0.01  # between looks whether a saved state is there
SETTLE_S: Final = 1.5  # for saving conversations before the context goes
EXIT_OK: Final = 0
EXIT_WRITE: Final = 74  # EX_IOERR: the agent does not read
EXIT_PROTOCOL: Final = 76  # EX_PROTOCOL: a broken frame

Clock = Callable[[], float]


class Loop:
    """``connect`` makes the channel; its reader's thread calls ``note`` only."""

    def __init__(
        self,
        engine: Engine,
        connect: Callable[[Callable[[Letter], None]], Channel],
        *,
        pings: bool = True,
        clock: Clock = time.monotonic,
        scratch: Path | None = None,
        placed: Callable[[int], Mapping[str, Any]] = lambda _threads: {},
        frame_s: float = EVERY_S,
    ) -> None:
        """``placed`` places the threads that a load has started; fields of Loaded."""
        self._engine = engine
        self._clock = clock
        self._placed = placed
        self._pings = pings
        self._last_ping = (0, clock())
        self._beat_s = 0.0
        self._aside_s = 0.0  # no chunk of a long question before, while jobs go on
        self._pacing = Pacing()
        self._closed = False
        self._exit: int | None = None
        self._channel = connect(self._note)
        self._gather = Gather(frame_s)
        cache = SequenceCache(engine, clock, scratch)
        self._steps = Steps(engine, self._deltas, clock, cache)
        self._desk = Desk(
            engine,
            self._channel.send,
            self._counters,
            make_room=cache.make_room,
            forget=self._steps.forget,
            occupied=lambda: bool(self._steps.busy or self._steps.active or self._steps.waiting),
            pace=self._pacing.set,
        )
        self._loaded: Load | None = None

    def start(self, on_stuck: Callable[[], None] | None = None) -> None:
        """Begins to read; ``on_stuck`` is for an agent that went while a step never ends."""
        self._channel.start(on_stuck)

    def run(self) -> int:
        """Serves until the agent goes; the exit status of the process."""
        status = self._serve()
        self._steps.cache.close(self._clock() + SETTLE_S)
        return status

    def _serve(self) -> int:
        try:
            who = self._engine.identity()
            self._channel.send(Hello(who.name, who.library, who.system, os.getpid()))
            while self._exit is None:
                self._turn()
        except ChannelLostError as error:
            return EXIT_WRITE if error.full else EXIT_OK
        return self._exit

    def _turn(self) -> None:
        now_s = self._clock()
        if now_s - self._beat_s >= BEAT_EVERY_S:
            self._beat(now_s)
        # without a ping the agent may be stopped; tokens for nobody are wasted heat
        may_work = not self._pings or now_s - self._last_ping[1] < PING_LIMIT_S
        rest_s = self._pacing.rest_s(now_s)
        may_work = may_work and not rest_s
        idle = not (may_work and (self._steps.busy or self._desk.busy))
        if self._gather.waiting and (idle or not self._steps.steady):
            self._send(self._gather.take(now_s))  # before a pause or a long step
        fetching = self._steps.fetching and not self._desk.busy
        rested = idle and not rest_s and self._steps.cache.rest()
        if rested:
            idle = False  # there may be more to save: look for letters, but do not wait
        wait_s = self._beat_s + BEAT_IDLE_S - now_s
        wait_s = max(min(wait_s, rest_s or wait_s), 0.001) if idle else 0.0
        self._read(FETCH_LOOK_S if fetching and not idle else wait_s)
        if may_work and self._exit is None:
            began_s = self._clock()
            self._steps.work()
            self._pacing.worked(began_s, self._clock())
            if self._desk.busy:
                self._work_aside()

    def _work_aside(self) -> None:
        """A chunk of a score or a vector: a quarter of the time while answers are made."""
        began_s = self._clock()
        if self._steps.busy and not self._steps.fetching and began_s < self._aside_s:
            return
        self._desk.work()
        now_s = self._clock()
        self._aside_s = now_s + ASIDE_REST * (now_s - began_s)

    def _note(self, letter: Letter) -> None:
        """In the reader's thread: what cannot wait for the end of the step."""
        if isinstance(letter, Ping):
            self._last_ping = (letter.seq, self._clock())
        elif isinstance(letter, Cancel):
            self._steps.doom(letter.job)
        elif isinstance(letter, Closed | Broken):
            self._closed = True
            self._engine.raise_abort()

    def _read(self, wait_s: float) -> None:
        """Takes the letters there are; waits for the first one when there is no other work.

        A megabyte to tokenize takes as long as many steps: jobs and beats come in between.
        """
        letter = self._channel.next(wait_s)
        until_s = self._clock() + LETTERS_LIMIT_S
        while letter is not None:
            self._handle(letter)
            if self._exit is not None or self._clock() >= until_s:
                return
            letter = self._channel.next(0.0)

    def _handle(self, letter: Letter) -> None:
        match letter:
            case Ping():
                self._pinged(self._clock())
            case Generate():
                self._steps.accept(letter)
            case Cancel():
                self._steps.cancel(letter.job)
                self._desk.cancel(letter.job)
            case Pause() | Resume():
                self._steps.pause(letter.job, paused=isinstance(letter, Pause))
            case Load():
                self._load(letter)
            case Unload():
                self._unload(letter)
            case Resize():
                self._resize(letter)
            case (
                Tokenize()
                | ApplyTemplate()
                | Stats()
                | SetThreads()
                | Measure()
                | Score()
                | Embed()
                | Inspect()
                | Forget()
                | Adapt()
            ):
                self._desk.handle(letter)
            case Rejected():
                self._reject(letter)
            case Closed():
                self._exit = EXIT_OK
            case Broken():
                self._exit = EXIT_PROTOCOL
            case _:
                assert_never(letter)

    def _pinged(self, now_s: float) -> None:
        """An idle runner's beat is its answer to the agent's ping."""
        if now_s - self._beat_s >= BEAT_EVERY_S / 2:
            self._beat(now_s)

    def _reject(self, letter: Rejected) -> None:
        if letter.job:
            self._deltas([Delta(letter.job, error=letter.error.record())])
        else:
            self._channel.send(failed(letter.query, letter.error))

    def _load(self, request: Load) -> None:
        started_s = self._clock()
        try:
            facts = self._load_engine(request)
        except StokerError as error:
            self._channel.send(failed(request.id, error))
            return
        self._channel.send(
            Loaded(
                id=request.id,
                model=request.model,
                description=facts.description,
                parameters=facts.parameters,
                size_bytes=facts.size_bytes,
                context_tokens=facts.context_tokens,
                train_context_tokens=facts.train_context_tokens,
                vocabulary=facts.vocabulary,
                slots=facts.slots,
                load_ms=round((self._clock() - started_s) * 1e3, 3),
                kv_bytes=facts.kv_bytes,
                fingerprint=facts.fingerprint,
                saved=self._saved(),
                **self._placed(max(request.threads, request.threads_batch)),
            )
        )

    def _load_engine(self, request: Load) -> Facts:
        if self._steps.busy or self._desk.busy:
            raise Busy(f"cannot load model {request.path}: jobs are running")
        self._steps.cache.settle(self._clock() + SETTLE_S)
        self._steps.leave()
        sent_s = 0.0

        def progress(fraction: float) -> bool:
            nonlocal sent_s
            now_s = self._clock()
            if now_s - sent_s >= PROGRESS_EVERY_S or fraction >= 1.0:
                sent_s = now_s
                self._channel.send(LoadProgress(request.id, round(fraction, 4)))
            if now_s - self._beat_s >= BEAT_EVERY_S:
                self._beat(now_s)
            return not self._closed

        facts = self._engine.load(request, _safely(progress))
        self._engine.clear_abort()
        self._steps.begin(request, facts)
        self._loaded = request
        return facts

    def _saved(self) -> Mapping[str, object]:
        """Conversations by their scope: the agent says which of them are gone."""
        out: dict[str, list[str]] = {}
        for scope, keep in self._steps.cache.owners():
            out.setdefault(scope, []).append(keep)
        return out

    def _resize(self, request: Resize) -> None:
        try:
            if self._loaded is None:
                need(self._engine)
            if self._steps.busy or self._steps.active or self._desk.busy:
                raise Busy("cannot resize the context: jobs are running")
            self._steps.cache.settle(self._clock() + SETTLE_S, request.cells)
            self._steps.leave()
            try:
                facts = self._engine.resize(request)
            except StokerError:
                self._go_on()
                raise
        except StokerError as error:
            self._channel.send(failed(request.id, error))
            return
        self._go_on()
        result = {"slots": facts.slots, "context_tokens": facts.context_tokens}
        self._channel.send(Answer(request.id, {**result, "kv_bytes": facts.kv_bytes}))

    def _go_on(self) -> None:
        """With the context there is now, which may be none."""
        facts = self._engine.facts()
        if facts is not None and self._loaded is not None:
            self._steps.begin(self._loaded, facts)

    def _unload(self, request: Unload) -> None:
        self._steps.drop_all()
        self._desk.drop()
        self._steps.cache.settle(self._clock() + SETTLE_S)
        self._steps.leave()
        self._engine.unload()
        self._channel.send(Answer(request.id, {}))

    def _beat(self, now_s: float) -> None:
        self._beat_s = now_s
        steps = self._steps
        counts = (steps.count, steps.active, steps.waiting, steps.sampled)
        self._channel.send(Beat(self._last_ping[0], *counts))

    def _deltas(self, items: list[Delta]) -> None:
        self._send(self._gather.add(items, self._clock()))

    def _send(self, items: tuple[Delta, ...]) -> None:
        if items:
            self._channel.send(Deltas(items))

    def _counters(self) -> Mapping[str, object]:
        return self._steps.counters()


def _safely(progress: Callable[[float], bool]) -> Callable[[float], bool]:
    """No exception may pass through C: a lost channel stops the load instead."""

    def guarded(fraction: float) -> bool:
        try:
            return progress(fraction)
        except (ChannelLostError, InternalError):
            return False

    return guarded
