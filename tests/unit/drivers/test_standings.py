"""Policy by the names of users and groups, with the system's own user database."""

from __future__ import annotations

import grp
import os
import pwd

import pytest

from stoker.config.schema import Config, QuotaConfig
from stoker.drivers.standings import NamedStandings
from stoker.events.inference import JobClass

ME = pwd.getpwuid(os.getuid()).pw_name
MINE = grp.getgrgid(pwd.getpwuid(os.getuid()).pw_gid).gr_name
LOW = QuotaConfig(highest_class="background", tokens_per_minute=60)
UNKNOWN = 3_999_999


def test_everybody_has_the_general_quota() -> None:
    standing = NamedStandings(Config(quotas=LOW)).of(UNKNOWN)
    assert standing.highest is JobClass.BACKGROUND
    assert standing.quota.tokens_per_minute == 60


def test_a_users_own_table_counts_before_that_of_a_group() -> None:
    config = Config(users={ME: LOW}, groups={MINE: QuotaConfig(highest_class="normal")})
    assert NamedStandings(config).of(os.getuid()).highest is JobClass.BACKGROUND


def test_the_first_group_that_is_listed_and_exists_counts() -> None:
    normal = QuotaConfig(highest_class="normal")
    config = Config(groups={"no_such_group": LOW, MINE: normal})
    assert NamedStandings(config).of(os.getuid()).highest is JobClass.NORMAL


def test_a_user_whom_nobody_knows_has_what_everybody_has() -> None:
    config = Config(users={ME: LOW}, groups={MINE: LOW})
    assert NamedStandings(config).of(UNKNOWN).highest is JobClass.INTERACTIVE


def test_an_answer_is_remembered_for_a_while_and_dropped_by_a_reload(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    real = pwd.getpwuid

    def count(uid: int) -> pwd.struct_passwd:
        asked.append(uid)
        return real(uid)

    monkeypatch.setattr("pwd.getpwuid", count)
    now = [0.0]
    made = NamedStandings(Config(users={ME: LOW}), lambda: now[0])
    for _ in range(3):
        made.of(os.getuid())
    assert len(asked) == 1
    now[0] = 11.0
    made.of(os.getuid())
    assert len(asked) == 2
    made.configure(Config(users={"somebody": LOW}))
    assert made.of(os.getuid()).highest is JobClass.INTERACTIVE
