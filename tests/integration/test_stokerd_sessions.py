"""Kept conversations in a real stokerd: kill -9, restart, stokerctl, and no trace after Delete."""

from __future__ import annotations

import json
import sqlite3
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.stokerctl_rig import COMMAND, Typed, ctl
from tests.integration.stokerd_rig import Stokerd, stokerd, until

from stoker.tour.private_bus import PrivateBus
from stoker_client import Stoker, StokerClientError

pytestmark = pytest.mark.bus
Env = dict[str, str]
CONFIG = """
[sessions]
window_turns = 2
[models]
default = "echo"
[models.echo]
path = "/dev/null"
"""
SECRET = "xylophone-secret-4711"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def daemon(private_bus: PrivateBus, home: Path, child_env: Env) -> Iterator[Stokerd]:
    with stokerd(private_bus, home, child_env, "--engine", "echo", config=CONFIG) as running:
        running.wait_ready()
        yield running


@pytest.fixture
def stoker(daemon: Stokerd) -> Stoker:
    return Stoker(daemon.bus.address)


@pytest.fixture
def env(daemon: Stokerd, child_env: Env) -> Env:
    return {**child_env, "STOKER_BUS_ADDRESS": daemon.bus.address}


def files(home: Path) -> bytes:
    return b"".join(path.read_bytes() for path in (home / "state").glob("sessions.db*"))


def test_a_conversation_survives_kill_9_and_the_client_goes_on(
    private_bus: PrivateBus, home: Path, child_env: Env
) -> None:
    kept: list[str] = []
    with stokerd(private_bus, home, child_env, "--engine", "echo", config=CONFIG) as first:
        first.wait_ready()
        session = Stoker(private_bus.address).session(title="garden", system="brief")
        assert session.ask("plant roses") == "plant roses"
        kept.append(session.ask("and tulips"))
        stream = session.stream("!slow 20 " + "cut " * 500)
        next(record for record in stream if record.kind == "text")
        first.process.kill()
        first.process.wait(10)
        with pytest.raises(StokerClientError):
            list(stream)
    with stokerd(private_bus, home, child_env, "--engine", "echo", config=CONFIG) as second:
        second.wait_ready()
        turns = list(session.turns())
        assert [(turn["answer"], turn["state"]) for turn in turns] == [
            ("plant roses", "done"), ("and tulips", "done"), ("", "failed"),
        ]  # fmt: skip
        assert session.ask("more") == "more"
        facts = session.facts()
        assert (facts["Title"], facts["System"], facts["Turns"]) == ("garden", "brief", 4)
        assert (home / "state/sessions.db.broken").exists() is False


def test_deleted_text_is_in_no_file(stoker: Stoker, home: Path) -> None:
    session = stoker.session(title=SECRET)
    fork_of = stoker.session()
    session.ask(f"keep {SECRET} safe " + "and long " * 2000)
    fork_of.ask("something else stays")
    assert SECRET.encode() in files(home)
    session.delete()
    left = files(home)
    assert SECRET.encode() not in left
    assert b"something else stays" in left
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (home / "state").glob("sessions.db*")}
    assert modes == {0o600}


def test_the_log_is_folded_in_when_nothing_happens(stoker: Stoker, home: Path) -> None:
    session = stoker.session()
    session.ask("x " * 2000)
    log = home / "state/sessions.db-wal"
    until(lambda: log.stat().st_size == 0, "an empty log", 10.0)
    assert session.ask("y") == "y"


def test_a_vanishing_caller_leaves_the_part_that_was_answered(
    daemon: Stokerd, stoker: Stoker
) -> None:
    session = stoker.session()
    with Stoker(daemon.bus.address) as other:
        stream = other.session(session.id).stream("!slow 20 " + "a " * 3000)
        next(record for record in stream if record.kind == "text")
    until(lambda: [turn["state"] for turn in session.turns()] == ["partial"], "partial", 5.0)
    (turn,) = session.turns()
    assert turn["error_code"] == "cancelled"
    assert turn["answer"].split()[:1] == ["a"]


def test_a_dead_runner_costs_the_turn_and_not_the_conversation(
    daemon: Stokerd, stoker: Stoker
) -> None:
    session = stoker.session()
    session.ask("before")
    stream = session.stream("!slow 20 " + "a " * 3000)
    next(record for record in stream if record.kind == "text")
    daemon.runner().kill()
    with pytest.raises(StokerClientError):
        list(stream)
    daemon.wait_ready()
    assert session.ask("after") == "after"
    assert [turn["state"] for turn in session.turns()] == ["done", "partial", "done"]


