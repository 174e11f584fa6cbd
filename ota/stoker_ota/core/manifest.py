"""The manifest: one deployment set of model, adapters, runtime and policy that belong together.

A value and its strict parser; whether it fits this device is ``targeting``, whether it
may be accepted is ``gate``. Sizes are bytes, times are UTC, durations seconds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from stoker_ota.core import chunks, envelope, fields
from stoker_ota.core.sources import Source, read_sources
from stoker_ota.errors import BadDocument
from stoker_ota.getters import Table
from stoker_ota.values.chunks import MAX_CHUNK_BYTES, MIN_CHUNK_BYTES, Chunks

MANIFEST_TYPE: Final = "application/vnd.stoker.manifest.v1+json"
MAX_MANIFEST_BYTES: Final = 256 << 10
MAX_ARTIFACTS: Final = 32
MAX_DELTAS: Final = 16
MAX_PROBES: Final = 32
MAX_CANARIES: Final = 8
MAX_WORDS: Final = 64
MAX_BYTES: Final = 1 << 40
KINDS: Final = ("model", "adapter", "runtime", "policy")
SIGNERS: Final = ("release", "policy")
"""Roles of the trust document: ``policy`` signs policies, ``release`` all the rest."""
_DAY_S: Final = 86_400


@dataclass(frozen=True, slots=True)
class Delta:
    """Makes the artifact out of a file with the hash ``from_sha256``."""

    from_sha256: str
    size: int
    sha256: str
    index_sha256: str
    sources: tuple[Source, ...]
    chunks: Chunks | None = None


@dataclass(frozen=True, slots=True)
class Artifact:
    kind: str  # model | adapter | runtime | policy
    name: str
    version: str
    release_counter: int
    size: int
    sha256: str
    base_sha256: str = ""  # of an adapter: the model it was made for
    full: tuple[Source, ...] = ()
    deltas: tuple[Delta, ...] = ()
    chunks: Chunks | None = None  # of the whole file


@dataclass(frozen=True, slots=True)
class Targets:
    """Empty = any. ``labels`` must all be the device's."""

    boards: tuple[str, ...] = ()
    arch: tuple[str, ...] = ()
    os: tuple[str, ...] = ()
    libc: tuple[str, ...] = ()
    python_abi: tuple[str, ...] = ()
    min_ram_mib: int = 0
    min_free_bytes: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rollout:
    """Who takes part when: see ``targeting.drawn``."""

    start: datetime | None = None
    duration_s: int = 0
    salt: str = ""
    max_fraction: float = 1.0


@dataclass(frozen=True, slots=True)
class Window:
    """Local hours [from, to) in which to activate; equal = always. A deadline ends the wait."""

    from_hour: int = 0
    to_hour: int = 0
    deadline: datetime | None = None


@dataclass(frozen=True, slots=True)
class Probe:
    """A text whose negative log-likelihood in nats a token must lie within bounds."""

    text: str
    min_nats: float
    max_nats: float


@dataclass(frozen=True, slots=True)
class Canary:
    """A question whose answer, at temperature 0, must hold one of ``expect`` (in any case)."""

    prompt: str
    expect: tuple[str, ...]
    max_tokens: int = 32


@dataclass(frozen=True, slots=True)
class Health:
    startup_s: int = 120
    probes: tuple[Probe, ...] = ()
    canaries: tuple[Canary, ...] = ()
    min_tok_s: float = 0.0
    max_temp_c: float = 0.0  # 0 = none but the wall, which is held anyway
    soak_s: int = 0
    confirm: str = "auto"  # auto | dbus


