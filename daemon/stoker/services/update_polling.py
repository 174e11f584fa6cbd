"""Looks at the sources by itself: when, and which of what it found is installed.

Part of the update thread; what is listed and what is refused is the service's and the engine's.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from stoker import errors
from stoker.events.updates import DONE, Deployment, UpdateJob
from stoker.units import Seconds

MOST_REASONS: Final = 4  # told of deployments that are not taken
_WHY: Final = {
    "installed": "is installed already",
    "failed": "failed here before or was left for the set before it",
    "absent": "is listed, but not in its bundle",
}
_log = logging.getLogger(__name__)
_SHARE: Final = 0.1
"""Of the interval, at random: devices that started together must not look together."""


class Polling:
    """``every_s`` 0 = never. ``automatic``: the one new deployment that a look found begins."""

    def __init__(
        self,
        every_s: Seconds,
        automatic: bool,
        now_s: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._every_s, self._automatic, self._now_s, self._draw = every_s, automatic, now_s, draw
        self._next_s = now_s() + every_s * draw()

    def due_s(self) -> float | None:
        """Until the next look; None = there is none."""
        return max(0.0, self._next_s - self._now_s()) if self._every_s else None

    def turn(
        self, look: Callable[[], Sequence[Deployment]], begin: Callable[[str], object]
    ) -> None:
        """Looks if it is time. What goes wrong is logged: the next look may do better."""
        if self.due_s() != 0.0:
            return
        self._next_s = self._now_s() + self._every_s * (1.0 + _SHARE * self._draw())
        try:
            new = [item for item in look() if item.state == "new"]
            if self._automatic and len(new) == 1:
                begin(new[0].name)
        except errors.StokerError as error:
            _log.warning("cannot look for updates: %s", error.message)
        except Exception:  # ours: it must not end the thread, in which all calls are answered
            _log.exception("fault in a look for updates")


def look(
    sources: Sequence[str], inspect: Callable[[str], Sequence[Deployment]]
) -> tuple[Deployment, ...]:
    """All that the sources list. One that fails is logged, and the others are asked all the same;
    if all do, the first one's error is raised.
    """
    found: list[Deployment] = []
    failures: list[errors.StokerError] = []
    for source in sources:
        try:
            found += [replace(item, source=source) for item in inspect(source)]
        except errors.StokerError as error:
            _log.warning("cannot look for updates at %s: %s", source, error.message)
            failures.append(error)
    if failures and len(failures) == len(sources):
        raise failures[0]
    return tuple(found)


def after(listed: Sequence[Deployment], job: UpdateJob) -> tuple[Deployment, ...]:
    """What the last look saw, as it is now that this job has ended."""
    done = job.state == DONE

    def now(item: Deployment) -> Deployment:
        if (item.name, item.version) == (job.deployment, job.version):
            return replace(item, state="installed" if done else "failed")
        if job.kind == "rollback" and done and item.state == "installed":
            return replace(item, state="failed")  # it was left: it is not taken again by itself
        return item

    return tuple(now(item) for item in listed)


def pick(listed: Sequence[Deployment], wanted: str) -> Deployment:
    """The deployment of the last look that ``wanted`` names, "" = the only new one. InvalidRequest
    says of all others why they are not taken, and what would take one.
    """
    found = [item for item in listed if item.source and (not wanted or item.name == wanted)]
    new = [item for item in found if item.state == "new"]
    if len(new) == 1:
        return new[0]
    if wanted and found:
        return found[0]  # whoever installs it says what is wrong with it
    what, hint = _instead(listed, new, wanted)
    raise errors.InvalidRequest(
        f"cannot install {wanted or 'from the sources'}: the last look found {what}", hint=hint
    )


def _instead(
    listed: Sequence[Deployment], new: Sequence[Deployment], wanted: str
) -> tuple[str, str]:
    """What there is, and what to do about it."""
    if wanted or not listed:
        names = ", ".join(sorted({item.name for item in listed})) or "nothing"
        return names, "stokerctl update check looks anew"
    if new:
        names = ", ".join(sorted({f"{item.name} {item.version}" for item in new}))
        return f"more than one: {names}", "name it: stokerctl update install --deployment NAME"
    left = next((item.name for item in listed if item.state == "failed"), "")
    hint = "stokerctl update check looks anew"
    if left:
        hint = f"stokerctl update install --deployment {left} --force tries it again"
    first = sorted(listed, key=lambda item: item.state not in ("failed", "refused"))
    why = [f"{item.name} {item.version} {_why(item)}" for item in first]
    if len(why) > MOST_REASONS:
        why[MOST_REASONS:] = [f"{len(why) - MOST_REASONS} more"]
    return f"nothing new: {'; '.join(why)}", hint


def _why(item: Deployment) -> str:
    """Why it is not taken by itself."""
    if item.state == "refused":
        return f"is refused: {item.reason}"
    return _WHY.get(item.state, f"is {item.state}")
