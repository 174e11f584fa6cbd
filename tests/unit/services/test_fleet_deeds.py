"""What commands bring home when there is no room for it."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from tests.fakes.doors import FakeInference
from tests.fakes.update_door import FakeUpdates

from stoker.events.fleet import Record
from stoker.services.fleet_deeds import CommandDeeds, Services


def done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def deeds(room: int) -> CommandDeeds:
    data = b"x" * 300_000
    return CommandDeeds(
        Services(
            updates=FakeUpdates(), inference=FakeInference(),
            set_policy=lambda _values: done(()), keep_model=lambda _name: None,
            pause=lambda _held: None, report=lambda: None, diagnostics=lambda: done(data),
            log=lambda _lines: done(data), settings=dict, fetch=lambda _topic: done(b""),
            trust_topic=str, trust_version=lambda: 1, cancel=lambda _identity: None,
            upload_topic=lambda transfer, number: f"up/{transfer}/{number}",
            upload_room=lambda: room, monotonic_s=lambda: 0.0,
        )
    )  # fmt: skip


@pytest.mark.parametrize("command", ["log.upload", "report.diagnostics"])
def test_an_upload_that_the_outbox_would_tear_is_refused_as_too_large(command: str) -> None:
    outcome = deeds(192 << 10).begin(Record("a", command), lambda _values: None).poll()
    assert outcome is not None
    assert (outcome.what, outcome.code, tuple(outcome.letters)) == ("refused", "too-large", ())
    assert "outbox_bytes" in outcome.text
    sent = deeds(1 << 20).begin(Record("a", command), lambda _values: None).poll()
    assert sent is not None
    assert (sent.what, len(sent.letters)) == ("done", 6)
