"""Log lines in the journal's own form, and the texts that explain them."""

from __future__ import annotations

import logging
import re
import socket
import struct
from pathlib import Path

import pytest

from stoker.drivers import journal


def record(text: str, level: int = logging.WARNING) -> logging.LogRecord:
    return logging.LogRecord("stoker.services.x", level, "x.py", 1, text, (), None)


def fields(data: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    while data:
        head, _, rest = data.partition(b"\n")
        name, equals, value = head.partition(b"=")
        if not equals:
            (size,) = struct.unpack("<Q", rest[:8])
            value, rest = rest[8 : 8 + size], rest[9 + size :]
        found[name.decode()] = value.decode()
        data = rest
    return found


def test_level_logger_and_meaning_are_fields() -> None:
    text = "model tiny is set aside: 3 crashes in 600 s"
    found = fields(journal.datagram(text, record(text, logging.ERROR)))
    assert (found["MESSAGE"], found["PRIORITY"]) == (text, "3")
    assert found["LOGGER"] == "stoker.services.x"
    assert re.fullmatch(r"[0-9a-f]{32}", found["MESSAGE_ID"])


def test_a_line_without_a_meaning_of_its_own_has_no_id() -> None:
    assert "MESSAGE_ID" not in fields(journal.datagram("hello", record("hello")))


def test_a_newline_in_a_message_forges_no_field() -> None:
    text = "odd\nMESSAGE_ID=00000000000000000000000000000000"
    assert fields(journal.datagram(text, record(text))) == {
        "MESSAGE": text, "PRIORITY": "4", "SYSLOG_IDENTIFIER": "stokerd",
        "LOGGER": "stoker.services.x", "THREAD_NAME": "MainThread",
    }  # fmt: skip


def test_an_absent_journal_is_no_fault(tmp_path: Path) -> None:
    handler = journal.JournalHandler(str(tmp_path / "nobody"))
    handler.emit(record("x"))
    handler.close()


def test_lines_arrive(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(tmp_path / "journal"))
        handler = journal.JournalHandler(str(tmp_path / "journal"))
        handler.emit(record("runner hung: no sign of life for 10.0 s while ready"))
        assert fields(server.recv(4096))["MESSAGE"].startswith("runner hung")
        handler.close()


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": "x"}])
def test_without_a_journal_behind_stderr_nothing_changes(environ: dict[str, str]) -> None:
    assert journal.handler(environ) is None


def test_each_id_has_a_text_and_each_text_an_id(root: Path) -> None:
    catalog = (root / "systemd/stoker.catalog").read_text()
    ids = re.findall(r"^-- ([0-9a-f]{32})$", catalog, re.MULTILINE)
    assert ids == list(journal.MESSAGE_IDS.values())
    assert len(set(ids)) == len(ids)
    assert catalog.count("\nSubject: ") == len(ids)
