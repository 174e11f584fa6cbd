"""A fleet's commands on a real stokerd through a real mosquitto: each one's effect is seen."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from gi.repository import GLib
from tests.fakes.fleet_operator import FleetOperator
from tests.integration import broker_rig
from tests.integration.fleet_rig import DEVICE, Rig, fleet
from tests.integration.stokerd_rig import until

from stoker.api import contract
from stoker.errors import StokerError
from stoker.tour.private_bus import PrivateBus
from stoker_ota.core.fleet_documents import Target

pytestmark = [pytest.mark.bus]
CANARY = "the canary sings at midnight"


@pytest.fixture
def rig(private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str]) -> Iterator[Rig]:
    with (
        broker_rig.started(broker_rig.plain(tmp_path / "broker")) as broker,
        fleet(private_bus, tmp_path / "device", child_env, broker) as running,
    ):
        yield running


def ask(rig: Rig, text: str = "hello") -> str:
    args = GLib.Variant("(s)", (text,))
    return str(rig.daemon.client.call(contract.INFERENCE, "Ask", args))


def uploaded(rig: Rig, transfer: str) -> bytes:
    """What came in chunks, put together and compared with its head."""
    head: dict[str, object] = {}

    def parts() -> list[bytes]:
        rig.ear.pump()
        start = f"stoker/1/d/{DEVICE}/up/{transfer}/"
        found = {int(t.removeprefix(start)): p for t, p, _ in rig.ear.heard if t.startswith(start)}
        if 0 not in found:
            return []
        head.update(json.loads(found.pop(0)))
        return [found[n] for n in sorted(found)] if len(found) == head["chunks"] else []

    data = b"".join(until(parts, f"all of {transfer}"))
    assert len(data) == head["size"]
    return data


def test_a_restarted_runner_is_another_process(rig: Rig) -> None:
    before = rig.daemon.status()["runner_pid"]
    end = rig.do("runtime.restart")
    assert end["state"] == "succeeded", end
    assert rig.daemon.status()["runner_pid"] != before
    states = [item["state"] for item in rig.ear.results(end["id"])]
    assert states == ["accepted", "running", "succeeded"]
    until(lambda: rig.ear.last("state").get("results"), "a state with the result")
    assert rig.ear.last("status")["online"] is True


def test_a_paused_device_answers_nobody_until_it_is_resumed_also_after_a_restart(rig: Rig) -> None:
    assert ask(rig)
    assert rig.do("runtime.pause")["state"] == "succeeded"
    with pytest.raises(StokerError, match="paused by its fleet"):
        ask(rig)
    rig.restart()
    rig.daemon.wait_ready()
    until(lambda: rig.ear.last("state").get("paused"), "the pause")
    with pytest.raises(StokerError, match="paused by its fleet"):
        ask(rig)
    assert rig.do("runtime.resume")["state"] == "succeeded"
    assert ask(rig)


def test_an_activated_model_serves(rig: Rig) -> None:
    assert rig.daemon.status()["model"] == "one"
    end = rig.do("model.activate", {"model": "two"})
    assert end["data"] == {"model": "two", "previous": "one"}
    assert rig.daemon.status()["model"] == "two"
    rig.restart()
    rig.daemon.wait_ready()
    assert rig.daemon.status()["model"] == "two"
    refused = rig.do("model.activate", {"model": "three"})
    assert refused["state"] in ("failed", "rejected")
    assert "three" in refused["detail"]
    assert rig.daemon.status()["model"] == "two"


def test_a_policy_counts_at_once_and_a_wrong_one_changes_nothing(rig: Rig) -> None:
    end = rig.do("policy.set", {"values": {"inference.max_tokens": 7}})
    assert end["state"] == "succeeded", end
    assert end["data"]["needs_restart"] == []
    found = rig.do("config.get", {"keys": ["inference.max_tokens"]})
    assert found["data"]["settings"] == {
        "inference.max_tokens": 7,
        "inference.max_tokens_limit": 8192,
    }
    wrong = rig.do("policy.set", {"values": {"inference.max_tokens": -1}})
    assert (wrong["state"], wrong["code"]) == ("failed", "config-invalid")
    strange = rig.do("policy.set", {"values": {"updates.trust": "/tmp/mine"}})
    assert (strange["state"], strange["code"]) == ("rejected", "invalid-request")
    found = rig.do("config.get", {"keys": ["inference.max_tokens"]})
    assert found["data"]["settings"]["inference.max_tokens"] == 7


def test_diagnostics_and_logs_come_in_chunks_without_prompts(rig: Rig) -> None:
    assert CANARY in ask(rig, CANARY)
    end = rig.do("report.diagnostics")
    assert end["state"] == "succeeded", end
    data = uploaded(rig, end["data"]["transfer"])
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        texts = {item.name: (tar.extractfile(item) or io.BytesIO()).read().decode() for item in tar}
    expected = {"fleet.json", "settings.json", "inference.json", "thermal.json", "stokerd.log"}
    assert expected <= set(texts)
    assert json.loads(texts["inference.json"])["model"] == "one"
    log = rig.do("log.upload", {"lines": 100})
    lines = gzip.decompress(uploaded(rig, log["data"]["transfer"])).decode()
    assert "connected to the fleet's broker" in lines
    assert CANARY not in lines + "".join(texts.values())


def test_the_state_is_told_when_it_is_asked_for(rig: Rig) -> None:
    def states() -> int:
        rig.ear.pump()
        return sum(topic.endswith("/state") for topic, _, _ in rig.ear.heard)

    until(lambda: rig.ear.last("state").get("model", {}).get("state") == "ready", "a state")
    end = rig.do("report.state")
    assert end["state"] == "succeeded"
    before = states()
    rig.do("report.state")
    until(lambda: states() > before, "a state")
    assert rig.ear.last("state")["device"] == DEVICE


def test_newer_trust_is_walked_to(rig: Rig) -> None:
    assert rig.do("trust.refresh")["data"] == {"version": 1}
    assert rig.ear.peer.publish("stoker/1/trust/2", rig.operator.next_trust()) == "Success"
    assert rig.do("trust.refresh")["data"] == {"version": 2}
    assert rig.do("trust.refresh")["data"] == {"version": 2}


def test_a_revoked_signer_is_worth_nothing_after_the_refresh(rig: Rig) -> None:
    stolen = rig.operator.world.parties["fleet"]
    fresh = rig.operator.world.signer("fleet")
    newer = rig.operator.next_trust(revoked=frozenset({stolen.spki}))
    rig.ear.peer.publish("stoker/1/trust/2", newer)
    assert rig.do("trust.refresh")["data"] == {"version": 2}
    _, payload = rig.operator.command(DEVICE, "report.state")
    rig.ear.say("cmd", payload)
    assert rig.quiet() == []
    rig.operator.world.parties["fleet"] = fresh
    assert rig.do("report.state")["state"] == "succeeded"


@pytest.mark.parametrize(
    ("command", "args", "state", "code"),
    [
        ("runtime.explode", {}, "rejected", "invalid-request"),
        ("runtime.restart", {"now": True}, "rejected", "invalid-request"),
        ("cancel", {"id": "nobody"}, "rejected", "not-found"),
        ("update.check", {}, "rejected", "invalid-request"),  # there are no sources
        ("update.rollback", {}, "rejected", "invalid-request"),  # there is no set before
        ("update.confirm", {"deployment": "x"}, "rejected", "invalid-request"),
    ],
)
def test_what_makes_no_sense_is_rejected_with_a_code(
    rig: Rig, command: str, args: dict[str, object], state: str, code: str
) -> None:
    end = rig.do(command, args)
    assert (end["state"], end["code"]) == (state, code), end


def test_labels_and_groups_address_devices(
    private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str]
) -> None:
    operator = FleetOperator()
    with (
        broker_rig.started(broker_rig.plain(tmp_path / "broker")) as broker,
        fleet(private_bus, tmp_path / "device", child_env, broker, operator=operator,
              extra="") as rig,
    ):  # fmt: skip
        mine = rig.do("report.state", target=Target(labels={"room": "kitchen"}))
        assert (mine["state"], mine["code"]) == ("rejected", "wrong-target")
        rig.ear.say("desired", operator.desired(f"d:{DEVICE}", {}, groups=("blue",)), retain=True)
        until(lambda: rig.facts()["Groups"] == ["blue"], "the group")
        identity, payload = operator.command(DEVICE, "report.state", target=Target(group="blue"))
        assert rig.ear.peer.publish("stoker/1/g/blue/cmd", payload, retain=False) == "Success"
        assert rig.ear.end(identity)["state"] == "succeeded"


def test_a_command_that_waited_too_long_is_answered_as_expired(rig: Rig) -> None:
    end = rig.do("runtime.restart", life=timedelta(seconds=1), issued=_ago(60))
    assert (end["state"], end["code"]) == ("expired", "expired")


def _ago(seconds: int) -> datetime:
    return datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=seconds)
