"""What people read: status, models, heat, units; and what a terminal must never get."""

from __future__ import annotations

import io
from typing import Any

import pytest

from stoker.cli import screens
from stoker.cli.terminal import Terminal, clean


class _Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


PLAIN = Terminal(out=io.StringIO(), err=io.StringIO())
STATUS: dict[str, Any] = {
    "version": "9.9.9", "state": "ready", "state_reason": "", "model": "smol",
    "engine": "llama", "library": "b42", "runner_pid": 77, "runner_restarts": 2,
    "runner_memory_bytes": 260 << 20, "queue_depth": 3, "active_jobs": 1, "threads": 2,
    "uptime_s": 3700.0, "temperature_c": 54.25, "wall_c": 78.0, "thermal_state": "ok",
    "board": "Raspberry Pi 4",
}  # fmt: skip


def test_status_fits_one_screen_and_says_everything() -> None:
    lines = screens.status(STATUS, PLAIN)
    text = "\n".join(lines)
    assert len(lines) < 24
    assert max(map(len, lines)) <= 80
    for part in ("ready", "smol (llama b42)", "pid 77, 260 MiB, 2 threads, restarted 2 ×",
                 "1 running, 3 waiting", "54.2 °C of 78.0 °C", "1 h 1 min", "9.9.9"):  # fmt: skip
        assert part in text


def test_status_lives_with_an_agent_that_says_almost_nothing() -> None:
    text = "\n".join(screens.status({"state": "no-model", "state_reason": "all broken"}, PLAIN))
    assert "no-model: all broken" in text
    assert "not running" in text
    assert "unknown" in text


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"cpu_state": "partition", "cpus": "2-3"}, "2-3, its own"),
        ({"cpu_state": "cpuset", "cpus": "2", "cpu_reason": "refused"}, "2, shared: refused"),
        ({"cpu_state": "none", "cpu_reason": "not wanted"}, "any, shared: not wanted"),
    ],
)
def test_status_says_whose_cpus_the_model_has(facts: dict[str, str], words: str) -> None:
    rows = screens.status({**STATUS, **facts}, PLAIN)
    assert any(row.split(maxsplit=1) == ["cpus", words] for row in rows)


def test_status_tells_how_much_was_known_already() -> None:
    tokens = {"prompt_tokens": 1000, "cached_tokens": 756, "completion_tokens": 42}
    rows = screens.status({**STATUS, **tokens}, PLAIN)
    words = "42 written, 1000 read, 75 % known already"
    assert any(row.split(maxsplit=1) == ["tokens", words] for row in rows)
    assert "known" not in "\n".join(screens.status(STATUS, PLAIN))


def test_status_is_silent_about_cpus_where_nobody_shares_them_out() -> None:
    for facts in (STATUS, {**STATUS, "cpu_state": "unknown"}):
        assert "cpus" not in "\n".join(screens.status(facts, PLAIN))


@pytest.mark.parametrize("temperature", [None, float("nan")])
def test_no_sensor_is_said_in_words(temperature: float | None) -> None:
    facts = {**STATUS, "temperature_c": temperature, "thermal_state": "blind"}
    assert screens.heat(facts, PLAIN) == "unknown (there is no temperature sensor on this machine)"


@pytest.mark.parametrize(("celsius", "cells"), [(10.0, 0), (49.0, 10), (78.0, 20), (99.0, 20)])
def test_the_bar_ends_at_the_wall(celsius: float, cells: int) -> None:
    shown = screens.heat({**STATUS, "temperature_c": celsius}, PLAIN)
    assert (shown.count("█"), shown.count("░")) == (cells, 20 - cells)


