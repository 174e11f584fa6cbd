"""Start-time fair queueing by user, one lane a class: who had how much, who is next.

After Goyal, Vin and Cheng, "Start-time Fair Queueing" (1996), and for several servers
Jin, Chase and Kaur, SFQ(D) (2004): a user's start tag is its cost so far; the lane's
virtual time is the start tag last served. Here cost is charged as tokens come, and jobs
under way hold a reservation for the rest. Pure; knows users and costs, no jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Lane:
    """``tags``: cost had by each user who is busy, or was and is still ahead."""

    virtual: float = 0.0
    tags: Mapping[int, float] = field(default_factory=dict)

    def tag(self, uid: int) -> float:
        """Who comes new starts where the lane is: no credit for time away."""
        return self.tags.get(uid, self.virtual)

    def enter(self, uids: Set[int]) -> Lane:
        """These have work here from now on; their tag stands still until they are served."""
        new = uids - self.tags.keys()
        if not new:
            return self
        return replace(self, tags={**self.tags, **dict.fromkeys(new, self.virtual)})

    def charge(self, uid: int, cost: float) -> Lane:
        return replace(self, tags={**self.tags, uid: self.tag(uid) + cost})

    def serve(self, start: float) -> Lane:
        """A job with this start tag begins."""
        return replace(self, virtual=max(self.virtual, start))

    def leave(self, busy: Set[int]) -> Lane:
        """Forget idle users who owe nothing; an idle lane begins anew."""
        if not busy:
            return Lane(max((self.virtual, *self.tags.values())))
        kept = {u: tag for u, tag in self.tags.items() if u in busy or tag > self.virtual}
        return self if len(kept) == len(self.tags) else replace(self, tags=kept)
