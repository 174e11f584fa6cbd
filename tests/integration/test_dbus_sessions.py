"""Kept conversations on a real bus, over the real session service and inference that is faked."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from gi.repository import GLib
from tests.fakes.bus_client import BusClient, records
from tests.integration.conftest import Spawn
from tests.integration.test_dbus_users import NOBODY, call

from stoker.api import contract
from stoker.api.session import MAX_OBJECTS_PER_USER
from stoker.errors import Busy, InvalidRequest, NotFound
from stoker.tour.private_bus import PrivateBus
from stoker_client import Stoker
from stoker_client.bus import Bus

pytestmark = pytest.mark.bus
Pairs = dict[str, GLib.Variant]


class Talker:
    """One session as a client uses it."""

    def __init__(self, client: BusClient, path: str) -> None:
        self.client, self.path = client, path

    def call(self, method: str, args: Any = None) -> Any:
        return self.client.call(contract.SESSION, method, args, self.path)

    def append(self, prompt: str, **options: GLib.Variant) -> tuple[str, int]:
        request = {"prompt": GLib.Variant("s", prompt)}
        args = GLib.Variant("(a{sv}a{sv})", (request, options))
        values, fds = self.client.call_with_fds(contract.SESSION, "Append", args, self.path)
        return values[0], fds[values[1]]

    def say(self, prompt: str) -> str:
        lines = list(records(self.append(prompt)[1]))
        return "".join(line.get("t", "") for line in lines)

    def turns(self, offset: int = 0, limit: int = 100) -> list[dict[str, Any]]:
        args = GLib.Variant("(uu)", (offset, limit))
        found: list[dict[str, Any]] = self.call("GetTurns", args)
        return found


def create(client: BusClient, **settings: GLib.Variant) -> Talker:
    args = GLib.Variant("(a{sv})", (settings,))
    return Talker(client, client.call(contract.INFERENCE, "CreateSession", args))


def reopen(client: BusClient, path: str) -> Talker:
    args = GLib.Variant("(s)", (path.rsplit("/", 1)[1],))
    return Talker(client, client.call(contract.INFERENCE, "OpenSession", args))


@pytest.fixture
def talk(client: BusClient) -> Iterator[Talker]:
    found = create(client, title=GLib.Variant("s", "test"), window_turns=GLib.Variant("u", 1))
    yield found
    reopen(client, found.path).call("Delete")


def test_a_question_brings_the_conversation_along(talk: Talker) -> None:
    assert talk.say("one two") == "one two "
    lines = list(records(talk.append("describe")[1]))
    assert lines[0] == {"session": {"turn": 2, "sent_turns": 1, "omitted_turns": 0}}
    asked = json.loads(lines[1]["t"])["ask"]["messages"]
    assert [message["content"] for message in asked] == ["one two", "one two ", "describe"]
    lines = list(records(talk.append("three")[1]))
    assert lines[0]["session"] == {"turn": 3, "sent_turns": 1, "omitted_turns": 1}


def test_a_large_question_goes_as_a_file(
    talk: Talker, session_bus: PrivateBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    real = Bus._open

    def heard(self: Bus, path: str, interface: str, method: str, *rest: Any) -> tuple[str, int]:
        asked.append(method)
        return real(self, path, interface, method, *rest)

    monkeypatch.setattr(Bus, "_open", heard)
    words = "word " * 400_000  # two megabytes: no message may have so many
    with Stoker(session_bus.address) as stoker:
        session = stoker.session(talk.path.rsplit("/", 1)[1])
        assert session.ask(words).split() == words.split()
        assert session.ask("short").split() == ["short"]
    assert asked == ["AppendFd", "Append"]
    assert [turn["question"] for turn in talk.turns()] == [words, "short"]


def test_a_file_that_is_not_sealed_is_no_question(talk: Talker) -> None:
    fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, b'{"prompt": "x"}')
    args = GLib.Variant("(ha{sv})", (0, {}))
    with pytest.raises(InvalidRequest, match="not sealed"):
        talk.client.call_with_fds(contract.SESSION, "AppendFd", args, talk.path, 10_000, fd)
    os.close(fd)
    assert talk.turns() == []


def test_turns_and_properties_tell_what_there_is(talk: Talker) -> None:
    talk.say("one")
    talk.say("two")
    found = talk.turns()
    assert [(turn["number"], turn["answer"], turn["state"]) for turn in found] == [
        (1, "one ", "done"), (2, "two ", "done"),
    ]  # fmt: skip
    assert found[0]["ended"] >= found[0]["asked"] > 1_600_000_000
    assert [turn["number"] for turn in talk.turns(1, 5)] == [2]
    facts = talk.client.get_all(contract.SESSION, talk.path)
    assert (facts["Title"], facts["Turns"], facts["Window"]) == ("test", 2, 1)
    assert set(facts) == set(contract.property_signatures(contract.SESSION))


def test_one_question_at_a_time(talk: Talker) -> None:
    job, stream = talk.append("hold")
    with pytest.raises(Busy):
        talk.append("impatient")
    talk.client.call(contract.JOB, "Cancel", path=job)
    list(records(stream))
    talk.say("now")
    assert [turn["state"] for turn in talk.turns()] == ["partial", "done"]


def test_a_fork_goes_its_own_way(talk: Talker) -> None:
    talk.say("shared")
    fork = Talker(talk.client, talk.call("Fork"))
    fork.say("apart")
    assert [turn["question"] for turn in talk.turns()] == ["shared"]
    assert [turn["question"] for turn in fork.turns()] == ["shared", "apart"]
    fork.call("Delete")


def test_settings_can_change_and_absent_ones_stay(talk: Talker) -> None:
    talk.call("Configure", GLib.Variant("(a{sv})", ({"system": GLib.Variant("s", "be nice")},)))
    facts = talk.client.get_all(contract.SESSION, talk.path)
    assert (facts["System"], facts["Title"], facts["Window"]) == ("be nice", "test", 1)


def test_a_closed_session_keeps_its_text_and_opens_again(talk: Talker) -> None:
    talk.say("kept")
    talk.call("Close")
    with pytest.raises(NotFound):
        talk.turns()
    assert reopen(talk.client, talk.path).turns()[0]["question"] == "kept"


def test_export_is_json_with_all_turns(talk: Talker) -> None:
    talk.say("ö")
    found = json.loads(talk.call("Export"))
    assert found["title"] == "test"
    assert [turn["question"] for turn in found["turns"]] == ["ö"]


def test_a_deleted_session_is_gone_for_good(client: BusClient) -> None:
    talk = create(client)
    talk.say("secret")
    talk.call("Delete")
    with pytest.raises(NotFound):
        talk.turns()
    with pytest.raises(NotFound):
        reopen(client, talk.path)
    listed = client.call(contract.INFERENCE, "ListSessions")
    assert talk.path not in [item["path"] for item in listed]


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ({"window_turns": GLib.Variant("i", -1)}, "settings.window_turns"),
        ({"window_turns": GLib.Variant("s", "5")}, "settings.window_turns"),
        ({"titel": GLib.Variant("s", "x")}, "settings.titel"),
        ({"title": GLib.Variant("s", "a\nb")}, "settings.title"),
        ({"ttl_s": GLib.Variant("d", 1.5)}, "settings.ttl_s"),
        ({"summary": GLib.Variant("s", "no")}, "settings.summary"),
    ],
)
def test_wrong_settings_name_their_path(client: BusClient, settings: Pairs, path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        create(client, **settings)
    assert caught.value.details["path"] == path


@pytest.mark.parametrize("key", ["messages", "system", "raw", "nonsense"])
def test_a_session_brings_its_own_messages(talk: Talker, key: str) -> None:
    request = {"prompt": GLib.Variant("s", "x"), key: GLib.Variant("b", True)}
    with pytest.raises(InvalidRequest) as caught:
        talk.call("Append", GLib.Variant("(a{sv}a{sv})", (request, {})))
    assert caught.value.details["path"] == f"request.{key}"


@pytest.mark.parametrize("key", ["", "../jobs", "0" * 32, "x" * 1000])
def test_what_is_no_session_is_not_found(client: BusClient, key: str) -> None:
    with pytest.raises(NotFound):
        client.call(contract.INFERENCE, "OpenSession", GLib.Variant("(s)", (key,)))


def test_objects_are_bounded_and_sessions_are_not(private_bus: PrivateBus, spawn: Spawn) -> None:
    spawn("tests.fakes.dbus_server", private_bus.address, ready="ready")
    with BusClient(private_bus.address) as client:
        first, second = create(client), create(client)
        for _ in range(MAX_OBJECTS_PER_USER - 2):
            create(client)
        first.say("still in use")
        create(client)
        with pytest.raises(NotFound):
            second.turns()
        assert len(first.turns()) == 1
        assert reopen(client, second.path).turns() == []
        listed = client.call(contract.INFERENCE, "ListSessions")
        assert len(listed) == MAX_OBJECTS_PER_USER + 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can call as another user")
def test_another_user_finds_nothing_and_an_administrator_may_delete(
    client: BusClient, session_bus: PrivateBus
) -> None:
    made, _ = call(session_bus, f"{contract.INFERENCE}.CreateSession", "{'title': <'mine'>}")
    match = re.search(r"'(/org/stoker/[^']+)'", made)
    assert match is not None
    path = match[1]
    other, key = 1, path.rsplit("/", 1)[1]
    for method, args in (
        ("Append", ["{'prompt': <'x'>}", "{}"]), ("Fork", []), ("Export", []), ("Delete", []),
        ("GetTurns", ["0", "1"]), ("Close", []), ("Configure", ["{}"]),
    ):  # fmt: skip
        error = call(session_bus, f"{contract.SESSION}.{method}", *args, path=path, uid=other)[1]
        assert error == "org.stoker.Error.NotFound", method
    everything = f"{contract.PROPERTIES}.GetAll"
    assert call(session_bus, everything, contract.SESSION, path=path, uid=other)[1].endswith(
        "NotFound"
    )
    opening = f"{contract.INFERENCE}.OpenSession"
    assert call(session_bus, opening, key, uid=other)[1] == "org.stoker.Error.NotFound"
    assert call(session_bus, f"{contract.INFERENCE}.ListSessions", uid=other)[0] == "(@aa{sv} [],)"
    assert call(session_bus, f"{contract.SESSION}.GetTurns", "0", "9", path=path)[1] == ""
    seen = {item["id"]: item for item in client.call(contract.INFERENCE, "ListSessions")}
    assert (seen[key]["uid"], seen[key]["title"]) == (NOBODY, "")
    with pytest.raises(NotFound):
        Talker(client, path).turns()
    reopen(client, path).call("Delete")
    assert call(session_bus, opening, key)[1] == "org.stoker.Error.NotFound"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can call as another user")
def test_the_shipped_policy_lets_anyone_keep_a_conversation(root: Any, spawn: Spawn) -> None:
    policy = root / "policies/dbus/org.stoker.Agent1.conf"
    with PrivateBus([policy]) as bus:
        server: subprocess.Popen[str] = spawn("tests.fakes.dbus_server", bus.address, ready="ready")
        made, error = call(bus, f"{contract.INFERENCE}.CreateSession", "{}")
        assert error == ""
        path = re.search(r"'(/org/stoker/[^']+)'", made)
        assert path is not None
        assert call(bus, f"{contract.SESSION}.Export", path=path[1])[1] == ""
        assert server.poll() is None