def test_thermal_lists_sensors_faults_and_policies() -> None:
    facts = {
        "state": "watching", "reason": "", "wall_c": 75.0, "temperature_c": 51.5,
        "headroom": 0.8, "cap_khz": 1_400_000, "caps_khz": {"policy0": 1_400_000},
        "sensors": [
            {"name": "cpu", "kind": "zone", "path": "/sys/x", "temperature_c": 51.5},
            {"name": "nvme", "kind": "hwmon", "path": "/sys/y", "fault": "ENODATA"},
        ],
        "policies": [
            {"name": "policy0", "min_khz": 600_000, "max_khz": 1_500_000, "writable": False}
        ],
    }  # fmt: skip
    text = "\n".join(screens.thermal(facts, PLAIN))
    for part in ("watching: watching only", "80 %", "51.5", "ENODATA", "600 MHz … 1.50 GHz",
                 "1.40 GHz", "read only"):  # fmt: skip
        assert part in text


def test_every_thermal_state_has_words() -> None:
    documented = {"ok", "degraded", "safe", "stop", "watching", "blind"}
    assert set(screens.STATE_WORDS) == documented


def test_models_show_why_one_is_not_used() -> None:
    found = [
        {"name": "a", "state": "ready", "size_bytes": 98 << 20, "default": True,
         "context_tokens": 2048, "description": "small", "reason": ""},
        {"name": "b", "state": "set-aside", "size_bytes": 0, "reason": "crashed 3 times"},
    ]  # fmt: skip
    lines = screens.models(found, PLAIN)
    assert lines[1].startswith("*  a")
    assert "98 MiB" in lines[1]
    assert "crashed 3 times" in lines[2]
    assert "stoker.toml" in screens.models([], PLAIN)[0]


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (98 << 20, "98 MiB"), (3 << 30, "3.0 GiB")],
)
def test_sizes(count: int, text: str) -> None:
    assert screens.size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.9, "59 s"), (61, "1 min 1 s"), (3600, "1 h 0 min"), (90061, "1 d 1 h")],
)
def test_spans(seconds: float, text: str) -> None:
    assert screens.span(seconds) == text


def test_control_characters_never_reach_a_terminal() -> None:
    evil = "a\x1b]0;title\x07b\x9b31m\rc\n\td\x7f"
    assert clean(evil) == "a]0;titleb31mc\n\td"
    assert Terminal(out=_Tty(), err=_Tty()).clean(evil) == clean(evil)
    assert PLAIN.clean(evil) == evil
    facts = {**STATUS, "model": evil}
    shown = screens.status(facts, Terminal(out=_Tty(), err=_Tty(), colour=False))
    assert "\x1b" not in "".join(shown)


def test_colours_need_a_terminal_and_consent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert Terminal(out=_Tty()).paint("x", "dim") == "\x1b[2mx\x1b[0m"
    assert Terminal(out=_Tty(), colour=False).paint("x", "dim") == "x"
    assert Terminal(out=io.StringIO()).paint("x", "dim") == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert Terminal(out=_Tty()).paint("x", "dim") == "x"


FITTED: dict[str, Any] = {
    "slots": 1, "context_tokens": 2048, "kv_type": "q8_0", "expected_bytes": 300 << 20,
    "gave_way": "1 slots instead of 4", "memory_level": "tight",
}  # fmt: skip


def test_status_says_what_the_model_was_given_and_how_short_memory_is() -> None:
    text = "\n".join(screens.status({**STATUS, **FITTED}, PLAIN))
    assert "1 slot of 2048 tokens, q8_0, 300 MiB expected" in text
    assert "1 slots instead of 4" in text
    assert "tight: caches and contexts shrink" in text
    assert "memory" not in "\n".join(screens.status({**STATUS, "memory_level": "calm"}, PLAIN))


def test_models_say_it_where_there_is_no_reason() -> None:
    ready = {"name": "m", "state": "ready", "size_bytes": 1, "description": "llama", **FITTED}
    assert "q8_0, 300 MiB expected" in "\n".join(screens.models([ready], PLAIN))
    refused = {**ready, "reason": "it needs 2 GiB"}
    assert "expected" not in "\n".join(screens.models([refused], PLAIN))
