"""org.stoker.History1: the device's past, for everyone."""

from __future__ import annotations

import math

import pytest
from gi.repository import GLib
from tests.fakes.bus_client import BusClient

from stoker.api import contract
from stoker.errors import InvalidRequest

pytestmark = pytest.mark.bus


def _read(client: BusClient, *args: float) -> tuple[object, ...]:
    found: tuple[object, ...] = client.call(contract.HISTORY, "Read", GLib.Variant("(ddd)", args))
    return found


def test_columns_answers_and_events_arrive_with_their_units(client: BusClient) -> None:
    columns, answers, events = _read(client, 0.0, 1000.0, 60.0)
    assert columns == [
        {
            "at": 600.0, "span_s": 60.0, "temperature_c": 71.0, "wall_c": 80.0, "headroom": 0.5,
            "cap_hz": 1_500_000_000, "above_wall_s": 2.0, "queue": 3,
        },
        {"at": 660.0, "span_s": 60.0, "above_wall_s": 0.0, "queue": 1},
    ]  # fmt: skip
    assert answers == [(600.0, "tiny", [0, 4, 1], 0.012, [0] * 9 + [2], 0.7, 90, 7, 1)]
    assert events == [(610.0, "restart", "killed by signal 9")]


def test_numbers_that_are_none_are_refused(client: BusClient) -> None:
    with pytest.raises(InvalidRequest):
        _read(client, 0.0, math.inf, 60.0)
