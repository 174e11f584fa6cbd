"""An UpdateDoor that behaves, for tests of the door: no engine, one deployment, jobs that end."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TypeVar

from stoker.errors import InvalidRequest
from stoker.events.updates import Deployment, InstallOptions, UpdateJob, UpdateSnapshot
from stoker.ports.updates import Record, UpdateListener

T = TypeVar("T")
LISTED = (Deployment("chat", 2, "new", size_bytes=1000, wire_bytes=10),)


class FakeUpdates:
    """A folder with a file ``bad`` is refused."""

    def __init__(self) -> None:
        self.jobs: dict[str, UpdateJob] = {}
        self.inhibitors: dict[int, tuple[str, str]] = {}
        self.current_job = ""
        self._listeners: list[UpdateListener] = []
        self._snapshot = UpdateSnapshot()

    def listen(self, listener: UpdateListener) -> None:
        self._listeners.append(listener)

    def snapshot(self) -> UpdateSnapshot:
        return self._snapshot

    def deployments(self) -> Sequence[Deployment]:
        return LISTED

    def check(self) -> Future[Sequence[Deployment]]:
        return _done(LISTED)

    def inspect(self, folder_fd: int) -> Future[Sequence[Deployment]]:
        names = os.listdir(folder_fd)
        os.close(folder_fd)
        return _done((replace(LISTED[0], reason=" ".join(sorted(names))),))

    def install(self, folder_fd: int, options: InstallOptions) -> Future[UpdateJob]:
        bad = "bad" in os.listdir(folder_fd)
        os.close(folder_fd)
        if bad:
            failed: Future[UpdateJob] = Future()
            failed.set_exception(InvalidRequest("cannot install: bad"))
            return failed
        return _done(self._begin("install", options.deployment or "chat"))

    def install_listed(self, options: InstallOptions) -> Future[UpdateJob]:
        return _done(self._begin("install", options.deployment or "chat"))

    def renew_trust(self, steps: Sequence[bytes]) -> Future[int]:
        return _done(1 + len(steps))

    def rollback(self) -> Future[UpdateJob]:
        return _done(self._begin("rollback", ""))

    def confirm(self, deployment: str) -> Future[None]:
        return _done(None)

    def cancel(self, job: str) -> None:
        self.jobs[job] = replace(self.jobs[job], state="failed", error_code="cancelled")

    def job(self, job: str) -> UpdateJob | None:
        return self.jobs.get(job)

    def history(self, offset: int, limit: int) -> Future[Sequence[Record]]:
        records: list[Record] = [{"what": "committed", "version": 2}, {"what": "failed"}]
        return _done(records[offset:][:limit])

    def inhibit(self, who: str, why: str) -> int:
        self.inhibitors[len(self.inhibitors)] = (who, why)
        return len(self.inhibitors) - 1

    def release(self, number: int) -> None:
        del self.inhibitors[number]
        self._tell(replace(self._snapshot, state=f"released {number}"))

    def _begin(self, kind: str, deployment: str) -> UpdateJob:
        job = UpdateJob(str(len(self.jobs) + 1), kind, deployment, 2, phase="fetching", total=10)
        self.jobs[job.id] = job
        return job

    def _tell(self, snapshot: UpdateSnapshot) -> None:
        self._snapshot = snapshot
        for listener in self._listeners:
            listener.changed(snapshot)


def _done(value: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(value)
    return future
