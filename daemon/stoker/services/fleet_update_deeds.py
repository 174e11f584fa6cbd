"""Commands that update: a bundle installed from a configured source, a set gone back to.

They follow jobs of the update service, which outlive this process: begun again after a cut
they look first at what is there already. They decide nothing about updates.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from stoker import errors
from stoker.events import updates as seen
from stoker.events.updates import Deployment, InstallOptions, UpdateJob
from stoker.getters import Table
from stoker.ports.updates import UpdateDoor
from stoker.services.fleet_outcome import ADOPTED, Outcome, SteppedDeed, ending

RETRY_S: Final = 5.0
_SETTLED: Final = ("activating", "committed", "rolling-back")
"""Phases in which nothing can be stopped any more."""
Note = Callable[[Mapping[str, object]], None]


class InstallDeed:
    """Looks into the sources, installs what is wanted, follows the job to its end."""

    def __init__(
        self, updates: UpdateDoor, args: Table, note: Note, monotonic_s: Callable[[], float]
    ) -> None:
        self._updates, self._note, self._now_s = updates, note, monotonic_s
        self._name = args.text("deployment", max_bytes=128)
        self._version = args.whole("version", 0, low=0, high=(1 << 53) - 1)
        self._force = args.flag("force", False)
        args.text("retry", "", max_bytes=64)  # another word makes another wish of the same
        args.finish()
        self._job = ""
        self._asked: Future[Any] | None = None
        self._then: Callable[[Any], Outcome | None] = self._listed
        self._again_s = 0.0
        self._canceled = False

    def poll(self) -> Outcome | None:
        if self._job:
            return self._followed()
        if self._asked is None:
            if self._canceled:
                return Outcome("canceled", errors.Cancelled.code)
            if self._now_s() < self._again_s or self._adopted():
                return None
            self._asked, self._then = self._updates.check(), self._listed
            return None
        if not self._asked.done():
            return None
        asked, self._asked = self._asked, None
        try:
            return self._then(asked.result())
        except errors.Busy:
            self._again_s = self._now_s() + RETRY_S  # somebody's update is under way: maybe ours
            return None
        except Exception as error:
            return ending(error)

    def cancel(self) -> bool:
        self._canceled = True
        if not self._job:
            return True
        job = self._updates.job(self._job)
        if job is None or job.phase in _SETTLED:
            return False
        self._updates.cancel(self._job)
        return True

    def _adopted(self) -> bool:
        """What is under way is what was asked for: a restart went on with it."""
        job = self._updates.job(self._updates.current_job)
        if job is None or not self._is_wanted(job.deployment, job.version) or job.over:
            return False
        self._job = job.id
        _adopted(self._note, job.id)
        return True

    def _listed(self, found: Sequence[Deployment]) -> Outcome | None:
        if self._canceled:
            return Outcome("canceled", errors.Cancelled.code)
        wanted = [item for item in found if self._is_wanted(item.name, item.version)]
        if not wanted:
            what = f"{self._name} {self._version or ''}".strip()
            return Outcome("refused", "not-found", f"no source has {what}")
        best = max(wanted, key=lambda item: item.version)
        if best.state == "installed" and not self._force:
            return self._done(best.name, best.version)
        if best.state in ("refused", "absent"):
            return Outcome("refused", best.code or "not-found", best.reason or "not in the bundle")
        if best.state == "failed" and not self._force:
            return Outcome("refused", "unhealthy", "it failed here before")
        self._version = best.version
        options = InstallOptions(best.name, forced=self._force)
        self._note({"version": best.version})
        self._asked = self._updates.install_listed(options)
        self._then = self._begun
        return None

    def _begun(self, job: UpdateJob) -> Outcome | None:
        self._job = job.id
        if self._canceled:  # between asking and hearing: it would go on without us
            self._updates.cancel(job.id)
        return None

    def _followed(self) -> Outcome | None:
        job = self._updates.job(self._job)
        if job is None:
            self._job = ""  # forgotten: what the sources list now says how it ended
            return None
        if not job.over:
            return None
        if job.state == seen.DONE:
            return self._done(job.deployment, job.version)
        what = "canceled" if job.error_code == errors.Cancelled.code else "broken"
        return Outcome(what, job.error_code, job.error_text)

    def _is_wanted(self, name: str, version: int) -> bool:
        return name == self._name and self._version in (0, version)

    def _done(self, name: str, version: int) -> Outcome:
        return Outcome("done", data={"deployment": name, "version": version})


class RollbackDeed(SteppedDeed):
    """``note`` keeps which set it began from: a second return would undo the first."""

    def __init__(self, updates: UpdateDoor, notes: Mapping[str, object], note: Note) -> None:
        self._updates, self._note = updates, note
        self._before = notes.get("before")
        self._job = ""
        self._woken: Future[Any] | None = updates.history(0, 1)  # so that the engine is there
        self._asked: Future[UpdateJob] | None = None

    def _step(self) -> Outcome | None:
        if self._woken is not None:
            if not self._woken.done():
                return None
            self._woken.result()
            self._woken = None
        now = self._updates.snapshot()
        if self._job:
            job = self._updates.job(self._job)
            if job is not None and not job.over:
                return None
            if job is not None and job.state == seen.FAILED:
                return Outcome("broken", job.error_code, job.error_text)
            return Outcome("done", data={"current": now.current})
        if self._asked is not None:
            if self._asked.done():
                self._job = self._asked.result().id
            return None
        current = self._updates.job(self._updates.current_job)
        if self._before is not None and current is not None and current.kind == "rollback":
            self._job = current.id
            _adopted(self._note, current.id)
        elif self._before is not None and now.current != self._before:
            return Outcome("done", data={"current": now.current})
        else:
            self._note({"before": now.current})
            self._before = now.current
            self._asked = self._updates.rollback()
        return None


def _adopted(note: Note, job: str) -> None:
    """It goes on whether that can be written or not."""
    with contextlib.suppress(errors.StorageFailed):
        note({ADOPTED: job})
