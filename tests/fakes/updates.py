"""What the update engine talks to, behaving: sources, a patcher, health, surroundings.

The patcher's deltas are one byte to add to every byte of the source: enough to need the
right source and to fail on a wrong one. Everything writes through the disk that can be cut.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.fakes.disk import FakeDisk
from tests.fakes.pki import START
from tests.unit.ota.manifest_rig import manifest_value

from stoker_ota.core import envelope, manifest
from stoker_ota.core.clock import Now
from stoker_ota.core.manifest import Manifest
from stoker_ota.core.targeting import Device
from stoker_ota.errors import BadDelta, Cancelled, OtaError, SourceMismatch, Unavailable, Unhealthy
from stoker_ota.ports.files import Progress
from stoker_ota.services.engine import Engine, Ports
from stoker_ota.services.store import Store
from stoker_ota.values.deployment import Journal, Member, Offer
from stoker_ota.values.fetching import Wanted

OLD = b"the model that is here\n" * 8
NEW = bytes((byte + 1) % 256 for byte in OLD)
DELTA = b"\x01"
MORE = bytes((byte + 1) % 256 for byte in NEW)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass
class Sources:
    disk: FakeDisk
    files: dict[str, bytes] = field(default_factory=dict)
    error: OtaError | None = None
    fetched: list[str] = field(default_factory=list)
    wanted: list[Wanted] = field(default_factory=list)

    def fetch(self, wanted: Wanted, part: str, progress: Progress) -> None:
        if self.error is not None:
            raise self.error
        found = next((uri for uri in wanted.uris if uri in self.files), None)
        if found is None:
            raise Unavailable(f"cannot fetch {wanted.uris[0]}: nobody has it")
        self.wanted.append(wanted)
        self.fetched.append(found)
        begun = self.disk.size(part) or 0
        self.disk.append(part, self.files[found][begun:])


@dataclass
class Patcher:
    disk: FakeDisk
    error: OtaError | None = None
    cancelled: Callable[[], bool] = lambda: False

    def apply(
        self, delta: str, index_sha256: str, source: str, part: str, size: int, progress: Progress
    ) -> None:
        if self.error is not None:
            raise self.error
        if self.cancelled():
            raise Cancelled("cannot go on applying the delta: it was cancelled")
        step, old = self.disk.read(delta, 1 << 20), self.disk.read(source, 1 << 20)
        if old is None:
            raise SourceMismatch("cannot apply the delta: its source is gone")
        if step is None or len(step) != 1:
            raise BadDelta("cannot apply the delta: it is damaged")
        if len(old) != size:
            raise BadDelta(f"cannot apply the delta: it does not make {size} bytes")
        self.disk.write(part, bytes((byte + step[0]) % 256 for byte in old))
        progress("apply", size, size)


@dataclass
class Health:
    """``serving`` is what clients get; a file with a hash in ``sick`` fails its probes."""

    disk: FakeDisk
    sick: set[str] = field(default_factory=set)
    error: OtaError | None = None
    serving: int = 0
    fault: str = ""  # of the set that was returned to
    tested: list[int] = field(default_factory=list)
    cramped: OtaError | None = None

    def room(self, manifest: Manifest) -> None:
        if self.cramped is not None:
            raise self.cramped

    def test(self, manifest: Manifest, generation: int, members: tuple[Member, ...]) -> None:
        if self.error is not None:
            raise self.error
        self.tested.append(generation)
        if self.sick & {member.sha256 for member in members}:
            raise Unhealthy("cannot keep the set: a probe is out of bounds")
        self.serving = generation

    def switch(self, generation: int, members: tuple[Member, ...]) -> str:
        if self.error is not None:
            raise self.error
        self.serving = generation
        return self.fault


@dataclass
class Around:
    moment: Now = field(default_factory=lambda: Now(START, trusted=True))
    hour: int = 12
    facts: Device = field(default_factory=lambda: Device("device-1", board="pi", ram_mib=4096))
    inhibitor: str = ""
    memory: int = 1 << 30
    files: dict[str, str] = field(default_factory=dict)

    def now(self) -> Now:
        return self.moment

    def local_hour(self) -> int:
        return self.hour

    def device(self) -> Device:
        return self.facts

    def free_memory_bytes(self) -> int:
        return self.memory

    def inhibited(self) -> str:
        return self.inhibitor

    def package_files(self) -> Mapping[str, str]:
        return self.files


@dataclass
class Bench:
    """A device whose installed model can become the next one."""

    disk: FakeDisk = field(default_factory=FakeDisk)

    def __post_init__(self) -> None:
        self.sources = Sources(self.disk, {"file:delta": DELTA, "file:full": NEW})
        self.patcher, self.health = Patcher(self.disk), Health(self.disk)
        self.around = Around()
        self.reports: list[Journal] = []

    def boot(self) -> Engine:
        """A new process on what the disk has; the runtime uses what ``current`` says."""
        store = Store(self.disk)
        ports = Ports(self.disk, self.sources, self.patcher, self.health, self.around)
        self.health.serving = store.current()
        engine = Engine(store, ports, report=self.reports.append)
        engine.start()
        return engine

    def cut(self, disk: FakeDisk) -> None:
        """The power was cut: everything goes on with this disk."""
        self.disk = disk
        for part in (self.sources, self.patcher, self.health):
            part.disk = disk

    def install_old(self) -> None:
        store = Store(self.disk)
        self.disk.make_folder("staging/x")
        self.disk.write("staging/x/part", OLD)
        store.adopt("staging/x/part", sha(OLD))
        number = store.make_generation(b"{}", [Member("model", "chat", "1", sha(OLD))])
        store.activate(number, previous=0)

    def content(self) -> bytes | None:
        """What the device would run after a restart; checks that it is whole."""
        store = Store(self.disk)
        number = store.current()
        if number == 0:
            return None
        (member,) = store.members(number)
        data = self.disk.read(f"generations/{number}/{member.name}", 1 << 20)
        assert data is not None
        assert sha(data) == member.sha256
        return data


def document(**changes: object) -> tuple[bytes, Offer]:
    """A manifest from OLD to NEW and its offer (the gate's work is not repeated here)."""
    artifact = {
        "kind": "model", "name": "chat", "version": "2", "release_counter": 2, "size": len(NEW),
        "sha256": sha(NEW), "full": ["file:full"],
        "deltas": [
            {
                "from_sha256": sha(OLD), "size": len(DELTA), "sha256": sha(DELTA),
                "index_sha256": sha(b"index"), "sources": ["file:delta"],
            }
        ],
    }  # fmt: skip
    value = manifest_value(**{"version": 2, "artifacts": [artifact], **changes})
    payload = json.dumps(value).encode()
    data = envelope.encode(
        envelope.Envelope(
            manifest.MANIFEST_TYPE, payload, (envelope.Signature(bytes(64), (b"der",)),)
        )
    )
    parsed = manifest.parse_manifest(payload)
    confirm = parsed.health.confirm == "dbus"
    offer = Offer("chat", parsed.version, sha(data), parsed.allow_full, confirm)
    return data, offer
