"""Campaigns over a real mosquitto: devices made of the real fleet client, some of them faulty."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.update_bundles import Operator
from tests.integration import broker_rig
from tests.integration.broker_rig import Broker
from tests.integration.campaign_rig import DEVICES, Doors, fleet, start
from tests.integration.stokerd_rig import until

from stoker_ota.core import campaign_share


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> Operator:
    return Operator.found(tmp_path_factory.mktemp("maker"))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with broker_rig.started(broker_rig.plain(tmp_path / "broker")) as found:
        yield found


@pytest.fixture
def doors(broker: Broker) -> Doors:
    return Doors.of(broker)


def reached(percent: float) -> set[str]:
    names = {f"dev-{number}" for number in range(DEVICES)}
    return {name for name in names if campaign_share.reached("c-1", percent, name)}


def test_a_campaign_with_faulty_devices_ends_right(
    broker: Broker, doors: Doors, maker: Operator, tmp_path: Path
) -> None:
    faults = {"dev-3": "drop", "dev-7": "crash", "dev-11": "slow", "dev-15": "bad-hash"}
    with fleet(doors, maker, tmp_path, faults) as made:
        made.ok("start", *start("--steps", "25,100", "--success", "75", "--abort", "25"))
        watch = made.watching("--json")
        assert watch.stdout is not None
        first = watch.stdout.readline()
        broker.restart()
        told = first + watch.communicate(timeout=90)[0]
        assert watch.returncode == 0, told
        said = [json.loads(line) for line in told.splitlines()]
        steps = [item["step"] for item in said if "step" in item]
        assert steps == sorted(steps)
        assert steps[-1] == 2
        right = dict.fromkeys(made.devices, "succeeded") | {"dev-15": "failed"}
        until(lambda: made.standings() == right, "every device's end", 60)
        report = made.ok("report", "c-1")
        assert report["devices"]["dev-15"]["code"] == "chunk-hash"
        assert [item["text"] for item in report["story"]][:2] == ["started", "step 2 of 2: 100 %"]
        for name, device in made.devices.items():
            assert device.engine.installed == (1 if name == "dev-15" else 2)
            assert device.engine.installs <= (2 if name in ("dev-7", "dev-3") else 1)


def test_too_many_failures_end_a_campaign_before_others_begin(
    doors: Doors, maker: Operator, tmp_path: Path
) -> None:
    first = reached(25)
    assert 0 < len(first) < DEVICES
    with fleet(doors, maker, tmp_path, dict.fromkeys(first, "bad-hash")) as made:
        made.ok("start", *start("--steps", "25,100", "--abort", "50", "--success", "50"))
        done = made.tool("watch")
        assert done.returncode == 76, done.stdout + done.stderr
        assert "aborted" in done.stderr
        time.sleep(1.0)
        begun = {name for name, device in made.devices.items() if device.engine.installs}
        assert begun <= first
        assert made.ok("report", "c-1")["phase"] == "aborted"
        again = made.tool("resume", "c-1")
        assert again.returncode == 64
        assert "it is aborted" in again.stderr


def test_a_pause_holds_and_a_lost_ledger_is_made_again(
    doors: Doors, maker: Operator, tmp_path: Path
) -> None:
    with fleet(doors, maker, tmp_path, {}) as made:
        made.ok("start", *start("--steps", "25,100", "--soak-s", "2"))
        watch = made.watching()
        until(lambda: any(d.engine.installs for d in made.devices.values()), "the first step")
        assert made.ok("pause")["phase"] == "paused"
        second = made.tool("start", "chat", "--version", "3", "--group", "blue")
        assert "blue is in c-1, which is paused" in second.stderr
        time.sleep(4.0)
        begun = {name for name, device in made.devices.items() if device.engine.installs}
        assert begun <= reached(25)
        assert watch.poll() is None
        watch.kill()
        assert "paused by another hand" in watch.communicate(timeout=10)[0]
        for file in tmp_path.glob("campaigns.db*"):
            file.unlink()
        assert made.ok("resume")["phase"] == "running"
        done = made.tool("watch")
        assert done.returncode == 0, done.stdout + done.stderr
        until(lambda: set(made.standings().values()) == {"succeeded"}, "the end", 60)
        assert all(device.engine.installs == 1 for device in made.devices.values())
