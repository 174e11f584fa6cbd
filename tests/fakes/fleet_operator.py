"""A fleet's operator for tests: signed commands and desired states, right ones and wrong ones."""

from __future__ import annotations

import os
import time
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.fakes.pki import Party, World, seal

from stoker_ota.core import documents, fleet_documents
from stoker_ota.core.fleet_documents import Command, Desired, Target
from stoker_ota.services import authority


def uuid7() -> str:
    """Version 7 of RFC 9562: milliseconds first, then random bits."""
    stamp = int(time.time() * 1000) & ((1 << 48) - 1)
    rest = int.from_bytes(os.urandom(10), "big")
    value = (stamp << 80) | rest
    value = (value & ~(0xF << 76)) | (7 << 76)
    value = (value & ~(0x3 << 62)) | (2 << 62)
    return str(uuid.UUID(int=value))


@dataclass
class FleetOperator:
    world: World = field(default_factory=World)
    sequence: int = 0
    version: int = 0
    trust: bytes = b""

    @classmethod
    def of_pki(cls, folder: Path) -> FleetOperator:
        """Who signs with the keys that ``stoker-ota init-pki`` has made."""
        holder = authority.load(
            "fleet", (folder / "keys/fleet.pem").read_bytes(),
            (folder / "certificates/fleet.pem").read_bytes(), b"correct horse",
        )  # fmt: skip
        world = World()
        world.parties["fleet"] = Party(holder.key, holder.certificate, holder.above)
        return cls(world, trust=(folder / "trust/1.json").read_bytes())

    def write_trust(self, path: Path) -> Path:
        if self.trust:
            path.write_bytes(self.trust)
            return path
        payload = documents.trust_payload(self.world.trust())
        path.write_bytes(seal(documents.TRUST_TYPE, payload, self.world.parties["trust"]))
        return path

    def next_trust(self, **changes: object) -> bytes:
        """Version 2, as the topic ``trust/2`` would have it."""
        payload = documents.trust_payload(self.world.trust(2, **changes))
        return seal(documents.TRUST_TYPE, payload, self.world.parties["trust"])

    def value(
        self, device: str, command: str, args: dict[str, object] | None = None, **changes: object
    ) -> Command:
        """``issued`` and ``life`` (timedelta), ``target``, ``sequence``, ``id``."""
        self.sequence += 1
        issued = changes.get("issued", datetime.now(UTC).replace(microsecond=0))
        assert isinstance(issued, datetime)
        life = changes.get("life", timedelta(minutes=10))
        assert isinstance(life, timedelta)
        target = changes.get("target", Target(device=device))
        assert isinstance(target, Target)
        return Command(
            str(changes.get("id", uuid7())), int(str(changes.get("sequence", self.sequence))),
            issued, issued + life, target, command, args or {},
        )  # fmt: skip

    def signed(self, command: Command, by: Party | None = None) -> bytes:
        payload = fleet_documents.command_payload(command)
        return seal(fleet_documents.COMMAND_TYPE, payload, by or self.world.parties["fleet"])

    def command(
        self, device: str, command: str, args: dict[str, object] | None = None, **changes: object
    ) -> tuple[str, bytes]:
        """(id, what goes to the topic)."""
        value = self.value(device, command, args, **changes)
        return value.id, self.signed(value)

    def desired(
        self, audience: str, sections: dict[str, dict[str, object]], **changes: object
    ) -> bytes:
        """``groups``, ``version``, ``life``, ``by``."""
        self.version = int(str(changes.get("version", self.version + 1)))
        issued = datetime.now(UTC).replace(microsecond=0)
        life = changes.get("life", timedelta(days=30))
        assert isinstance(life, timedelta)
        groups = changes.get("groups", ())
        assert isinstance(groups, tuple)
        by = changes.get("by", self.world.parties["fleet"])
        assert isinstance(by, Party)
        value = Desired(audience, self.version, issued, issued + life, sections, groups)
        return seal(fleet_documents.DESIRED_TYPE, fleet_documents.desired_payload(value), by)
