"""org.stoker.Fleet1: the connection to a fleet's broker as everyone may see it, and its test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stoker.api import contract
from stoker.api.exports import Answer, Door, Later, bus_text, vardict
from stoker.api.managing import as_manager
from stoker.core import fleet_words
from stoker.events.fleet import FleetSnapshot, ProbeStep, Record
from stoker.events.inference import Owner
from stoker.ports.fleet import FleetDoor
from stoker.ports.system import Authority


class FleetRoom:
    def __init__(self, service: FleetDoor, authority: Authority) -> None:
        self._service, self._authority = service, authority

    def door(self) -> Door:
        return Door(
            contract.FLEET,
            {
                "Test": self.test,
                "ListCommands": self.list_commands,
                "Enroll": self.enroll,
                "Adopt": self.adopt,
            },
            lambda _owner: properties(self._service.snapshot()),
        )

    def test(self, owner: Owner, _args: tuple[Any, ...]) -> Later:
        steps = as_manager(self._authority, owner, "test the broker", self._service.test)
        return Later(steps, _steps)

    def enroll(self, owner: Owner, _args: tuple[Any, ...]) -> Later:
        asked = as_manager(self._authority, owner, "enroll this device", self._service.enroll)
        return Later(asked, lambda pem: Answer((pem,)))

    def adopt(self, owner: Owner, args: tuple[Any, ...]) -> Later:
        pem = str(args[0])
        done = as_manager(
            self._authority, owner, "change the certificate", lambda: self._service.adopt(pem)
        )
        return Later(done, lambda _done: Answer())

    def list_commands(self, _owner: Owner, _args: tuple[Any, ...]) -> Later:
        return Later(self._service.recent(), _commands)


def properties(now: FleetSnapshot) -> dict[str, Any]:
    return {
        "State": now.state,
        "Broker": now.broker,
        "Device": now.device,
        "Protocol": now.protocol,
        "Session": now.session,
        "Problem": (now.problem_code, bus_text(now.problem_text)),
        "Denied": [bus_text(topic) for topic in now.denied],
        "Warnings": [bus_text(text) for text in now.warnings],
        "Groups": list(now.groups),
        "Desired": dict(now.desired),
        "Stale": now.stale,
        "Outbox": (now.outbox, now.outbox_bytes),
        "Dropped": now.dropped,
        "Commands": now.commands,
        "Forged": now.forged,
        "LastCommand": now.last_command,
        "CertificateExpires": now.certificate_expires,
    }


def _steps(found: Sequence[ProbeStep]) -> Answer:
    facts = [
        vardict(
            name=("s", step.name),
            outcome=("s", step.outcome),
            text=("s", bus_text(step.text)),
            hint=("s", bus_text(step.hint)),
        )
        for step in found
    ]
    return Answer((facts,))


def _commands(found: Sequence[Record]) -> Answer:
    facts = [
        vardict(
            id=("s", item.id),
            command=("s", item.command),
            state=("s", item.state),
            code=("s", item.code),
            text=("s", bus_text(item.text)),
            issued=("s", fleet_words.moment(item.issued_s) if item.issuer else ""),
        )
        for item in found
    ]
    return Answer((facts,))
