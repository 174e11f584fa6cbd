"""Home Assistant as a guest: it finds the device, and its buttons do what they may."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.integration import broker_rig
from tests.integration.fleet_rig import DEVICE, fleet
from tests.integration.stokerd_rig import until

from stoker.tour.private_bus import PrivateBus

pytestmark = [pytest.mark.bus]
CONFIG = f"homeassistant/device/{DEVICE}/config"


@pytest.mark.parametrize("button", [False, True])
def test_the_install_button_is_consent_and_the_restart_button_is_off_unless_allowed(
    private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str], button: bool
) -> None:
    more = {"home_assistant": "homeassistant", "restart_button": button}
    with (
        broker_rig.started(broker_rig.plain(tmp_path / "broker")) as broker,
        fleet(private_bus, tmp_path / "device", child_env, broker, more) as rig,
    ):
        found = json.loads(until(lambda: rig.ear.peer.retained(CONFIG), "the discovery"))
        assert found["dev"]["ids"] == [DEVICE]
        assert found["availability"][0]["topic"] == f"stoker/1/d/{DEVICE}/status"
        assert ("restart" in found["cmps"]) is button
        assert all({"p", "unique_id"} <= part.keys() for part in found["cmps"].values())
        # nothing is pending: the button installs nothing
        rig.ear.say("ha/set", b"install")
        assert rig.quiet(0.5) == []
        pid = rig.daemon.status()["runner_pid"]
        rig.ear.say("ha/set", b"restart")
        if button:
            until(lambda: rig.daemon.status()["runner_pid"] not in (0, pid), "another runner")
        wish = {"deployment": "chat", "version": 3, "consent": True}
        rig.ear.say("desired", rig.operator.desired(f"d:{DEVICE}", {"update": wish}), retain=True)
        until(lambda: rig.ear.last("ha").get("latest_version") == "chat 3", "the offer")
        assert rig.quiet(0.5) == []
        if not button:
            assert rig.daemon.status()["runner_pid"] == pid
        rig.ear.say("ha/set", b"install")
        until(lambda: any(r["command"] == "update.install" for r in rig.ear.results()), "the try")
        until(lambda: rig.ear.last("ha")["latest_version"] == "as packaged", "no more offer")