def test_neither_asking_nor_the_bus_waits_for_the_disk(stoker: Stoker, home: Path) -> None:
    session = stoker.session()
    blocker = sqlite3.connect(home / "state/sessions.db", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    try:
        stream = Stoker(stoker.address)
        began = time.monotonic()
        assert stream.ask("quick") == "quick"
        assert stream.status()["state"] == "ready"
        assert time.monotonic() - began < 2.0
    finally:
        blocker.execute("ROLLBACK")
        blocker.close()
    assert session.ask("and on") == "and on"


def test_reload_takes_new_limits_of_sessions(daemon: Stokerd, stoker: Stoker) -> None:
    stoker.session()
    more = 'max_sessions_per_user = 1\nwhen_full = "refuse"'
    daemon.config_file.write_text(CONFIG.replace("[sessions]", f"[sessions]\n{more}"))
    assert stoker.reload() == []
    with pytest.raises(StokerClientError) as caught:
        stoker.session()
    assert caught.value.code == "quota-exceeded"


def test_a_summary_of_what_the_window_left_out_is_kept_and_deleted(
    private_bus: PrivateBus, home: Path, child_env: Env
) -> None:
    config = CONFIG.replace("window_turns = 2", "window_turns = 1")
    with stokerd(private_bus, home, child_env, "--engine", "echo", config=config) as running:
        running.wait_ready()
        session = Stoker(private_bus.address).session(summary="on")
        for text in (f"remember {SECRET}", "two", "three"):
            assert session.ask(text) == text

        def summary() -> str:
            return str(json.loads(session.export())["summary"])

        until(lambda: bool(summary()), "a summary", 10.0)
        assert f"User: remember {SECRET}" in summary()
        facts = session.facts()
        assert (facts["Summaries"], facts["SummaryUpTo"], facts["Summary"]) == (True, 1, summary())
        env = {**child_env, "STOKER_BUS_ADDRESS": private_bus.address}
        assert "(summary up to turn 1: " in ctl(env, "sessions", "show", session.id).stdout
        assert session.ask("four") == "four"
        assert [turn["state"] for turn in session.turns()] == ["done"] * 4
        session.delete()
        assert SECRET.encode() not in files(home)


def test_chat_goes_on_where_it_ended(env: Env) -> None:
    for line in ("first words", "second words"):
        done = ctl(env, "chat", "--session", "garden", stdin=line + "\n")
        assert (done.returncode, done.stdout) == (0, line + "\n")
    shown = ctl(env, "sessions", "show", "garden").stdout
    assert shown.split("\n\n")[:2] == ["> first words\nfirst words", "> second words\nsecond words"]
    listed = json.loads(ctl(env, "--json", "sessions").stdout)
    assert [(item["title"], item["turns"]) for item in listed] == [("garden", 2)]
    assert "garden" in ctl(env, "chat", "--list").stdout


def test_sessions_are_exported_and_deleted_by_name_or_id(env: Env, stoker: Stoker) -> None:
    assert "No conversations are kept" in ctl(env, "sessions").stdout
    key = stoker.session(title="one").id
    exported = json.loads(ctl(env, "sessions", "export", "one").stdout)
    assert (exported["format"], exported["id"]) == ("stoker-session", key)
    assert ctl(env, "sessions", "delete", key[:8]).stdout == f"Deleted {key}.\n"
    for words in (("show", "one"), ("delete", key), ("export", "x")):
        assert ctl(env, "sessions", *words).returncode == 66
    assert ctl(env, "sessions", "delete").returncode == 64


def test_a_new_kept_chat_tells_its_id_and_what_was_left_out(env: Env) -> None:
    with Typed(env, *COMMAND, "chat", "--new") as typed:
        found = typed.see(r"kept as [0-9a-f]{32}")
        for word in ("one", "two", "three"):
            typed.enter(f"{word}\n")
            typed.see(f"{word}.*{word}.*> ")
        typed.enter("four\n")
        typed.see("1 earlier turn was left out.*> ")
        typed.enter("/reset\n")
        typed.see("The agent keeps this one.*> ")
        typed.enter("/system be brief\n")
        typed.see("Set.*> ")
        typed.enter("five\n")
        typed.see("2 earlier turns were left out.*> ")
        typed.enter("\x04")
        assert typed.end() == 0
    key = found.rsplit(" ", 1)[1]
    facts = json.loads(ctl(env, "--json", "sessions", "show", key).stdout)["facts"]
    assert (facts["Turns"], facts["System"]) == (5, "be brief")


def test_a_full_or_broken_state_folder_costs_sessions_only(
    private_bus: PrivateBus, home: Path, child_env: Env
) -> None:
    (home / "state").mkdir()
    (home / "state/sessions.db").mkdir()
    with stokerd(private_bus, home, child_env, "--engine", "echo", config=CONFIG) as running:
        running.wait_ready()
        stoker = Stoker(private_bus.address)
        with pytest.raises(StokerClientError) as caught:
            stoker.session()
        assert caught.value.code == "storage-failed"
        assert stoker.ask("fine") == "fine"
        (home / "state/sessions.db").rmdir()
        assert stoker.session().ask("works again") == "works again"
