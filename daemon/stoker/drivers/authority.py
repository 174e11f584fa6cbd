"""Who may manage: root, the daemon's own user and the members of one group; and which user
is the gateway's, that alone speaks for others.

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
    """An Authority. A group that does not exist has no members, such a user no processes."""

    def __init__(
        self, group: str, gateway: str = "", now_s: Callable[[], float] = time.monotonic
    ) -> None:
        """``gateway``: name of the gateway's user; "" = there is none."""
        self._group, self._gateway = group, gateway
        self._now_s = now_s
        self._own_uid = os.geteuid()
        self._answers: dict[int, tuple[float, bool]] = {}

    def configure(self, group: str, gateway: str) -> None:
        """After a reload; remembered answers are dropped."""
        self._group, self._gateway = group, gateway
        self._answers.clear()

    def speaks_for_others(self, uid: int) -> bool:
        # Asked for the gateway's requests only, of the user that the bus names.
        try:
            return bool(self._gateway) and pwd.getpwnam(self._gateway).pw_uid == uid
        except (KeyError, OSError):
            return False

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
