"""The session service: one thread that alone touches the store, a queue, futures.

Neither the bus nor the inference loop ever waits for a disk here. It is no part of the
watchdog: a disk that hangs must not take inference away.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TypeVar

from stoker import errors
from stoker.config.schema import Config
from stoker.events.inference import Ask, Delivery, Owner
from stoker.events.sessions import Session, Settings, Turn
from stoker.ports.doors import InferenceDoor, InferenceListener, JobView
from stoker.ports.sessions import SessionStore
from stoker.ports.system import Authority, Clock
from stoker.services.session_desk import SessionDesk
from stoker.units import Seconds

_T = TypeVar("_T")
_log = logging.getLogger(__name__)
REST_AFTER_S = Seconds(1.0)  # quiet for so long: time for the log
SWEEP_S = Seconds(60.0)


class SessionService:
    """See ``ports.sessions.SessionDoor``."""

    def __init__(
        self,
        config: Config,
        *,
        store: SessionStore,
        inference: InferenceDoor,
        authority: Authority,
        clock: Clock,
        wall_s: Callable[[], float],
        new_id: Callable[[], str],
        asleep_s: Callable[[], Seconds] = lambda: Seconds(0.0),
    ) -> None:
        """``asleep_s``: how long the device has slept since it booted, which ``clock`` omits."""
        self._store, self._inference = store, inference
        self._clock, self._wall_s, self._asleep_s = clock, wall_s, asleep_s
        self._listeners: list[Callable[[str], None]] = []
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._desk = SessionDesk(
            config,
            store=store,
            inference=inference,
            authority=authority,
            wall_s=wall_s,
            new_id=new_id,
            forgotten=self._forgotten,
            post=self._work.put,
        )
        self._thread = threading.Thread(target=self._run, name="sessions", daemon=True)
        self._stopping = False
        self._sweep_at_s = clock.monotonic_s()
        inference.listen(
            InferenceListener(job_finished=self._job_finished, saved=self._states_saved)
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: Seconds) -> None:
        """After inference: what it ended is written, then the file is closed."""

        def last() -> None:
            self._stopping = True

        self._work.put(last)
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def reconfigure(self, config: Config) -> None:
        """Take over new limits; any thread."""
        self._work.put(lambda: self._desk.configure(config))

    def listen(self, forgotten: Callable[[str], None]) -> None:
        self._listeners.append(forgotten)

    def create(self, owner: Owner, settings: Settings) -> Future[Session]:
        return self._call(lambda: self._desk.create(owner, settings))

    def sessions(self, owner: Owner) -> Future[tuple[Session, ...]]:
        return self._call(lambda: self._desk.sessions(owner))

    def get(self, session: str, owner: Owner) -> Future[Session]:
        return self._call(lambda: self._desk.get(session, owner))

    def find(self, session: str, owner: Owner) -> Future[Session]:
        return self._call(lambda: self._desk.find(session, owner))

    def configure(
        self, session: str, owner: Owner, change: Callable[[Settings], Settings]
    ) -> Future[Session]:
        return self._call(lambda: self._desk.change(session, owner, change))

    def turns(
        self, session: str, owner: Owner, offset: int, limit: int
    ) -> Future[tuple[Turn, ...]]:
        return self._call(lambda: self._desk.turns(session, owner, offset, limit))

    def fork(self, session: str, owner: Owner) -> Future[Session]:
        return self._call(lambda: self._desk.fork(session, owner))

    def close(self, session: str, owner: Owner) -> Future[None]:
        return self._call(lambda: self._desk.close(session, owner))

    def export(self, session: str, owner: Owner) -> Future[str]:
        return self._call(lambda: self._desk.export(session, owner))

    def delete(self, session: str, owner: Owner) -> Future[None]:
        return self._call(lambda: self._desk.delete(session, owner))

    def append(
        self, session: str, owner: Owner, ask: Ask, delivery: Delivery, stream_fd: int
    ) -> Future[JobView]:
        answer: Future[JobView] = Future()

        def begin() -> None:
            try:
                self._desk.open()
            except BaseException:
                self._desk.refuse(stream_fd)
                raise
            number, accepted = self._desk.append(session, owner, ask, delivery, stream_fd)
            accepted.add_done_callback(
                lambda done: self._work.put(lambda: self._accepted(session, number, done, answer))
            )

        self._work.put(lambda: self._guard(begin, answer))
        return answer

    def turn(self, patience_s: Seconds) -> bool:
        """One piece of work, or a rest when none comes; False after ``stop``."""
        busy = True
        try:
            self._work.get(timeout=patience_s)()
        except queue.Empty:
            busy = False
        except Exception:  # a fault in one turn must not end everybody's sessions
            _log.exception("fault in the session service")
        self._keep_quietly(busy=busy)
        return not self._stopping

    def _run(self) -> None:
        self._keep_quietly(busy=False)
        while self.turn(REST_AFTER_S if self._store.log_bytes() else SWEEP_S):
            pass
        self._store.close()

    def _keep_quietly(self, *, busy: bool) -> None:
        try:
            self._keep(busy)
        except errors.StokerError as error:
            _log.warning("%s", error.message)

    def _keep(self, busy: bool) -> None:
        now = self._clock.monotonic_s()
        if busy:
            self._desk.keeping.work_on()
        else:
            self._desk.keeping.rest()
        if now >= self._sweep_at_s:
            self._sweep_at_s = Seconds(now + SWEEP_S)
            self._desk.open()
            self._desk.keeping.follow_clock(self._wall_s(), now + self._asleep_s())
            self._desk.turns_now.save_held()
            self._desk.keeping.expire(self._wall_s())
            self._desk.keeping.make_room()

    def _accepted(
        self, session: str, number: int, done: Future[JobView], answer: Future[JobView]
    ) -> None:
        error = done.exception()
        turns = self._desk.turns_now
        if error is not None:
            try:
                turns.refused(session, number)
            except errors.StokerError as trouble:
                _log.error("%s", trouble.message)
            answer.set_exception(error)
            return
        view = done.result()
        if not turns.accepted(session, number, view):
            self._inference.cancel(view.id, "its session was deleted")
        answer.set_result(view)

    def _job_finished(self, view: JobView) -> None:
        """Inference's thread: only hand over, and only if one of ours may be meant."""
        if self._desk.turns_now or self._desk.summaries:
            self._work.put(lambda: self._ended(view))

    def _states_saved(self, saved: Mapping[str, object]) -> None:
        """Inference's thread. It also mends what a Forget without a runner could not do."""

        def look() -> None:
            self._desk.open()
            self._desk.forget_strangers(saved)

        self._work.put(lambda: self._guard(look, Future()))

    def _ended(self, view: JobView) -> None:
        session = self._desk.turns_now.ended(view)
        self._desk.summaries.ended(view)
        if session:
            self._guard(lambda: self._desk.keeping.make_room(protect=session), Future())
        if session and not view.error_code:
            self._guard(lambda: self._desk.summaries.begin(session), Future())

    def _forgotten(self, session: str) -> None:
        for listener in self._listeners:
            listener(session)

    def _call(self, work: Callable[[], _T]) -> Future[_T]:
        future: Future[_T] = Future()

        def run() -> None:
            self._desk.open()
            future.set_result(work())

        self._work.put(lambda: self._guard(run, future))
        return future

    def _guard(self, work: Callable[[], None], future: Future[_T]) -> None:
        try:
            if self._stopping:
                raise errors.Unavailable("cannot use sessions: the service is stopping")
            work()
        except Exception as error:  # whatever it is, the caller gets it and the thread lives
            if not isinstance(error, errors.StokerError):
                _log.exception("fault in the session service")
            if not future.done():
                future.set_exception(error)
