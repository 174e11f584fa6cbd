"""TUF metadata for ``core.rules``: a shim that reads it, and a repository that writes it.

The client's workflow of the TUF specification 1.0 (5.3 to 5.6). What it decides itself is TUF's
encoding: JSON, key ids, ed25519. Every verdict is a rule's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from stoker_ota.core import rules
from stoker_ota.core.clock import Now
from stoker_ota.core.floors import Floors
from stoker_ota.core.rules import Entry

Tuf = dict[str, Any]
ROLES = ("root", "timestamp", "snapshot", "targets")
_TIME = "%Y-%m-%dT%H:%M:%SZ"


def canonical(value: object) -> bytes:
    """Of OLPC's canonical JSON what these values need."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


@dataclass(frozen=True)
class Client:
    """A TUF client's trusted metadata as values. Each method gives the next one, or a typed
    error of the rule that refuses; then this one is what it was.
    """

    root: Tuf
    now: Now
    floors: Floors = field(default_factory=Floors)
    listed: Mapping[str, Mapping[str, Entry]] = field(default_factory=dict)  # by role

    def walk(self, steps: Iterable[bytes]) -> Client:
        """5.3: each root is signed by its own keys and by those before it."""
        at = self
        for data in steps:
            signed = json.loads(data)["signed"]
            rules.enough(_signers(data, at.root, "root"), _threshold(at.root, "root"), "root")
            rules.follows(signed["version"], at.root["version"], "root")
            rules.enough(_signers(data, signed, "root"), _threshold(signed, "root"), "root")
            at = at._in_new_hands(signed)
        rules.fresh(_expires(at.root), self.now, "root")
        return at

    def timestamp(self, data: bytes) -> Client:
        """5.4"""
        return self._accept("timestamp", data)

    def snapshot(self, data: bytes) -> Client:
        """5.5"""
        return self._accept("snapshot", data, by="timestamp")

    def targets(self, data: bytes) -> Client:
        """5.6"""
        return self._accept("targets", data, by="snapshot")

    def file(self, name: str, data: bytes) -> None:
        """5.7"""
        rules.listed(name, self.listed["targets"], data, 0, "file", "targets")

    def _accept(self, role: str, data: bytes, by: str = "") -> Client:
        signed = json.loads(data)["signed"]
        if by:
            name, above = f"{role}.json", self.listed[by]
            rules.listed(name, above, data, signed["version"], "metadata", by)
        rules.enough(_signers(data, self.root, role), _threshold(self.root, role), role)
        rules.not_older(signed["version"], self.floors.document(role), role)
        entries = _entries(signed)
        if role != "targets":  # files may go, metadata may not
            rules.names_kept(self.listed.get(role, {}), entries, role)
        rules.fresh(_expires(signed), self.now, role)
        floors = self.floors.accepted(role, signed["version"], self.now.moment, self.now)
        return replace(self, floors=floors, listed={**self.listed, role: entries})

    def _in_new_hands(self, root: Tuf) -> Client:
        """5.3.11: recovery from a thief's fast-forward."""
        if all(self.root["roles"][r] == root["roles"][r] for r in ("timestamp", "snapshot")):
            return replace(self, root=root)
        return replace(self, root=root, floors=self.floors.without_catalog(), listed={})


def _threshold(root: Tuf, role: str) -> int:
    return int(root["roles"][role]["threshold"])


def _expires(signed: Tuf) -> datetime:
    return datetime.strptime(signed["expires"], _TIME).replace(tzinfo=UTC)


def _signers(data: bytes, root: Tuf, role: str) -> set[str]:
    """Ids of the role's keys whose signature holds; an id is its key's hash, so that one key
    under two ids does not count twice."""
    envelope, found = json.loads(data), set[str]()
    message = canonical(envelope["signed"])
    for item in envelope["signatures"]:
        name, key = item["keyid"], root["keys"].get(item["keyid"])
        if name not in root["roles"][role]["keyids"] or key is None or _key_id(key) != name:
            continue
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key["keyval"]["public"]))
        try:
            public.verify(bytes.fromhex(item["sig"]), message)
        except InvalidSignature:
            continue
        found.add(name)
    return found


def _entries(signed: Tuf) -> dict[str, Entry]:
    """What metadata says of others: all of it where our rules can judge it."""
    listed = signed["targets"] if signed["_type"] == "targets" else signed["meta"]
    return {
        name: Entry(item.get("version", 0), item["hashes"]["sha256"], item["length"])
        for name, item in listed.items()
    }


def _key_id(key: Tuf) -> str:
    return hashlib.sha256(canonical(key)).hexdigest()


class Key:
    """A signer's."""

    def __init__(self, seed: int) -> None:
        self._private = Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)
        public = self._private.public_key().public_bytes_raw().hex()
        self.value = {"keytype": "ed25519", "scheme": "ed25519", "keyval": {"public": public}}
        self.id = _key_id(self.value)

    def sign(self, signed: Tuf) -> Tuf:
        return {"keyid": self.id, "sig": self._private.sign(canonical(signed)).hex()}


@dataclass
class Repository:
    """Writes metadata as a TUF repository does. ``keys``: each role's."""

    keys: dict[str, list[Key]]
    thresholds: dict[str, int] = field(default_factory=dict)
    expires: dict[str, str] = field(default_factory=dict)

    def root(self, version: int, *also: Key, by: list[Key] | None = None) -> bytes:
        """Signed by its own keys and ``also``, or only ``by``."""
        every = {key.id: key.value for keys in self.keys.values() for key in keys}
        roles = {
            role: {"keyids": [k.id for k in self.keys[role]],
                   "threshold": self.thresholds.get(role, 1)}
            for role in ROLES
        }  # fmt: skip
        body = {"consistent_snapshot": False, "keys": every, "roles": roles}
        return self._signed(
            "root", version, body, [*self.keys["root"], *also] if by is None else by
        )

    def online(
        self, version: int, files: Mapping[str, bytes], change: Callable[[Tuf], None] | None = None
    ) -> tuple[bytes, bytes, bytes]:
        """(timestamp, snapshot, targets), all of one version; ``change``: of the snapshot's
        list before it is signed."""
        targets = self._signed("targets", version, {"targets": _named(files, None)})
        meta = _named({"targets.json": targets}, version)
        if change is not None:
            change(meta)
        snapshot = self._signed("snapshot", version, {"meta": meta})
        above = {"meta": _named({"snapshot.json": snapshot}, version)}
        return self._signed("timestamp", version, above), snapshot, targets

    def _signed(self, role: str, version: int, body: Tuf, by: list[Key] | None = None) -> bytes:
        expires = self.expires.get(role, "2026-06-01T00:00:00Z")
        signed = {"_type": role, "spec_version": "1.0.31", "version": version,
                  "expires": expires, **body}  # fmt: skip
        keys = self.keys[role] if by is None else by
        return canonical({"signed": signed, "signatures": [key.sign(signed) for key in keys]})


def _named(files: Mapping[str, bytes], version: int | None) -> Tuf:
    more = {} if version is None else {"version": version}
    return {
        name: {"length": len(data), "hashes": {"sha256": hashlib.sha256(data).hexdigest()}, **more}
        for name, data in files.items()
    }
