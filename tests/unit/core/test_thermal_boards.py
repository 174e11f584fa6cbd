"""Presets: every file parses, the right one is chosen, the wall never passes a trip."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fakes.thermal import BOARDS, preset

from stoker.core.boards import BoardFacts, choose_board, parse_board, wall
from stoker.drivers.board_files import load_boards
from stoker.errors import ConfigInvalid
from stoker.events.thermal import Trip
from stoker.units import Celsius

PRESETS = load_boards(BOARDS)


def table(**changes: object) -> dict[str, Any]:
    data: dict[str, Any] = {
        "name": "x",
        "title": "X",
        "wall_c": 80.0,
        "margin_k": 1.5,
        "resistances_k_per_w": [1.0],
        "sensors": [{"names": ["cpu"]}],
    }
    return data | changes


def test_every_preset_parses_and_there_is_exactly_one_fallback() -> None:
    assert {"raspberrypi-4", "raspberrypi-5", "rk3588", "jetson-orin", "x86-generic", "vm"} <= {
        p.name for p in PRESETS
    }
    assert [p.name for p in PRESETS if p.match.fallback] == ["generic"]


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        (BoardFacts(("raspberrypi,4-model-b", "brcm,bcm2711"), "", "aarch64"), "raspberrypi-4"),
        (BoardFacts(("raspberrypi,5-model-b", "brcm,bcm2712"), "", "aarch64"), "raspberrypi-5"),
        (BoardFacts(("radxa,rock-5a", "rockchip,rk3588s"), "", "aarch64"), "rk3588"),
        (BoardFacts(("nvidia,p3701-0000", "nvidia,tegra234"), "", "aarch64"), "jetson-orin"),
        (BoardFacts((), "QEMU Standard PC", "x86_64"), "vm"),
        (BoardFacts((), "LENOVO 20XW", "x86_64"), "x86-generic"),
        (BoardFacts((), "", "x86_64"), "x86-generic"),
        (BoardFacts(("acme,board",), "", "x86_64"), "generic"),
        (BoardFacts((), "", "riscv64"), "generic"),
    ],
)
def test_the_board_is_recognised(facts: BoardFacts, name: str) -> None:
    assert choose_board(PRESETS, facts).name == name


def test_the_configuration_overrides_and_a_wrong_name_lists_the_right_ones() -> None:
    pi = BoardFacts(("brcm,bcm2711",))
    assert choose_board(PRESETS, pi, "rk3588").name == "rk3588"
    with pytest.raises(ConfigInvalid) as caught:
        choose_board(PRESETS, pi, "pi4")
    assert "raspberrypi-4" in caught.value.hint


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"wal_c": 1}, "wal_c"),
        ({"match": {"compatibel": []}}, "match.compatibel"),
        ({"sensors": [{"names": ["a"], "polices": []}]}, "sensors[0].polices"),
        ({"sensors": [{"names": []}]}, "sensors[0].names"),
        ({"clusters": [{"name": "a", "policies": [], "coefficient_uw": "much"}]}, "clusters[0]."),
        ({"resistances_k_per_w": [0.0]}, "resistances_k_per_w"),
        ({"resistances_k_per_w": []}, "resistances_k_per_w"),
        ({"wall_c": 200.0}, "wall_c"),
        ({"match": {"dmi": [""]}}, "match"),
    ],
)
def test_what_is_wrong_in_a_preset_is_named_by_its_path(
    changes: dict[str, object], path: str
) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse_board(table(**changes), "x.toml")
    assert path in caught.value.message
    assert "x.toml" in caught.value.message


def trip(kind: str, at_c: float) -> Trip:
    return Trip(kind, Celsius(at_c))


def test_the_wall_stays_2_k_below_the_lowest_passive_trip() -> None:
    trips = (trip("passive", 85.0), trip("passive", 75.0), trip("critical", 115.0))
    assert wall(preset("rk3588"), Celsius(0), trips)[0] == 73.0
    assert wall(preset("rk3588"), Celsius(95), trips)[0] == 73.0


def test_a_lower_configured_wall_wins() -> None:
    assert wall(preset("rk3588"), Celsius(60), (trip("passive", 85.0),))[0] == 60.0


def test_on_a_pi_no_setting_passes_the_firmware() -> None:
    for name in ("raspberrypi-4", "raspberrypi-5"):
        assert wall(preset(name), Celsius(0), ())[0] <= 79.0
        assert wall(preset(name), Celsius(95), ())[0] == 79.0


def test_trips_at_or_below_zero_do_not_count() -> None:
    assert wall(preset("rk3588"), Celsius(0), (trip("passive", 0), trip("critical", -5)))[0] == 83.0


def test_the_wall_stays_below_the_temperature_that_stops_everything() -> None:
    assert wall(preset("x86-generic"), Celsius(0), (trip("critical", 90.0),))[0] == 83.0
