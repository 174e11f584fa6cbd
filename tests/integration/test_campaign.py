"""Campaigns over a real mosquitto: devices made of the real fleet client, some of them faulty."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.fleet_device import FleetDevice, Home
from tests.fakes.fleet_operator import FleetOperator
from tests.fakes.update_bundles import Operator
from tests.integration import broker_rig
from tests.integration.broker_rig import ROOT, Broker, peer
from tests.integration.stokerd_rig import until

from stoker_ota.core import campaign_share

DEVICES = 24
ENV = {
    **os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    "STOKER_OTA_PASSPHRASE": "correct horse",
}  # fmt: skip


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> Operator:
    return Operator.found(tmp_path_factory.mktemp("maker"))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with broker_rig.started(broker_rig.plain(tmp_path / "broker")) as found:
        yield found


@dataclass
class Fleet:
    """The operator's tool, and devices of the group blue; what lost its power is started again."""

    broker: Broker
    maker: Operator
    folder: Path
    devices: dict[str, FleetDevice] = field(default_factory=dict)

    def words(self, verb: str, *words: str) -> list[str]:
        return [
            sys.executable, "-m", "stoker_ota.cli.main", "campaign", verb, *words,
            "--broker", f"mqtt://127.0.0.1:{self.broker.port}",
            "--ledger", str(self.folder / "campaigns.db"),
        ]  # fmt: skip

    def tool(self, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(verb, *words), cwd=self.maker.home, env=ENV, capture_output=True,
            text=True, check=False, timeout=120,
        )  # fmt: skip

    def ok(self, verb: str, *words: str) -> dict[str, Any]:
        done = self.tool(verb, *words, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        return dict(json.loads(done.stdout.splitlines()[-1]))

    def watching(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.words("watch", *words), cwd=self.maker.home, env=ENV,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def standings(self) -> dict[str, str]:
        told = self.ok("report", "c-1")["devices"]
        return {name: found["state"] for name, found in told.items()}


@contextlib.contextmanager
def fleet(
    broker: Broker, maker: Operator, folder: Path, faults: Mapping[str, str], takes_s: float = 0.2
) -> Iterator[Fleet]:
    operator = FleetOperator.of_pki(maker.home / "pki")
    made = Fleet(broker, maker, folder)
    address = f"mqtt://127.0.0.1:{broker.port}"
    ended = threading.Event()

    def hand() -> None:
        while not ended.wait(0.1):
            for device in made.devices.values():
                if device.cut:
                    device.lose_power()
                    time.sleep(0.5)
                    device.start()

    with peer(broker) as other:
        for number in range(DEVICES):
            name = f"dev-{number}"
            home = Home(address, folder / name, lambda: operator.trust)
            made.devices[name] = FleetDevice(name, home, takes_s, faults.get(name, ""))
            own = operator.desired(f"d:{name}", {}, groups=("blue",))
            other.publish(f"{ROOT}/d/{name}/desired", own)
    helper = threading.Thread(target=hand, daemon=True)
    helper.start()
    try:
        for device in made.devices.values():
            device.start()
        until(lambda: all(d.online for d in made.devices.values()), "all devices on line", 60)
        yield made
    finally:
        ended.set()
        helper.join(10)
        for device in made.devices.values():
            device.stop()


def reached(percent: float) -> set[str]:
    names = {f"dev-{number}" for number in range(DEVICES)}
    return {name for name in names if campaign_share.reached("c-1", percent, name)}


def start(*words: str) -> list[str]:
    return ["chat", "--version", "2", "--group", "blue", "--id", "c-1", *words]


def test_a_campaign_with_faulty_devices_ends_right(
    broker: Broker, maker: Operator, tmp_path: Path
) -> None:
    faults = {"dev-3": "drop", "dev-7": "crash", "dev-11": "slow", "dev-15": "bad-hash"}
    with fleet(broker, maker, tmp_path, faults) as made:
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
    broker: Broker, maker: Operator, tmp_path: Path
) -> None:
    first = reached(25)
    assert 0 < len(first) < DEVICES
    with fleet(broker, maker, tmp_path, dict.fromkeys(first, "bad-hash")) as made:
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
    broker: Broker, maker: Operator, tmp_path: Path
) -> None:
    with fleet(broker, maker, tmp_path, {}) as made:
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
