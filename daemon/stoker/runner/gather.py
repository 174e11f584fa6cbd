"""Puts the tokens of quick steps into one frame, so that readers wake less often. Pure.

Every frame wakes the agent and its clients, which take a core from the next step: at 150
tokens a second that cost 6 % of them. A first word, an end and an error never wait, and
a step that takes longer than ``every_s`` is never held back: slow boards see no change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from stoker.events.runner import Delta

EVERY_S: Final = 0.03  # nobody reads faster; a film has 24 pictures a second


class Gather:
    """Deltas that wait to be sent, merged job by job in their order."""

    def __init__(self, every_s: float = EVERY_S) -> None:
        self._every_s = every_s
        self._sent_s = float("-inf")
        self._waiting: list[Delta] = []
        self._last: dict[str, int] = {}  # job -> where its newest delta waits
        self._begun: set[str] = set()  # jobs whose first output has left

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)

    def add(self, items: Sequence[Delta], now_s: float) -> tuple[Delta, ...]:
        """What is to be sent now; () = it may wait."""
        urgent = now_s - self._sent_s >= self._every_s
        for item in items:
            urgent = self._add(item) or urgent
        return self.take(now_s) if urgent else ()

    def take(self, now_s: float) -> tuple[Delta, ...]:
        """All that waits."""
        out = tuple(self._waiting)
        if out:
            self._sent_s = now_s
            self._waiting.clear()
            self._last.clear()
        return out

    def _add(self, item: Delta) -> bool:
        """True when it must not wait."""
        at = self._last.get(item.job)
        before = self._waiting[at] if at is not None else None
        if before is None or at is None or not _fits(before, item):
            self._last[item.job] = len(self._waiting)
            self._waiting.append(item)
        else:
            self._waiting[at] = joined(before, item)
        if item.done is not None or item.error is not None:
            self._begun.discard(item.job)
            return True
        first = item.says and item.job not in self._begun
        if first:
            self._begun.add(item.job)
        return first or item.p is not None


def _fits(before: Delta, item: Delta) -> bool:
    """Inside one delta progress comes first, then reasoning, text, calls and the end."""
    over = before.done is not None or before.error is not None
    late = (before.t and item.r) or (before.tools and (item.t or item.r))
    return item.p is None and not over and not late


def joined(before: Delta, item: Delta) -> Delta:
    """Both as one: ``item`` came next."""
    whole = replace(
        before,
        t=before.t + item.t,
        r=before.r + item.r,
        done=item.done,
        error=item.error,
        n=before.n + item.n,
        e=before.e + item.e,
    )
    if item.tools or item.lp is not None:
        content = [*_content(before), *_content(item)]
        whole = replace(
            whole, tools=before.tools + item.tools, lp={"content": content} if content else None
        )
    return whole


def _content(item: Delta) -> Sequence[object]:
    found = item.lp.get("content") if item.lp is not None else None
    return found if isinstance(found, list) else ()
