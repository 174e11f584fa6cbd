"""What stokerctl top shows of two looks."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from stoker.cli.terminal import Terminal
from stoker.cli.top_screen import Look, screen
from stoker_client.history import Event

LOOK = Look(
    at=1000.0,
    status={
        "model": "tiny", "state": "ready", "active_jobs": 2, "queue_depth": 3, "threads": 4,
        "sampled_tokens": 500, "runner_memory_bytes": 200 << 20, "memory_level": "calm",
        "uptime_s": 3700.0,
    },
    thermal={
        "temperature_c": 71.5, "wall_c": 80.0, "state": "ok", "headroom": 0.5,
        "caps_khz": {"policy0": 1_500_000}, "policies": [{}],
    },
    queue=[(0, "normal", 2, 1), (4_000_000, "background", 0, 2)],
    events=[Event(900.0, "restart", "killed by \x1b[2Jsignal 9")],
)  # fmt: skip


def _shown(look: Look) -> str:
    out = io.StringIO()
    Console(file=out, width=100).print(screen(look, Terminal(out=io.StringIO())))
    return out.getvalue()


def test_a_screen_has_the_numbers() -> None:
    text = _shown(LOOK)
    for wanted in ("tiny  ready", "2 running, 3 waiting", "71.5 of 80.0 °C", "50%",
                   "policy0 1.50 GHz", "runner 200 MiB", "1 h 1 min", "root", "4000000",
                   "background"):  # fmt: skip
        assert wanted in text


def test_two_looks_make_a_speed_and_one_does_not() -> None:
    later = replace(LOOK, at=1002.0, status={**LOOK.status, "sampled_tokens": 560}, before=LOOK)
    assert LOOK.tokens_s is None
    assert later.tokens_s == pytest.approx(30.0)
    assert "30.0 tokens/s" in _shown(later)


def test_a_runner_that_began_again_has_no_negative_speed() -> None:
    later = replace(LOOK, at=1001.0, status={**LOOK.status, "sampled_tokens": 3}, before=LOOK)
    assert later.tokens_s is None


def test_others_words_cannot_steer_the_terminal() -> None:
    assert "\x1b[2J" not in _shown(LOOK)


def test_an_agent_without_sensor_model_or_work_is_shown_too() -> None:
    bare = Look(1.0, {"state": "no-model"}, {"state": "blind", "wall_c": 0.0})
    text = _shown(bare)
    for wanted in ("none  no-model", "no sensor (blind)", "nobody asks", "no clock to cap here"):
        assert wanted in text


def test_an_update_shows_how_far_it_is() -> None:
    update = {
        "State": "fetching",
        "Phase": "fetching",
        "Deployment": "chat",
        "Done": 30,
        "Total": 40,
    }
    text = _shown(replace(LOOK, update=update))
    assert "75%  chat fetching" in text


def test_users_whom_one_may_not_see_are_called_others() -> None:
    assert "others" in _shown(replace(LOOK, queue=[(0xFFFFFFFF, "normal", 1, 0)]))


def test_programs_get_json() -> None:
    plain = json.loads(json.dumps(LOOK.plain()))
    assert plain["queue"][0] == {"uid": 0, "class": "normal", "running": 2, "waiting": 1}
