"""The error table is whole, and an error survives the way over D-Bus."""

from __future__ import annotations

import re

import pytest

from stoker.api import errormap
from stoker.errors import Busy, InternalError, InvalidRequest, StokerError, all_errors


def test_every_error_class_has_exactly_one_row() -> None:
    codes = [row.code for row in errormap.ROWS]
    assert sorted(codes) == sorted(cls.code for cls in all_errors())


def test_dbus_names_are_the_codes_in_camel_case_and_legal() -> None:
    for row in errormap.ROWS:
        camel = "".join(part.capitalize() for part in row.code.split("-"))
        assert row.dbus_name == "org.stoker.Error." + camel
        assert re.fullmatch(r"([A-Za-z_][A-Za-z0-9_]*\.)+[A-Za-z_][A-Za-z0-9_]*", row.dbus_name)


def test_exit_statuses_never_read_as_success_and_retryable_ones_say_so() -> None:
    assert all(64 <= row.exit_status <= 130 for row in errormap.ROWS)
    assert all(400 <= row.http_status < 600 for row in errormap.ROWS)


@pytest.mark.parametrize("cls", all_errors())
def test_an_error_comes_back_as_it_left(cls: type[StokerError]) -> None:
    error = cls(
        "cannot take job: 64 wait — ünïcode",
        hint="come back in 2 s",
        details={"retry_after_ms": 2000, "path": "a\nb", "deep": True, "share": 0.5},
    )
    back = errormap.from_dbus(*errormap.to_dbus(error))
    assert type(back) is cls
    assert back.record() == error.record()


def test_the_message_reads_well_in_a_terminal() -> None:
    error = Busy("cannot take job: full", hint="wait", details={"retry_after_ms": 5})
    assert errormap.to_dbus(error) == (
        "org.stoker.Error.Busy",
        'cannot take job: full\nhint: wait\ndetails: {"retry_after_ms": 5}',
    )


def test_what_no_dbus_string_can_carry_is_escaped() -> None:
    _name, text = errormap.to_dbus(InvalidRequest("cannot read \0 and \ud800: bad"))
    assert "\0" not in text
    text.encode()


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("org.freedesktop.DBus.Error.ServiceUnknown", "unavailable"),
        ("org.freedesktop.DBus.Error.NoReply", "deadline-exceeded"),
        ("org.freedesktop.DBus.Error.AccessDenied", "not-authorized"),
        ("org.freedesktop.DBus.Error.UnknownMethod", "not-found"),
        ("org.freedesktop.DBus.Error.InvalidArgs", "invalid-request"),
        ("com.example.Weird", "internal"),
    ],
)
def test_errors_of_the_bus_become_ours(name: str, code: str) -> None:
    assert errormap.from_dbus(name, "some words").code == code


@pytest.mark.parametrize("text", ["details: no json", "details: [1]", 'details: {"a": {"b": 1}}'])
def test_damaged_details_are_dropped_not_raised(text: str) -> None:
    assert errormap.from_dbus("org.stoker.Error.NotFound", "cannot x\n" + text).details == {}


def test_an_unknown_code_reads_as_internal() -> None:
    assert errormap.row("no-such").code == InternalError.code
