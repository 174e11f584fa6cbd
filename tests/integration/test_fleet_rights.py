"""What a real broker refuses, what clocks and certificates have to say, and a full outbox."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.fakes.fleet_device import FleetDevice, Home
from tests.fakes.fleet_operator import FleetOperator
from tests.integration import broker_rig
from tests.integration.broker_rig import ACL, OPERATOR, PASSWORD, Broker, peer
from tests.integration.fleet_rig import DEVICE, Ear, Rig, fleet
from tests.integration.stokerd_rig import until

from stoker.drivers import device_facts
from stoker.drivers.device_facts import DeviceClock
from stoker.tour.private_bus import PrivateBus

pytestmark = [pytest.mark.bus]
SALT = b"twelve bytes"  # the plugin wants as many
PLUGIN = "mosquitto_dynamic_security.so"
Env = dict[str, str]


def deny_subscribing(folder: Path, topic: str) -> str:
    """Lines for mosquitto.conf: its acl_file grants every subscription, this plugin does not."""
    found = sorted(Path("/usr/lib").glob(f"*/{PLUGIN}"))
    if not found:
        pytest.skip(f"{PLUGIN} is not installed")
    rule = {"acltype": "subscribeLiteral", "topic": topic, "priority": 1, "allow": False}
    words = ("publishClientSend", "publishClientReceive", "subscribePattern", "unsubscribePattern")
    rest = [{"acltype": word, "topic": "#", "priority": 0, "allow": True} for word in words]
    key = hashlib.pbkdf2_hmac("sha512", PASSWORD.encode(), SALT, 101)
    word = {"password": base64.b64encode(key).decode(), "iterations": 101,
            "salt": base64.b64encode(SALT).decode()}  # fmt: skip
    rules = {
        "clients": [
            {"username": name, **word, "roles": [{"rolename": "all"}]}
            for name in (OPERATOR, DEVICE)
        ],
        "groups": [],
        "roles": [{"rolename": "all", "acls": [rule, *rest]}],
    }  # fmt: skip
    folder.mkdir(parents=True)
    (folder / "rules.json").write_text(json.dumps(rules))
    return f"plugin {found[0]}\nplugin_opt_config_file {folder}/rules.json"


def test_a_subscription_that_is_refused_is_told(
    private_bus: PrivateBus, tmp_path: Path, child_env: Env
) -> None:
    topic = f"stoker/1/d/{DEVICE}/cmd"
    more = deny_subscribing(tmp_path / "b", topic)
    broker = Broker(tmp_path / "b", users=dict.fromkeys((OPERATOR, DEVICE), PASSWORD), more=more)
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    known = {"username": DEVICE, "password_file": str(file)}
    with (
        broker_rig.started(broker),
        fleet(private_bus, tmp_path / "device", child_env, broker, known) as rig,
    ):
        until(lambda: rig.facts()["Denied"] == [topic], f"{rig.facts()}")
        assert any("denies" in text for text in rig.facts()["Warnings"])


def test_a_certificate_near_its_end_and_an_uncertain_clock_are_told(
    private_bus: PrivateBus, tmp_path: Path, child_env: Env, secure: Broker
) -> None:
    with fleet(private_bus, tmp_path / "device", child_env, secure) as rig:
        warnings = rig.facts()["Warnings"]
        assert any("certificate expires in" in text for text in warnings), warnings
        kept = DeviceClock().synchronised()  # stokerd is on this machine
        until(lambda: rig.ear.last("state"), "a state")
        assert rig.ear.last("state")["clock"] == ("ok" if kept else "uncertain")
        assert rig.ear.last("status")["clock"] == ("ok" if kept else "uncertain")
        assert any("clock" in text for text in warnings) is not kept


def test_commands_that_overtake_each_other_are_all_done_once(
    private_bus: PrivateBus, tmp_path: Path, child_env: Env, secure: Broker
) -> None:
    with fleet(private_bus, tmp_path / "device", child_env, secure) as rig:
        made = [rig.operator.command(DEVICE, "report.state", sequence=n) for n in (30, 20, 10)]
        for _, payload in made:
            rig.ear.say("cmd", payload)
        for identity, _ in made:
            assert rig.ear.end(identity)["state"] == "succeeded"
        for identity, payload in made:
            rig.ear.say("cmd", payload)  # once more: its recorded answer
            assert [r["state"] for r in rig.ear.results(identity)].count("running") == 1


def test_a_command_from_the_future_is_refused_where_the_clock_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_facts, "TIMESYNC", tmp_path)  # it is there: somebody keeps time
    operator = FleetOperator()
    trust = operator.write_trust(tmp_path / "trust.json").read_bytes()
    with broker_rig.started(broker_rig.plain(tmp_path / "broker")) as broker:
        device = FleetDevice(
            DEVICE, Home(f"mqtt://127.0.0.1:{broker.port}", tmp_path / "device", lambda: trust)
        )
        device.start()
        try:
            with peer(broker) as other:
                ear = Ear(other)
                ear.listen()
                until(lambda: device.online, "the device")
                later = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=2)
                identity, payload = operator.command(
                    DEVICE, "update.install", {"deployment": "chat"}, issued=later
                )
                ear.say("cmd", payload)
                end = ear.end(identity)
                assert (end["state"], end["code"]) == ("rejected", "not-yet")
                time.sleep(0.5)
                assert device.engine.installs == 0
                now, payload = operator.command(DEVICE, "update.install", {"deployment": "chat"})
                ear.say("cmd", payload)
                assert ear.end(now)["state"] == "succeeded"
        finally:
            device.stop()


def test_a_full_outbox_stays_within_its_bounds_and_keeps_what_is_newest(
    private_bus: PrivateBus, tmp_path: Path, child_env: Env, secure: Broker
) -> None:
    """The broker's rules deny results until they are mended."""
    bound = 256 << 10
    secure.acl = ACL.replace("pattern write stoker/1/d/%u/result\n", "")
    secure.restart_hard()
    with fleet(
        private_bus, tmp_path / "device", child_env, secure, outbox_bytes=bound
    ) as rig:  # fmt: skip
        last = ""
        for number in range(400):
            last, payload = rig.operator.command(DEVICE, "config.get")
            rig.ear.say("cmd", payload)
            if number % 10 == 0 and rig.facts()["Dropped"]:
                break
        facts = until(lambda: _dropped(rig), "a full outbox", 60.0)
        assert facts["State"] == "online"
        assert facts["Outbox"][1] <= bound
        until(lambda: rig.facts()["LastCommand"][::2] == (last, "succeeded"), "the last", 60.0)
        secure.acl = ACL
        rig.broker_dies()
        until(lambda: rig.facts()["Outbox"][0] == 0, "an empty outbox", 60.0)
        assert rig.ear.end(last)["state"] == "succeeded"


def _dropped(rig: Rig) -> dict[str, object]:
    facts = rig.facts()
    return facts if facts["Dropped"] else {}
