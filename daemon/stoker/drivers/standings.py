"""What policy grants a user, by the names of the user and of its groups.

Asks the system's user database only when configuration names somebody, and remembers the
answer for a few seconds, since a directory service may be slow.
"""

from __future__ import annotations

import grp
import os
import pwd
import time
from collections.abc import Callable
from typing import Final

from stoker.config.schema import Config, QuotaConfig
from stoker.events.inference import JobClass, Quota, Standing

_REMEMBER_S: Final = 10.0
_REMEMBER_USERS: Final = 256


class NamedStandings:
    """A Standings. A user's own table counts before its groups', the first group listed wins.

    Any thread may call; at worst two of them ask the database for the same user.
    """

    def __init__(self, config: Config, now_s: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._now_s = now_s
        self._answers: dict[int, tuple[float, Standing]] = {}

    def configure(self, config: Config) -> None:
        """After a reload; remembered answers are dropped."""
        self._config, self._answers = config, {}

    def of(self, uid: int) -> Standing:
        config, answers = self._config, self._answers
        if not config.users and not config.groups:
            return _standing(config.quotas)
        now = self._now_s()
        until, answer = answers.get(uid, (0.0, Standing()))
        if now >= until:
            if len(answers) >= _REMEMBER_USERS:
                answers.clear()
            answer = _standing(_table(config, uid))
            answers[uid] = (now + _REMEMBER_S, answer)
        return answer


def _table(config: Config, uid: int) -> QuotaConfig:
    try:
        user = pwd.getpwuid(uid)
        if user.pw_name in config.users:
            return config.users[user.pw_name]
        members = set(os.getgrouplist(user.pw_name, user.pw_gid)) if config.groups else set()
    except (KeyError, OSError):
        return config.quotas
    for name, table in config.groups.items():
        try:
            if grp.getgrnam(name).gr_gid in members:
                return table
        except (KeyError, OSError):
            continue
    return config.quotas


def _standing(table: QuotaConfig) -> Standing:
    return Standing(
        JobClass.of(table.highest_class),
        Quota(
            concurrent_jobs=table.concurrent_jobs,
            queued_jobs=table.queued_jobs,
            queued_bytes=table.queued_bytes,
            tokens_per_minute=table.tokens_per_minute,
        ),
    )
