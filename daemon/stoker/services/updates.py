"""The update service: a thread that lets an ``Updater`` work, and what doors may ask of it.

The engine is loaded when it is first needed, or at the start if something is installed or
under way. It decides nothing about updates; it keeps jobs, inhibitors and the last error.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Final, TypeVar

from stoker import errors
from stoker.events import updates as seen
from stoker.events.updates import Deployment, InstallOptions, UpdateJob, UpdateSnapshot
from stoker.ports.updates import Record, Reports, UpdateListener, Updater
from stoker.services.futures import failed
from stoker.services.side_thread import SideThread
from stoker.services.update_jobs import UpdateJobs, under_way
from stoker.services.update_polling import Polling, after, look, pick
from stoker.units import Seconds

_T = TypeVar("_T")
_log = logging.getLogger(__name__)
MAX_INHIBITORS: Final = 32
BEGIN_WAIT_S: Final = 2.0  # a slow disk must not keep the model from serving


class Stopping(BaseException):
    """The service ends in the middle of an action; the journal says how to go on."""


class UpdateService:
    """See ``ports.updates.UpdateDoor``. ``build`` makes the engine, in the service's thread."""

    def __init__(
        self,
        build: Callable[[Reports], Updater],
        *,
        resume: bool,
        sources: Sequence[str] = (),
        retry_s: Seconds,
        polling: Polling | None = None,
        refusal: errors.StokerError | None = None,
    ) -> None:
        """``refusal``: why there are no updates here."""
        self._polling = polling or Polling(Seconds(0.0), automatic=False)
        self._build, self._resume, self._refusal = build, resume, refusal
        self._sources, self._retry_s = tuple(sources), retry_s
        self._work: queue.Queue[Callable[[], None]] = queue.Queue()
        self._building = threading.Lock()
        self._updater: Updater | None = None
        self._aside = SideThread("updates-look")
        self._listeners: list[UpdateListener] = []
        self._snapshot = UpdateSnapshot()
        self._listed: tuple[Deployment, ...] = ()
        self._jobs = UpdateJobs()
        self._numbers = 0
        self._inhibitors: dict[int, str] = {}
        self._ill = False  # the engine is to be built anew, as after a restart
        self._cancel, self._stop, self._begun = (threading.Event() for _ in range(3))
        self._thread = threading.Thread(target=self._run, name="updates", daemon=True)

    def start(self) -> None:
        """Whoever asks first must not hear "idle" where an update is half done."""
        if self._resume and self._refusal is None:
            self._snapshot = UpdateSnapshot(seen.READING)
        self._thread.start()
        self._begun.wait(BEGIN_WAIT_S)

    def stop(self, timeout_s: Seconds) -> None:
        """Leaves the journal as it is; the next start goes on. Safe without a start."""
        self._stop.set()
        self._work.put(lambda: None)
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    # the door

    def listen(self, listener: UpdateListener) -> None:
        self._listeners.append(listener)

    def snapshot(self) -> UpdateSnapshot:
        return self._snapshot

    def deployments(self) -> Sequence[Deployment]:
        return self._listed

    def check(self) -> Future[Sequence[Deployment]]:
        busy = self._busy()
        return failed(busy) if busy is not None else self._call(self._check)

    def inspect(self, folder_fd: int) -> Future[Sequence[Deployment]]:
        def look() -> Sequence[Deployment]:
            try:
                return self._engine().inspect(f"/proc/self/fd/{folder_fd}", keep=False)
            finally:
                os.close(folder_fd)

        if self._refusal is not None:
            os.close(folder_fd)
            return failed(self._refusal)
        return self._aside.call(look)

    def install(self, folder_fd: int, options: InstallOptions) -> Future[UpdateJob]:
        def begin() -> UpdateJob:
            try:
                self._need_quiet()
                name, version = self._engine().install(f"/proc/self/fd/{folder_fd}", options)
            except BaseException:
                os.close(folder_fd)
                raise
            self._cancel.clear()
            return self._jobs.begin("install", name, version, folder_fd)

        busy = self._refusal or self._busy()
        if busy is not None:
            os.close(folder_fd)
            return failed(busy)
        return self._call(begin)

    def install_listed(self, options: InstallOptions) -> Future[UpdateJob]:
        busy = self._busy()
        return failed(busy) if busy is not None else self._call(lambda: self._begin(options))

    def _begin(self, options: InstallOptions) -> UpdateJob:
        self._need_quiet()
        item = pick(self._listed, options.deployment)
        options = replace(options, deployment=item.name)
        name, version = self._engine().install(item.source, options)
        self._cancel.clear()
        return self._jobs.begin("install", name, version)

    def renew_trust(self, steps: Sequence[bytes]) -> Future[int]:
        return self._call(lambda: self._engine().renew_trust(steps))

    def rollback(self) -> Future[UpdateJob]:
        def begin() -> UpdateJob:
            self._need_quiet()
            self._engine().rollback()
            self._cancel.clear()
            return self._jobs.begin("rollback", "", 0)

        busy = self._busy()
        return failed(busy) if busy is not None else self._call(begin)

    def confirm(self, deployment: str) -> Future[None]:
        if self._jobs.running and self._updater is not None:  # it would wait as long as that
            return failed(under_way(self._snapshot))
        return self._call(lambda: self._engine().confirm(deployment))

    def cancel(self, job: str) -> None:
        if job and job == self._jobs.current:
            self._cancel.set()
            self._work.put(lambda: None)

    def job(self, job: str) -> UpdateJob | None:
        return self._jobs.get(job)

    def history(self, offset: int, limit: int) -> Future[Sequence[Record]]:
        def read() -> Sequence[Record]:
            return tuple(reversed(self._engine().history()))[offset : offset + limit]

        return failed(self._refusal) if self._refusal else self._aside.call(read)

    def inhibit(self, who: str, why: str) -> int:
        if len(self._inhibitors) >= MAX_INHIBITORS:
            raise errors.Busy("cannot hold updates back: too many do already")
        self._numbers += 1
        self._inhibitors[self._numbers] = f"{who} holds updates back: {why}"
        return self._numbers

    def release(self, number: int) -> None:
        self._inhibitors.pop(number, None)
        self._work.put(self._look_again)

    @property
    def current_job(self) -> str:
        return self._jobs.current

    # the thread

    def _run(self) -> None:
        with contextlib.suppress(Stopping):
            if self._resume and self._refusal is None:
                self._begin_again()
            self._begun.set()
            while not self._stop.is_set():
                self._turn()
        self._jobs.close()

    def _begin_again(self) -> None:
        """What the last process left is gone on with, as a job of this one."""
        self._guard(self._recover)
        engine = self._updater
        if engine is not None and engine.phase != "idle":
            now = engine.snapshot()
            kind = "install" if now.deployment else "rollback"
            self._jobs.begin(kind, now.deployment, now.version)

    def _turn(self) -> None:
        """One action of the engine, or a wait for work."""
        engine = self._updater
        if engine is not None:
            moved = self._guard(lambda: self._move(engine))
            while not self._work.empty():
                self._work.get()()
                moved = True  # it may have given the engine something to do
            if moved:
                return
        waiting = self._ill or (engine is not None and engine.waiting)
        waits = (self._retry_s if waiting else None, self._polling.due_s())
        try:
            self._work.get(timeout=min((w for w in waits if w is not None), default=None))()
        except queue.Empty:
            if waiting:
                self._look_again()
            if self._refusal is None:
                self._polling.turn(self._check, lambda name: self._begin(InstallOptions(name)))

    def _move(self, engine: Updater) -> bool:
        if self._cancel.is_set() and engine.cancel():
            self._cancel.clear()
        moved = engine.step()
        self._publish(engine, resting=not moved)
        return moved

    def _look_again(self) -> None:
        if self._ill and self._refusal is None:
            self._guard(self._recover)
        elif self._updater is not None and self._updater.waiting:
            self._guard(self._updater.retry)

    def _recover(self) -> None:
        self._engine()
        self._ill = False

    def _guard(self, act: Callable[[], bool | None]) -> bool:
        """A disk that fails is tried again, as after a restart; a fault of ours ends updates,
        and nothing else: the model must go on serving.
        """
        try:
            return bool(act())
        except errors.StokerError as error:
            _log.error("%s; updates are tried again in %.0f s", error.message, self._retry_s)
            self._updater, self._ill = None, True
        except Exception as error:
            _log.exception("fault in the update engine")
            text = f"cannot update: the engine failed: {type(error).__name__}: {error}"
            self._refusal = errors.InternalError(text, hint="see the log; restart stokerd")
            self._updater, self._snapshot = None, UpdateSnapshot()
            self._ended(self._jobs.end(seen.FAILED, "internal", text))
        return False

    def _engine(self) -> Updater:
        with self._building:
            if self._updater is None:
                reports = Reports(
                    self._phase, self._jobs.progress, self._jobs.wire, self._inhibited,
                    self._cancelled,
                )  # fmt: skip
                made = self._build(reports)
                made.begin()
                self._updater = made
                self._work.put(lambda: None)  # whoever built it, the thread lets it work
                self._publish(made)
            return self._updater

    def _check(self) -> Sequence[Deployment]:
        if not self._sources:
            raise errors.InvalidRequest(
                "cannot check for updates: no source is configured",
                hint="set sources in [updates], or install from a folder",
            )
        self._need_quiet()
        self._listed = look(self._sources, lambda s: self._engine().inspect(s, keep=True))
        return self._listed

    def _need_quiet(self) -> None:
        if (busy := self._busy()) is not None:
            raise busy

    def _busy(self) -> errors.StokerError | None:
        """Why nothing new can begin now."""
        engine = self._updater
        if not self._jobs.current or engine is None or engine.replaceable:
            return self._refusal
        return under_way(self._snapshot)

    # what the engine tells

    def _phase(self, phase: str, code: str, reason: str) -> None:
        self._ended(self._jobs.phase(phase, code, reason))

    def _ended(self, job: UpdateJob | None) -> None:
        """What the last check saw of its deployment is told anew."""
        if job is not None and job.error_code != "cancelled":
            self._listed = after(self._listed, job)

    def _inhibited(self) -> str:
        return next(iter(tuple(self._inhibitors.values())), "")

    def _cancelled(self) -> bool:
        if self._stop.is_set():
            raise Stopping
        return self._cancel.is_set()

    def _publish(self, engine: Updater, *, resting: bool = False) -> None:
        self._ended(self._jobs.rest(engine.phase, resting=resting))
        code, text = self._jobs.error
        self._snapshot = replace(engine.snapshot(), error_code=code, error_text=text)
        for listener in self._listeners:
            listener.changed(self._snapshot)

    def _call(self, work: Callable[[], _T]) -> Future[_T]:
        future: Future[_T] = Future()

        def run() -> None:
            try:
                future.set_result(work())
            except Stopping:
                future.set_exception(errors.Unavailable("cannot update: the service is stopping"))
                raise
            except Exception as error:  # one call's fault must not end the thread
                future.set_exception(error)

        if self._refusal is not None:
            return failed(self._refusal)
        self._work.put(run)
        return future
