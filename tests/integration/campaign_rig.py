"""A fleet of devices (the real fleet client, no model), its broker, and the operator's tool."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fakes.fleet_device import FleetDevice, Home
from tests.fakes.fleet_operator import FleetOperator
from tests.fakes.mqtt_peer import Peer
from tests.fakes.tls_world import Pair
from tests.fakes.update_bundles import Operator, environment
from tests.integration.broker_rig import ROOT, Broker, peer
from tests.integration.stokerd_rig import until

DEVICES = 24


@dataclass(frozen=True)
class Doors:
    """How everybody gets in. ``access``: the operator's words; ``files``: of a device, by name."""

    address: str
    access: tuple[str, ...]
    peer: Callable[[], Peer]
    ca: str = ""
    pair: Callable[[str], Pair] | None = None

    @classmethod
    def of(cls, broker: Broker) -> Doors:
        """Without TLS."""
        address = f"mqtt://127.0.0.1:{broker.port}"
        return cls(address, ("--broker", address), lambda: peer(broker))

    def files(self, device: str) -> tuple[str, str, str]:
        if self.pair is None:
            return "", "", ""
        pair = self.pair(device)
        return self.ca, str(pair.certificate), str(pair.key)


@dataclass
class Fleet:
    """The operator's tool, and devices of the group blue; what lost its power is started again."""

    doors: Doors
    maker: Operator
    folder: Path
    devices: dict[str, FleetDevice] = field(default_factory=dict)

    def words(self, verb: str, *words: str) -> list[str]:
        return [
            sys.executable, "-m", "stoker_ota.cli.main", "campaign", verb, *words,
            *self.doors.access, "--ledger", str(self.folder / "campaigns.db"),
        ]  # fmt: skip

    def tool(self, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(verb, *words), cwd=self.maker.home, env=environment(), capture_output=True,
            text=True, check=False, timeout=120,
        )  # fmt: skip

    def ok(self, verb: str, *words: str) -> dict[str, Any]:
        done = self.tool(verb, *words, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        return dict(json.loads(done.stdout.splitlines()[-1]))

    def watching(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.words("watch", *words), cwd=self.maker.home, env=environment(),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def standings(self) -> dict[str, str]:
        told = self.ok("report", "c-1")["devices"]
        return {name: found["state"] for name, found in told.items()}


@contextlib.contextmanager
def fleet(
    doors: Doors, maker: Operator, folder: Path, faults: Mapping[str, str], count: int = DEVICES
) -> Iterator[Fleet]:
    operator = FleetOperator.of_pki(maker.home / "pki")
    made = Fleet(doors, maker, folder)
    ended = threading.Event()

    def hand() -> None:
        while not ended.wait(0.1):
            for device in made.devices.values():
                if device.cut:
                    device.lose_power()
                    time.sleep(0.5)
                    device.start()

    with doors.peer() as other:
        for number in range(count):
            name = f"dev-{number}"
            home = Home(doors.address, folder / name, lambda: operator.trust, doors.files(name))
            made.devices[name] = FleetDevice(name, home, 0.2, faults.get(name, ""))
            own = operator.desired(f"d:{name}", {}, groups=("blue",))
            assert other.publish(f"{ROOT}/d/{name}/desired", own) == "Success"
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


def start(*words: str) -> list[str]:
    return ["chat", "--version", "2", "--group", "blue", "--id", "c-1", *words]