@dataclass(frozen=True, slots=True)
class Manifest:
    deployment_id: str
    version: int
    issued_at: datetime
    expires: datetime
    min_agent_version: str
    targets: Targets
    rollout: Rollout
    window: Window
    health: Health
    allow_metered: bool
    max_rate: int  # bytes a second; 0 = no limit
    allow_full: bool  # whether the whole artifact may be fetched when a delta fails
    depends: Mapping[str, str]  # name → least version of what must be installed already
    artifacts: tuple[Artifact, ...]

    @property
    def roles(self) -> tuple[str, ...]:
        """Whose thresholds it takes: of every kind of artifact in it."""
        wanted = {"policy" if item.kind == "policy" else "release" for item in self.artifacts}
        return tuple(role for role in SIGNERS if role in wanted)

    @property
    def counters(self) -> dict[str, int]:
        return {item.name: item.release_counter for item in self.artifacts}


def parse_manifest(payload: bytes) -> Manifest:
    """Raises BadDocument, TooLarge."""
    table = fields.open_payload(payload, "manifest", MAX_MANIFEST_BYTES)
    network = table.table("network")
    issued, expires = fields.moment(table, "issued_at"), fields.moment(table, "expires")
    if expires <= issued:
        table.refuse("expires", "is not after issued_at")
    manifest = Manifest(
        deployment_id=fields.name(table, "deployment_id"),
        version=table.whole("version", low=1, high=fields.MAX_VERSION),
        issued_at=issued,
        expires=expires,
        min_agent_version=table.text("min_agent_version", "0", max_bytes=32),
        targets=_targets(table.table("targets")),
        rollout=_rollout(table.table("rollout")),
        window=_window(table.table("window")),
        health=_health(table.table("health")),
        allow_metered=network.flag("allow_metered", False),
        max_rate=network.whole("max_rate", 0, low=0, high=1 << 40),
        allow_full=network.flag("allow_full", True),
        depends=_words(table.table("depends")),
        artifacts=tuple(
            _artifact(item) for item in table.tables("artifacts", max_items=MAX_ARTIFACTS)
        ),
    )
    network.finish()
    _check_set(table, manifest)
    table.finish()
    return manifest


def of_envelope(data: bytes, sha256: str) -> Manifest:
    """The manifest of an envelope that the gate accepted and whose hash it wrote down.

    Raises BadDocument when these are other bytes.
    """
    if hashlib.sha256(data).hexdigest() != sha256:
        raise BadDocument("cannot read manifest: these are not the bytes that were verified")
    return parse_manifest(envelope.parse(data, max_bytes=len(data)).payload)


def _check_set(table: Table, manifest: Manifest) -> None:
    if not manifest.artifacts:
        table.refuse("artifacts", "is empty")
    names = [item.name for item in manifest.artifacts]
    if len(set(names)) != len(names):
        table.refuse("artifacts", "two artifacts have one name")
    taken = {"set.json", "manifest.json"} | {
        f"{item.name}.d" for item in manifest.artifacts if item.kind == "runtime"
    }
    if taken & set(names):  # beside them in their generation
        table.refuse("artifacts", f"{min(taken & set(names))} cannot be a name here")
    for kind in ("model", "runtime", "policy"):
        if sum(item.kind == kind for item in manifest.artifacts) > 1:
            table.refuse("artifacts", f"a set has at most one {kind}")


def _artifact(table: Table) -> Artifact:
    item = Artifact(
        kind=table.choice("kind", KINDS),
        name=fields.name(table, "name"),
        version=table.text("version", max_bytes=64),
        release_counter=table.whole("release_counter", low=0, high=fields.MAX_VERSION),
        size=table.whole("size", low=0, high=MAX_BYTES),
        sha256=fields.sha256(table, "sha256"),
        base_sha256=fields.sha256(table, "base_sha256") if table.has("base_sha256") else "",
        full=read_sources(table, "full"),
        deltas=tuple(_delta(entry) for entry in table.tables("deltas", max_items=MAX_DELTAS)),
        chunks=_chunks(table),
    )
    if item.kind == "adapter" and not item.base_sha256:
        table.refuse("base_sha256", "an adapter must name the model it was made for")
    if not item.full and not item.deltas:
        table.refuse("full", "the artifact has no source")
    table.finish()
    return item


