"""Jobs of updates: the one under way, those that ended lately, and how the last one ended.

What the engine reports becomes the job's state here. The update thread writes; others read
single values. A bundle's folder stays open as long as its job.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from stoker import errors
from stoker.core.eta import UNKNOWN_S, Pace, left_s
from stoker.events import updates as seen
from stoker.events.updates import UpdateJob, UpdateSnapshot

MAX_JOBS: Final = 8


def under_way(now: UpdateSnapshot) -> errors.StokerError:
    """Why nothing new can begin."""
    what = f"{now.deployment} {now.version}" if now.deployment else "a return"
    return errors.Busy(
        f"cannot begin: {what} is under way ({now.state})",
        hint="wait for it, or cancel it: stokerctl update cancel",
        details={"retry_after_ms": 5000},
    )


class UpdateJobs:
    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._begun = Pace(0, 0.0)
        self._wired = 0  # by fetches that are over
        self._wire = 0  # by the present one
        self.current = ""  # id of the job that is not over
        self.error = ("", "")  # code and text of the one that ended last
        self._jobs: dict[str, UpdateJob] = {}
        self._numbers = 0
        self._folder_fd = -1

    def get(self, job: str) -> UpdateJob | None:
        return self._jobs.get(job)

    @property
    def running(self) -> bool:
        """There is a job, and it does not wait."""
        job = self._jobs.get(self.current)
        return job is not None and job.state == seen.RUNNING

    def begin(self, kind: str, deployment: str, version: int, folder_fd: int = -1) -> UpdateJob:
        """The descriptor is closed with the job."""
        if self.current:
            self.end(seen.FAILED, "cancelled", "another one took its place")
        self._numbers += 1
        job = UpdateJob(str(self._numbers), kind, deployment, version)
        self._jobs[job.id] = job
        self.current, self._folder_fd = job.id, folder_fd
        self._wired = self._wire = 0
        while len(self._jobs) > MAX_JOBS:
            del self._jobs[next(iter(self._jobs))]
        return job

    def phase(self, phase: str, code: str, reason: str) -> UpdateJob | None:
        """The job, if this ended it."""
        job = self._jobs.get(self.current)
        if job is None or phase == "idle":
            return None  # what came before says how it ended
        self._jobs[job.id] = replace(
            job, phase=phase, state=seen.RUNNING, done=0, total=0, eta_s=UNKNOWN_S,
            error_code=code, error_text=reason,
        )  # fmt: skip
        if phase != "failed":
            return None
        if job.kind == "rollback" and code == "requested":
            return self.end(seen.DONE)
        return self.end(seen.FAILED, code, reason)

    def rest(self, phase: str, *, resting: bool) -> UpdateJob | None:
        """After an action, the engine being in this phase; the job, if it is over."""
        job = self._jobs.get(self.current)
        if job is None:
            return None
        if job.phase == "committed" and phase == "idle":  # it has cleaned up
            return self.end(seen.DONE)
        if resting and phase != "idle":
            text = job.error_text
            if job.phase == "testing":
                text = f"it is well, and waits for: stokerctl update confirm {job.deployment}"
            self._jobs[job.id] = replace(job, state=seen.WAITING, error_text=text)
        return None

    def progress(self, done: int, total: int) -> None:
        job, now_s = self._jobs.get(self.current), self._now_s()
        if job is None:
            return
        if job.total != total or done < job.done:  # the next thing of this phase
            self._begun = Pace(done, now_s)
        eta_s = left_s(self._begun, done, total, now_s)
        self._jobs[job.id] = replace(job, done=done, total=total, eta_s=eta_s)

    def wire(self, count: int) -> None:
        """Bytes that the present fetch has taken from the network so far."""
        if count < self._wire:  # another fetch
            self._wired, self._wire = self._wired + self._wire, 0
        self._wire = count
        job = self._jobs.get(self.current)
        if job is not None:
            self._jobs[job.id] = replace(job, wire_bytes=self._wired + count)

    def end(self, state: str, code: str = "", text: str = "") -> UpdateJob | None:
        """The job under way is over."""
        self.error = (code, text)
        job = self._jobs.get(self.current)
        self.current = ""
        self.close()
        if job is None:
            return None
        job = self._jobs[job.id] = replace(
            job, state=state, eta_s=UNKNOWN_S, error_code=code, error_text=text
        )
        return job

    def close(self) -> None:
        if self._folder_fd >= 0:
            os.close(self._folder_fd)
        self._folder_fd = -1
