"""Errors at the client: codes by rule, hints kept, no knowledge of the agent's classes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from stoker import errors
from stoker.api import errormap
from stoker_client.bus import Bus, plain
from stoker_client.errors import (
    PREFIX,
    RETRYABLE,
    StokerClientError,
    code_of,
    from_dbus,
    from_record,
)


@pytest.mark.parametrize("row", errormap.ROWS, ids=lambda row: row.code)
def test_the_name_rule_gives_every_code_of_the_table(row: errormap.Row) -> None:
    assert code_of(row.dbus_name) == row.code


def test_retryable_agrees_with_the_agent() -> None:
    assert {e.code for e in errors.all_errors() if e.retryable} == RETRYABLE


@pytest.mark.parametrize("cls", errors.all_errors(), ids=lambda cls: cls.code)
def test_what_the_agent_says_arrives_whole(cls: type[errors.StokerError]) -> None:
    sent = cls("cannot do it: no", hint="do that", details={"retry_after_ms": 7})
    got = from_dbus(*errormap.to_dbus(sent))
    assert got.record() == sent.record()
    assert from_record(sent.record()).record() == sent.record()


def test_an_error_of_a_newer_agent_keeps_its_code() -> None:
    error = from_dbus(PREFIX + "GridUnstable", "cannot: new\nhint: wait\ndetails: nonsense")
    assert (error.code, error.hint, error.details) == ("grid-unstable", "wait", {})


@pytest.mark.parametrize("name", ["ServiceUnknown", "NameHasNoOwner"])
def test_a_missing_agent_is_unavailable_and_says_where_to_look(name: str) -> None:
    error = from_dbus("org.freedesktop.DBus.Error." + name, "The name was not provided")
    assert error.code == "unavailable"
    assert error.retryable
    assert "systemctl status stoker" in error.hint


def test_a_foreign_error_is_named() -> None:
    error = from_dbus("com.example.Odd", "what")
    assert error.code == "internal"
    assert "com.example.Odd" in error.message


@pytest.mark.parametrize("junk", [None, 3, "x", [], {}, {"code": 4, "details": [1]}])
def test_a_broken_error_record_is_still_an_error(junk: object) -> None:
    assert from_record(junk).code == "internal"


def test_the_client_imports_nothing_of_the_agent() -> None:
    probe = (
        "import sys, stoker_client.client, stoker_client.stream, stoker_client.records;"
        "print([n for n in sys.modules if n == 'stoker' or n.startswith('stoker.')],"
        "      'gi' in sys.modules, 'pydbus' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] False False"


def test_properties_are_named_as_json_names_things() -> None:
    assert plain({"ClockTrusted": True, "State": "idle", "LastError": ("", "")}) == {
        "clock_trusted": True, "state": "idle", "last_error": ("", ""),
    }  # fmt: skip


def test_what_d_bus_cannot_carry_is_a_bad_request_and_no_traceback() -> None:
    pytest.importorskip("gi")
    bus = Bus("unix:path=/nowhere")
    for fault in (OverflowError("-1 not in range"), UnicodeEncodeError("utf-8", "x", 0, 1, "no")):
        typed = bus.typed(fault)
        assert isinstance(typed, StokerClientError)
        assert typed.code == "invalid-request"