def _delta(table: Table) -> Delta:
    delta = Delta(
        from_sha256=fields.sha256(table, "from_sha256"),
        size=table.whole("size", low=1, high=MAX_BYTES),
        sha256=fields.sha256(table, "sha256"),
        index_sha256=fields.sha256(table, "index_sha256"),
        sources=read_sources(table, "sources"),
        chunks=_chunks(table),
    )
    if not delta.sources:
        table.refuse("sources", "is empty")
    table.finish()
    return delta


def _chunks(table: Table) -> Chunks | None:
    """Optional: a manifest without it is fetched whole or by ranges that the whole hash judges."""
    if not table.has("chunks"):
        return None
    inner = table.table("chunks")
    found = Chunks(
        inner.whole("size", low=MIN_CHUNK_BYTES, high=MAX_CHUNK_BYTES), fields.sha256(inner, "root")
    )
    inner.finish()
    try:
        chunks.count(table.whole("size", low=0, high=MAX_BYTES), found.size)
    except BadDocument as error:
        table.refuse("chunks", error.message)
    return found


def _targets(table: Table) -> Targets:
    lists = {key: table.texts(key, ()) for key in ("boards", "arch", "os", "libc", "python_abi")}
    targets = Targets(
        **lists,
        min_ram_mib=table.whole("min_ram_mib", 0, low=0, high=1 << 24),
        min_free_bytes=table.whole("min_free_bytes", 0, low=0, high=MAX_BYTES),
        labels=_words(table.table("labels")),
    )
    table.finish()
    return targets


def _rollout(table: Table) -> Rollout:
    rollout = Rollout(
        start=fields.moment(table, "start") if table.has("start") else None,
        duration_s=table.whole("duration_s", 0, low=0, high=366 * _DAY_S),
        salt=table.text("salt", "", max_bytes=64),
        max_fraction=table.number("max_fraction", 1.0, low=0.0, high=1.0),
    )
    table.finish()
    return rollout


def _window(table: Table) -> Window:
    window = Window(
        from_hour=table.whole("from_hour", 0, low=0, high=23),
        to_hour=table.whole("to_hour", 0, low=0, high=24),
        deadline=fields.moment(table, "deadline") if table.has("deadline") else None,
    )
    table.finish()
    return window


def _health(table: Table) -> Health:
    probes = []
    for item in table.tables("probes", max_items=MAX_PROBES):
        probe = Probe(
            text=item.text("text", max_bytes=16 << 10),
            min_nats=item.number("min_nats", 0.0, low=0.0, high=100.0),
            max_nats=item.number("max_nats", low=0.0, high=100.0),
        )
        item.finish()
        probes.append(probe)
    health = Health(
        startup_s=table.whole("startup_s", 120, low=1, high=3600),
        probes=tuple(probes),
        canaries=tuple(map(_canary, table.tables("canaries", max_items=MAX_CANARIES))),
        min_tok_s=table.number("min_tok_s", 0.0, low=0.0, high=1e6),
        max_temp_c=table.number("max_temp_c", 0.0, low=0.0, high=150.0),
        soak_s=table.whole("soak_s", 0, low=0, high=_DAY_S),
        confirm=table.choice("confirm", ("auto", "dbus"), "auto"),
    )
    table.finish()
    return health


def _canary(table: Table) -> Canary:
    canary = Canary(
        prompt=table.text("prompt", max_bytes=4 << 10),
        expect=table.texts("expect", max_items=16),
        max_tokens=table.whole("max_tokens", 32, low=1, high=256),
    )
    if not all(canary.expect) or not canary.expect:
        table.refuse("expect", "must name what the answer holds")
    table.finish()
    return canary


def _words(table: Table) -> dict[str, str]:
    words = {key: table.text(key, max_bytes=128) for key in table.keys()}  # noqa: SIM118
    if len(words) > MAX_WORDS:
        table.refuse("", "has too many entries")
    return words
