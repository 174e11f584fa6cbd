"""A stokerd that belongs to a fleet, its broker, and the operator who watches and commands."""

from __future__ import annotations

import contextlib
import json
import queue
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fakes.fleet_operator import FleetOperator
from tests.fakes.mqtt_peer import Peer
from tests.integration.broker_rig import OPERATOR, ROOT, Broker, peer
from tests.integration.stokerd_rig import Stokerd, stokerd, until

from stoker.api import contract
from stoker.tour.private_bus import PrivateBus

Facts = dict[str, Any]
DEVICE = "dev-1"


def fleet_config(
    broker: Broker, trust: Path, device: str = DEVICE, updates: str = "", **more: object
) -> str:
    rows: dict[str, object] = {"telemetry_s": 0.0, "reconnect_cap_s": 2.0, **more}
    if broker.unix:
        rows["broker"] = f"unix:{broker.path}"
    elif broker.tls is not None:
        pair = broker.tls.device(device)
        rows |= {
            "broker": f"mqtts://{broker.host}:{broker.port}", "ca": str(broker.tls.ca),
            "certificate": str(pair.certificate), "key": str(pair.key),
        }  # fmt: skip
    else:
        rows["broker"] = f"mqtt://127.0.0.1:{broker.port}"
    text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in rows.items())
    return f'[device]\nid = "{device}"\n[updates]\ntrust = "{trust}"\n{updates}[fleet]\n{text}'


@dataclass
class Ear:
    """The operator's connection: everything that devices say, by topic."""

    peer: Peer
    device: str = DEVICE
    heard: list[tuple[str, bytes, bool]] = field(default_factory=list)

    def listen(self) -> None:
        self.peer.subscribe(f"{ROOT}/d/#")

    def pump(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                found = self.peer.messages.get_nowait()
                self.heard.append((found.topic, bytes(found.payload), bool(found.retain)))

    def results(self, command: str = "") -> list[Facts]:
        """Of one command, or all; oldest first."""
        self.pump()
        topic = f"{ROOT}/d/{self.device}/result"
        found = [json.loads(payload) for where, payload, _ in self.heard if where == topic]
        return [item for item in found if not command or item["id"] == command]

    def last(self, leaf: str) -> Facts:
        self.pump()
        topic = f"{ROOT}/d/{self.device}/{leaf}"
        found = [payload for where, payload, _ in self.heard if where == topic]
        return dict(json.loads(found[-1])) if found else {}

    def end(self, command: str, timeout_s: float = 30.0) -> Facts:
        """The final result."""
        final = ("succeeded", "failed", "rejected", "expired", "canceled")

        def over() -> Facts | None:
            found = [item for item in self.results(command) if item["state"] in final]
            return found[-1] if found else None

        return dict(until(over, f"the end of {command}: {self.results(command)}", timeout_s))

    def say(self, leaf: str, payload: bytes, *, retain: bool = False, device: str = "") -> None:
        topic = f"{ROOT}/d/{device or self.device}/{leaf}"
        assert self.peer.publish(topic, payload, retain=retain) == "Success"


@dataclass
class Rig:
    broker: Broker
    operator: FleetOperator
    ear: Ear
    daemon: Stokerd
    env: dict[str, str] = field(default_factory=dict)

    def facts(self) -> Facts:
        return self.daemon.client.get_all(contract.FLEET)

    def online(self, timeout_s: float = 20.0) -> None:
        until(lambda: self.facts()["State"] == "online", f"online: {self.facts()}", timeout_s)

    def restart(self) -> None:
        """The same device, on the same state."""
        old = self.daemon
        if old.process.poll() is None:
            old.stop()
        self.daemon = Stokerd(
            old.bus, old.home, self.env, "--engine=echo", config=old.config_file.read_text()
        )
        self.online()

    def kill(self) -> None:
        """A power cut, and on again."""
        self.daemon.process.send_signal(signal.SIGKILL)
        self.daemon.process.wait(10)
        self.daemon.client.close()
        self.restart()

    def broker_dies(self, how: signal.Signals = signal.SIGKILL) -> None:
        """And comes back, and so does everybody. The operator listens before the device speaks."""
        session = self.facts()["Session"]
        self.broker.stop(how)
        self.daemon.process.send_signal(signal.SIGSTOP)
        self.broker.start()
        until(self.ear.peer.client.is_connected, "the operator", 30.0)
        self.ear.listen()
        self.daemon.process.send_signal(signal.SIGCONT)
        # its birth comes after its subscriptions: from then on it hears commands
        until(lambda: self.ear.last("status").get("session", 0) > session, "its birth", 90.0)
        self.online(90.0)

    def do(self, command: str, args: Facts | None = None, **changes: Any) -> Facts:
        """Sign, send, wait for the end."""
        identity, payload = self.operator.command(self.ear.device, command, args, **changes)
        self.ear.say("cmd", payload)
        return self.ear.end(identity)

    def quiet(self, seconds: float = 1.0) -> list[Facts]:
        """Results that come although none should."""
        before = len(self.ear.results())
        time.sleep(seconds)
        return self.ear.results()[before:]


@contextlib.contextmanager
def fleet(
    bus: PrivateBus, home: Path, env: dict[str, str], broker: Broker,
    more: Mapping[str, Any] | None = None, *, extra: str = "",
    operator: FleetOperator | None = None, **others: Any,
) -> Iterator[Rig]:  # fmt: skip
    """Everything running; the device is online."""
    operator = operator or FleetOperator()
    home.mkdir(parents=True, exist_ok=True)
    trust = operator.write_trust(home / "trust.json")
    models = ""
    for name in ("one", "two"):
        (home / name).write_bytes(name.encode() * 4096)
        models += f'[models.{name}]\npath = "{home / name}"\n'
    config = fleet_config(broker, trust, **(more or {}), **others) + models + extra
    with contextlib.ExitStack() as stack:
        other = stack.enter_context(peer(broker, OPERATOR))
        ear = Ear(other)
        ear.listen()
        daemon = stack.enter_context(stokerd(bus, home, env, "--engine=echo", config=config))
        rig = Rig(broker, operator, ear, daemon, env)
        rig.online(60)
        daemon.wait_ready()
        try:
            yield rig
        finally:
            if rig.daemon is not daemon:
                rig.daemon.stop()
