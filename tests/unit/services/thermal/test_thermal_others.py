"""Sensors that nothing is controlled by, however slow they are, hold up nobody."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.fakes.thermal import Rig

from stoker.events.thermal import Reading
from stoker.services.other_sensors import NO_ANSWER


class Radio:
    """A zone of a Wi-Fi card: each read of it waits until ``go``."""

    def __init__(self, rig: Rig) -> None:
        self.go, self.reads = threading.Event(), 0
        folder = rig.board.root / "class/thermal/thermal_zone9"
        folder.mkdir()
        (folder / "type").write_text("iwlwifi_1\n")
        (folder / "temp").write_text("40000\n")
        read = rig.files.read

        def slow(path: Path) -> str:
            if path == folder / "temp":
                self.reads += 1
                assert self.go.wait(10)
            return read(path)

        rig.ports.sensors._read = slow  # type: ignore[attr-defined]


def shown(rig: Rig) -> dict[str, Reading]:
    return {sensor.name: reading for sensor, reading in rig.service.details().sensors}


def test_a_slow_sensor_of_others_never_holds_up_a_tick(rig: Rig) -> None:
    radio = Radio(rig)
    rig.run(35.0, load=0.2)  # it would hang in the first
    assert (rig.service.snapshot().state, radio.reads) == ("ok", 0)
    radio.go.set()


def test_it_is_read_for_those_who_ask_but_once_while_it_hangs(rig: Rig) -> None:
    radio = Radio(rig)
    rig.run(1.0, load=0.2)
    for _ in range(3):
        assert shown(rig)["iwlwifi_1"].fault == NO_ANSWER
        assert shown(rig)["cpu-thermal"].temperature_c is not None
        rig.run(10.0, load=0.2)
    assert radio.reads == 1
    radio.go.set()
    thread = rig.service._others._thread
    assert thread is not None
    thread.join(10)
    assert shown(rig)["iwlwifi_1"].temperature_c == 40.0
    rig.run(70.0, load=0.2)
    radio.go.clear()
    assert shown(rig)["iwlwifi_1"].fault == NO_ANSWER  # an old value is none
    radio.go.set()
