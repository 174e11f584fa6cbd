"""Who may manage: root, the daemon's own user, members of the group; nobody else."""

from __future__ import annotations

import grp
import os
import pwd
from types import SimpleNamespace

import pytest

from stoker.drivers.authority import GroupAuthority

GID = 4242


@pytest.fixture
def members(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names in group "keepers"; users are named u<uid>."""
    names: set[str] = set()

    def group(name: str) -> SimpleNamespace:
        if name != "keepers":
            raise KeyError(name)
        return SimpleNamespace(gr_gid=GID)

    def user(uid: int) -> SimpleNamespace:
        if uid == 9999:
            raise KeyError(uid)
        return SimpleNamespace(pw_name=f"u{uid}", pw_gid=uid)

    monkeypatch.setattr(grp, "getgrnam", group)
    monkeypatch.setattr(pwd, "getpwuid", user)
    monkeypatch.setattr(
        os, "getgrouplist", lambda name, gid: [gid, GID] if name in names else [gid]
    )
    return names


def test_root_and_the_daemons_own_user_may_manage() -> None:
    authority = GroupAuthority("no-such-group")
    assert authority.may_manage(0)
    assert authority.may_manage(os.geteuid())


def test_a_missing_group_has_no_members(members: set[str]) -> None:
    members.add("u1000")
    assert not GroupAuthority("absent").may_manage(1000)


def test_members_may_others_and_unknown_users_may_not(members: set[str]) -> None:
    members.add("u1000")
    authority = GroupAuthority("keepers")
    assert authority.may_manage(1000)
    assert not authority.may_manage(1001)
    assert not authority.may_manage(9999)


def test_a_change_of_the_group_shows_after_ten_seconds(members: set[str]) -> None:
    now = [0.0]
    authority = GroupAuthority("keepers", now_s=lambda: now[0])
    assert not authority.may_manage(1000)
    members.add("u1000")
    assert not authority.may_manage(1000)
    now[0] = 10.0
    assert authority.may_manage(1000)
    members.clear()
    now[0] = 20.0
    assert not authority.may_manage(1000)


def test_only_the_gateways_own_user_speaks_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def user(name: str) -> SimpleNamespace:
        if name != "stoker-gateway":
            raise KeyError(name)
        return SimpleNamespace(pw_uid=4711)

    monkeypatch.setattr(pwd, "getpwnam", user)
    authority = GroupAuthority("keepers", "stoker-gateway")
    assert authority.speaks_for_others(4711)
    for other in (0, os.geteuid(), 1000):
        assert not authority.speaks_for_others(other)
    authority.configure("keepers", "nobody-of-that-name")
    assert not authority.speaks_for_others(4711)
    authority.configure("keepers", "")
    assert not authority.speaks_for_others(4711)
