"""stokerctl update history: a return that was asked for is no failure."""

from __future__ import annotations

import io

from stoker.cli import update
from stoker.cli.terminal import Terminal


def test_a_return_that_was_asked_for_is_told_once_and_as_no_failure() -> None:
    out = io.StringIO()
    asked = {"deployment": "", "version": 0, "code": "requested", "time": "2026-01-01T00:00:00Z"}
    broke = {"deployment": "chat", "version": 2, "code": "unhealthy", "time": "", "reason": "why"}
    found = [
        {**asked, "what": "failed"},
        {**asked, "what": "returned"},
        {**broke, "what": "failed"},
    ]
    update._history(found, Terminal(out=out, err=io.StringIO()))
    lines = [line.split() for line in out.getvalue().splitlines()]
    assert lines == [
        ["2026-01-01T00:00:00Z", "returned", "requested"],
        ["failed", "chat", "2", "unhealthy", "why"],
    ]
