"""The inference service as the doors see it: any thread may call, nothing blocks.

Each method only posts work to the loop's thread (``inference_loop``) and gives back
a future; listing and snapshots read what the loop last published.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import TypeVar, cast

from stoker import errors
from stoker.config.schema import Config, ModelConfig
from stoker.core import scheduler
from stoker.core.fit import Shortage
from stoker.core.token_mix import Work
from stoker.events import runner as wire
from stoker.events.inference import Ask, Delivery, ModelInfo, Owner, Standing
from stoker.events.models import Probe, SwapResult
from stoker.events.operating import Measured, Setting
from stoker.ports.doors import InferenceListener, InferenceSnapshot, JobView, QueueLine
from stoker.ports.system import Standings
from stoker.services.futures import pass_on, then
from stoker.services.inference_loop import InferenceLoop
from stoker.services.job_desk import EVERYBODY
from stoker.services.job_queue import BYTES_PER_TOKEN
from stoker.services.model_list import queue_lines
from stoker.services.model_probe import nats_per_token
from stoker.services.runner_queries import OURSELVES
from stoker.services.side_thread import SideThread
from stoker.units import Seconds

_T = TypeVar("_T")
_WORKED = (
    errors.Cancelled, errors.DeadlineExceeded, errors.EngineFailed, errors.InsufficientMemory,
    errors.Preempted,
)  # fmt: skip
"""How a question ends that the runner may have worked for."""


class InferenceService:
    """See ``ports.doors.InferenceDoor``."""

    def __init__(
        self, loop: InferenceLoop, *, ask_timeout_s: Seconds, standings: Standings | None = None
    ) -> None:
        self._loop, self._standings = loop, standings
        self._ask_timeout_s = ask_timeout_s
        self._aside = SideThread("look")
        self._holds: dict[str, str] = {}  # who holds answers back, and why
        self._thread = threading.Thread(target=loop.run, name="inference", daemon=True)

    def start(self) -> None:
        self._loop.post(lambda: self._loop.runners.start(self._loop.now_s()))
        self._thread.start()

    def stop(self, timeout_s: Seconds) -> None:
        """End every job with a typed error, stop the runner, end the thread."""
        self._loop.post(self._loop.begin_stop)
        self._thread.join(timeout_s)

    def last_turn_s(self) -> Seconds:
        """When the loop last came round: the watchdog's evidence."""
        return self._loop.last_turn_s

    def listen(self, listener: InferenceListener) -> None:
        self._loop.listeners.append(listener)

    def submit(self, ask: Ask, delivery: Delivery, owner: Owner, stream_fd: int) -> Future[JobView]:
        accepted: Future[JobView] = Future()
        standing = self._standings.of(owner.uid) if self._standings else EVERYBODY
        self._loop.post(
            lambda: self._loop.submit(ask, delivery, owner, stream_fd, accepted, standing=standing)
        )
        return accepted

    def answer(self, ask: Ask, owner: Owner) -> Future[JobView]:
        standing = self._standings.of(owner.uid) if self._standings else EVERYBODY
        return self._answer(ask, owner, standing)

    def ask_ourselves(self, ask: Ask) -> Future[JobView]:
        """The agent's own question: under no quota but the queue's."""
        return self._answer(ask, Owner("", os.getuid()), EVERYBODY)

    def _answer(self, ask: Ask, owner: Owner, standing: Standing) -> Future[JobView]:
        accepted: Future[JobView] = Future()
        ended: Future[JobView] = Future()

        def refused(future: Future[JobView]) -> None:
            error = future.exception()
            if error is not None:
                ended.set_exception(error)

        accepted.add_done_callback(refused)
        delivery = Delivery(deadline_s=self._ask_timeout_s)
        self._loop.post(
            lambda: self._loop.submit(ask, delivery, owner, -1, accepted, ended, standing)
        )
        return ended

    def cancel(self, job: str, reason: str) -> Future[bool]:
        error = errors.Cancelled(reason)
        return self._call(lambda: self._loop.desk.cancel(self._loop.desk.book.get(job), error))

    def caller_vanished(self, unique_name: str) -> None:
        self._loop.post(lambda: self._loop.vanish(unique_name))

    def job(self, job: str) -> Future[JobView]:
        return self._call(lambda: self._loop.desk.view(self._loop.desk.known(job)))

    def tokenize(self, text: str, owner: Owner) -> Future[list[int]]:
        answer: Future[Mapping[str, object]] = Future()

        def ask() -> None:
            now, uid = self._loop.now_s(), owner.uid
            found = self._loop.runners.query(
                lambda key: wire.Tokenize(key, text), now, uid, caller=owner.unique_name
            )
            self._loop.report()  # a model that sleeps is loading now: nobody shall see it asleep
            found.add_done_callback(lambda done: pass_on(done, answer))

        self._loop.post(ask)
        return then(answer, lambda found: list(cast(list[int], found["tokens"])))

    def embed(self, texts: Sequence[str], owner: Owner) -> Future[tuple[list[list[float]], int]]:
        given = tuple(texts)
        answer = self._aside_work(lambda key: wire.Embed(key, given), owner, given)
        return then(answer, lambda found: (cast(list[list[float]], found["vectors"]), _read(found)))

    def score(self, text: str, owner: Owner) -> Future[tuple[float, int]]:
        answer = self._aside_work(lambda key: wire.Score(key, text), owner, (text,))
        return then(answer, lambda found: (cast(float, found["nll"]), _read(found)))

    def _aside_work(
        self, make: Callable[[str], wire.Request], owner: Owner, texts: Sequence[str]
    ) -> Future[Mapping[str, object]]:
        """A question that the model itself must work for, beside jobs. Its tokens are charged: an
        estimate at once, so that who gives up in between pays too, set right by the answer.
        """
        ended: Future[Mapping[str, object]] = Future()
        standing = self._standings.of(owner.uid) if self._standings else EVERYBODY
        estimate = sum(map(len, texts)) // BYTES_PER_TOKEN + len(texts)

        def charge(tokens: int) -> None:
            self._loop.desk.queue.step(scheduler.Spent(owner.uid, standing.quota, tokens))

        def done(answer: Future[Mapping[str, object]]) -> None:
            error = answer.exception()
            if error is not None:
                if not isinstance(error, _WORKED):
                    charge(-estimate)
                ended.set_exception(error)
            else:
                found = answer.result()
                charge(_read(found) - estimate)
                ended.set_result(found)

        def ask() -> None:
            now, timeout_s = self._loop.now_s(), self._ask_timeout_s
            refusal = self._loop.desk.aside_refusal(owner.uid, standing)
            if refusal is not None:
                ended.set_exception(refusal)
                return
            charge(estimate)
            found = self._loop.runners.query(make, now, owner.uid, timeout_s, owner.unique_name)
            self._loop.report()
            found.add_done_callback(done)

        self._loop.post(ask)
        return ended

    def models(self) -> tuple[ModelInfo, ...]:
        return self._loop.models()

    def queue(self, seen_by: int | None) -> Future[tuple[QueueLine, ...]]:
        return self._call(lambda: queue_lines(self._loop.desk.queue.state, seen_by))

    def list_models(self) -> Future[tuple[ModelInfo, ...]]:
        return self._aside.call(self._loop.models)

    def usage(self) -> Future[InferenceSnapshot]:
        return self._aside.call(self._usage)

    def forget(self, uid: int, conversation: str) -> None:
        self._loop.post(lambda: self._loop.runners.forget(str(uid), conversation))

    def restart_runner(self) -> Future[None]:
        return self._call(lambda: self._loop.runners.restart(self._loop.now_s()))

    def select_model(self, name: str) -> Future[SwapResult]:
        return self._swap(name, None, self._loop.runners.remember_selected)

    def swap(
        self, model: str | ModelConfig, probe: Probe | None = None, config: Config | None = None
    ) -> Future[SwapResult]:
        """Make this model serve once it has shown that it can answer (``probe``; None = a short
        question), with the adapters and libraries of ``config``; the result, or the typed error
        after the old one serves again. Any thread. See ``model_swap.ModelSwap.select``.
        """
        return self._swap(model, probe, lambda _model: None, config)

    def _swap(
        self,
        model: str | ModelConfig,
        probe: Probe | None,
        serves: Callable[[str], None],
        config: Config | None = None,
    ) -> Future[SwapResult]:
        """``serves`` is called on the loop's thread with the name of the model that does."""
        ended: Future[SwapResult] = Future()

        def told(done: Future[SwapResult]) -> None:
            if done.exception() is None:
                serves(done.result().model)
            self._loop.report()  # whoever hears of the change and looks must see it
            pass_on(done, ended)

        def begin() -> None:
            try:
                swapped = self._loop.swap.select(model, probe, self._loop.now_s(), config)
            except Exception as error:  # one call's fault must not end the loop
                ended.set_exception(error)
                return
            swapped.add_done_callback(told)

        self._loop.post(begin)
        return ended

    def difference(self, model: ModelConfig, config: Config) -> Future[str]:
        """What keeps the serving runner from being this model under ``config``: see
        ``adapter_change``.
        """
        return self._call(lambda: self._loop.adapters.difference(model, config))

    def shortage(self, file_bytes: int, adapter_bytes: int) -> Future[Shortage | None]:
        return self._call(lambda: self._loop.shortage(file_bytes, adapter_bytes))

    def adapt(self, config: Config, *, keep: bool) -> Future[None]:
        """The serving runner gets the adapters of ``config``, without loading its model again."""
        return self._pass(lambda: self._loop.adapters.adapt(config, self._loop.now_s(), keep=keep))

    def surprise(self, text: str) -> Future[float]:
        """Nats a token of ``text`` by the serving model, for the agent itself."""
        ended: Future[float] = Future()

        def done(answer: Future[Mapping[str, object]]) -> None:
            error = answer.exception()
            if error is not None:
                ended.set_exception(error)
            else:
                ended.set_result(nats_per_token(answer.result()))

        def ask() -> None:
            now = self._loop.now_s()
            key_of = partial(wire.Score, text=text)
            self._loop.runners.query(key_of, now, OURSELVES, self._ask_timeout_s).add_done_callback(
                done
            )

        self._loop.post(ask)
        return ended

    def hold(self, held: bool, reason: str, who: str = "heat") -> None:
        """The thermal loop's last resort before the hardware's own, and what a fleet may ask for:
        held as long as anyone holds.
        """

        def act() -> None:
            self._holds.pop(who, None)
            if held:
                self._holds[who] = reason
            self._loop.hold(bool(self._holds), next(iter(self._holds.values()), ""))

        self._loop.post(act)

    def headroom(self, fraction: float) -> None:
        """How much heat leaves of the device, 0..1, as far as pacing must use it."""
        self._loop.post(lambda: self._loop.headroom(fraction))

    def pace(self, threads: int, threads_batch: int, duty: float) -> None:
        """Threads (0 = as configured) and the part of the time that the runner's steps take."""
        self._loop.post(lambda: self._loop.pace.want(threads, threads_batch, duty))

    def measure(self, setting: Setting, limit_s: Seconds) -> Future[Measured]:
        """How fast a phase is with so many threads, while nobody is answered; else Busy."""
        ended: Future[Measured] = Future()
        self._loop.post(lambda: self._loop.measures.begin(setting, limit_s, ended))
        return ended

    def activity(self) -> float:
        """How busy inference keeps its CPUs, 0..1."""
        now, pace = self._loop.snapshot, self._loop.pace.wanted
        return pace.duty * now.threads / max(1, now.most_threads) if now.decoding_jobs else 0.0

    def work(self) -> Work:
        """What is done now, for the thermal loop."""
        now = self._loop.snapshot
        read = now.tokens.prompt - now.tokens.cached
        return Work(now.phase, self.activity(), read, now.tokens.completion)

    def reconfigure(self, config: Config) -> None:
        """Take over what may change while running."""
        self._loop.post(lambda: self._loop.reconfigure(config))

    def snapshot(self) -> InferenceSnapshot:
        """As last published."""
        return self._loop.snapshot

    def _usage(self) -> InferenceSnapshot:
        process = self._loop.link.process
        memory = process.memory_bytes() if process is not None else 0
        return replace(self._loop.snapshot, runner_memory_bytes=memory)

    def _pass(self, work: Callable[[], Future[_T]]) -> Future[_T]:
        ended: Future[_T] = Future()

        def run() -> None:
            try:
                begun = work()
            except Exception as error:  # one call's fault must not end the loop
                ended.set_exception(error)
                return
            begun.add_done_callback(lambda done: pass_on(done, ended))

        self._loop.post(run)
        return ended

    def _call(self, work: Callable[[], _T]) -> Future[_T]:
        future: Future[_T] = Future()

        def run() -> None:
            try:
                future.set_result(work())
            except Exception as error:  # one call's fault must not end the loop
                future.set_exception(error)

        self._loop.post(run)
        return future


def _read(found: Mapping[str, object]) -> int:
    """Tokens that the runner read for it."""
    return cast(int, found["tokens"])
