"""Who may manage: root, the daemon's own user and the members of one group.

Asks the system's user database and remembers the answer for a few seconds, since a
directory service may be slow. It decides nothing else; the bus policy comes before it.
"""

from __future__ import annotations

import grp
import os
import pwd
import time
from collections.abc import Callable
from typing import Final

_REMEMBER_S: Final = 10.0
_REMEMBER_USERS: Final = 256


class GroupAuthority:
    """An Authority. A group that does not exist has no members."""

    def __init__(self, group: str, now_s: Callable[[], float] = time.monotonic) -> None:
        self._group = group
        self._now_s = now_s
        self._own_uid = os.geteuid()
        self._answers: dict[int, tuple[float, bool]] = {}

    def set_group(self, group: str) -> None:
        """After a reload; remembered answers are dropped."""
        self._group = group
        self._answers.clear()

    def may_manage(self, uid: int) -> bool:
        if uid in (0, self._own_uid):
            return True
        now = self._now_s()
        until, answer = self._answers.get(uid, (0.0, False))
        if now >= until:
            if len(self._answers) >= _REMEMBER_USERS:
                self._answers.clear()
            answer = self._is_member(uid)
            self._answers[uid] = (now + _REMEMBER_S, answer)
        return answer

    def _is_member(self, uid: int) -> bool:
        try:
            gid = grp.getgrnam(self._group).gr_gid
            user = pwd.getpwuid(uid)
            return gid in os.getgrouplist(user.pw_name, user.pw_gid)
        except (KeyError, OSError):
            return False
