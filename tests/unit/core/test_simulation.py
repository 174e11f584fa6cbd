"""``thermal.board = "sim:…"``: what it means, and what is refused with the key's path."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.config.parse import parse as parse_config
from stoker.core.simulation import Simulation, parse
from stoker.errors import ConfigInvalid


def test_a_plant_alone_burns_at_full_load_in_real_time() -> None:
    assert parse("sim:pi5-bare") == Simulation("pi5-bare", 1.0, 1.0, None, None)


def test_every_setting_is_taken() -> None:
    found = parse("sim:rk3588,speed=8,load=0.25,ambient=35,warm=74.5")
    assert found == Simulation("rk3588", 8.0, 0.25, 35.0, 74.5)
    following = parse("sim:pi5-bare,load=agent")
    assert following is not None
    assert following.load is None


@pytest.mark.parametrize("board", ["auto", "raspberrypi-5", "simulator"])
def test_other_boards_are_real(board: str) -> None:
    assert parse(board) is None


@pytest.mark.parametrize(
    "board",
    ["sim:", "sim:,speed=2", "sim:p,speed=0", "sim:p,speed=1000", "sim:p,load=2", "sim:p,load=-1",
     "sim:p,warm=nan", "sim:p,fan=1", "sim:p,speed", "sim:p,", "sim:p,speed=2,speed=3"],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_with_the_key(board: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse(board)
    assert caught.value.details["path"] == "thermal.board"
    assert "sim:PLANT" in caught.value.hint


@given(st.text(max_size=40))
def test_any_text_is_taken_or_refused(text: str) -> None:
    try:
        found = parse(f"sim:{text}")
    except ConfigInvalid:
        return
    assert found is not None
    assert 0.1 <= found.speed <= 60
    assert found.load is None or 0 <= found.load <= 1


def test_a_file_may_name_a_simulated_board() -> None:
    config = parse_config([("x", {"thermal": {"board": "sim:pi5-bare,speed=8"}})])
    assert config.thermal.board == "sim:pi5-bare,speed=8"
    with pytest.raises(ConfigInvalid, match=r"thermal\.board"):
        parse_config([("x", {"thermal": {"board": "sim:pi5 bare"}})])
