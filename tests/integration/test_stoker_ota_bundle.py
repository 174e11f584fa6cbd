"""From an operator's keys to a device's new model, on real files and with real processes.

The build host's program makes keys, delta, documents and bundle; the device's engine
judges the documents, fetches from the bundle, applies the delta in a child and commits.
"""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.fakes.update_bundles import environment
from tests.fakes.updates import Around, sha

from stoker_ota.cli.keyring import read_trust
from stoker_ota.core import clock, gate, manifest
from stoker_ota.core.clock import Now
from stoker_ota.core.floors import Floors
from stoker_ota.drivers.bundle_source import BundleSource
from stoker_ota.drivers.disk import RealDisk
from stoker_ota.drivers.patcher import ChildPatcher
from stoker_ota.errors import BadChain, MixAndMatch
from stoker_ota.services.engine import Engine, Ports
from stoker_ota.services.store import Store
from stoker_ota.values.deployment import Member, Offer, Phase

WHEN = "2026-01-31T12:00:00Z"
NOW = Now(clock.parse("2026-02-01T00:00:00Z", "now"), trusted=True)


def _ota(*words: str, home: Path, status: int = 0) -> dict[str, object]:
    command = [sys.executable, "-m", "stoker_ota.cli.main", *words, "--json"]
    done = subprocess.run(command, cwd=home, env=environment(), capture_output=True, check=False)
    assert done.returncode == status, done.stderr.decode() + done.stdout.decode()
    return json.loads(done.stdout) if done.stdout else {}


RECIPE = """
deployment_id = "chat"
version = 1

[[artifacts]]
kind = "model"
name = "chat"
version = "2"
release_counter = 2
file = "v2"
deltas = ["v1-v2.delta"]
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An operator's folder with a bundle that leads from v1 to v2."""
    folder = tmp_path_factory.mktemp("operator")
    chance = random.Random(1)
    old = bytearray(chance.randbytes(300_000))
    (folder / "v1").write_bytes(old)
    for _ in range(200):
        old[chance.randrange(len(old))] ^= 0x10
    (folder / "v2").write_bytes(bytes(old) + b"and an end")
    (folder / "chat.toml").write_text(RECIPE)
    _ota("init-pki", "--now", WHEN, home=folder)
    _ota("delta", "make", "v1", "v2", "-o", "v1-v2.delta", "--jobs", "1", home=folder)
    _ota("manifest", "make", "chat.toml", "-o", "chat.json", "--now", WHEN, home=folder)
    _ota("catalog", "make", "chat.json", "-o", "catalog.json", "--now", WHEN, home=folder)
    _ota(
        "bundle", "make", "catalog.json", "chat.json", "--blobs", "v2", "v1-v2.delta",
        "--trust", "pki/trust/1.json", "-o", "usb", home=folder,
    )  # fmt: skip
    return folder


@dataclass
class Health:
    switched: list[int] = field(default_factory=list)

    def room(self, manifest: manifest.Manifest) -> None: ...

    def test(
        self, manifest: manifest.Manifest, generation: int, members: tuple[Member, ...]
    ) -> None:
        self.switched.append(generation)

    def switch(self, generation: int, members: tuple[Member, ...]) -> str:
        self.switched.append(generation)
        return ""


def _device(root: Path, bundle: Path, package: Path) -> tuple[Engine, Store, Health]:
    disk, health = RealDisk(root), Health()
    around = Around(moment=NOW, files={sha(package.read_bytes()): str(package)})
    ports = Ports(disk, BundleSource(bundle, root), ChildPatcher(root), health, around)
    store = Store(disk)
    engine = Engine(store, ports)
    engine.start()
    return engine, store, health


def _accept(home: Path) -> tuple[bytes, Offer]:
    trust = read_trust(home / "pki/trust/1.json")
    data = (home / "usb/catalog.json").read_bytes()
    catalog = gate.accept_catalog(data, trust, Floors(), None, NOW).catalog
    envelope = (home / "usb/manifests/chat.json").read_bytes()
    found = gate.accept_manifest("chat", envelope, trust, catalog, Floors(), NOW)
    return envelope, Offer("chat", found.version, sha(envelope), found.allow_full)


def test_a_signed_delta_of_a_bundle_is_verified_applied_and_committed(
    home: Path, tmp_path: Path
) -> None:
    engine, store, health = _device(tmp_path, home / "usb", home / "v1")
    engine.offer(*_accept(home))
    engine.run()
    assert engine.journal.phase is Phase.IDLE
    assert (tmp_path / "current/chat").read_bytes() == (home / "v2").read_bytes()
    assert health.switched == [1]
    assert store.floors().counters == {"chat": 2}
    assert not list((tmp_path / "staging").iterdir())


def test_a_device_without_the_delta_s_source_takes_the_whole_file(
    home: Path, tmp_path: Path
) -> None:
    engine, _, _ = _device(tmp_path, home / "usb", home / "chat.toml")
    engine.offer(*_accept(home))
    engine.run()
    assert (tmp_path / "current/chat").read_bytes() == (home / "v2").read_bytes()


def test_a_damaged_blob_never_becomes_current(home: Path, tmp_path: Path) -> None:
    stick = tmp_path / "stick"
    subprocess.run(["cp", "-r", home / "usb", stick], check=True)
    for blob in (stick / "blobs").iterdir():
        data = bytearray(blob.read_bytes())
        data[len(data) // 2] ^= 1
        blob.unlink()
        blob.write_bytes(data)
    root = tmp_path / "device"
    root.mkdir()
    engine, store, _ = _device(root, stick, home / "v1")
    engine.offer(*_accept(home))
    engine.run()
    assert engine.journal.phase is Phase.IDLE
    assert store.current() == 0
    assert store.history().records[-1]["code"] == "chunk-hash"


def test_verify_judges_a_bundle_as_a_device_does(home: Path, tmp_path: Path) -> None:
    trust = str(home / "pki/trust/1.json")
    facts = _ota("verify", "usb", "--trust", trust, "--now", WHEN, home=home)
    assert facts["manifests"] == {"chat": 1}
    assert facts["blobs"] == 2
    _ota("verify", "usb", "--trust", trust, "--now", "2027-01-01T00:00:00Z", home=home, status=77)
    other = tmp_path / "other"
    other.mkdir()
    _ota("init-pki", "--now", WHEN, home=other)
    strange = str(other / "pki/trust/1.json")
    _ota("verify", "usb", "--trust", strange, "--now", WHEN, home=home, status=77)


def test_rotated_and_revoked_keys_are_walked_and_believed(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "operator"
    subprocess.run(["cp", "-r", home, folder], check=True)
    _ota("trust", "rotate", "release", "--revoke", "--now", WHEN, home=folder)
    _ota("trust", "rotate", "trust", "--now", WHEN, home=folder)
    steps = [(folder / f"pki/trust/{n}.json").read_bytes() for n in (2, 3)]
    trust, _ = gate.walk_trust(steps, read_trust(home / "pki/trust/1.json"))
    assert trust.version == 3
    old = (home / "chat.json").read_bytes()
    data = (home / "catalog.json").read_bytes()
    catalog = gate.accept_catalog(data, trust, Floors(), None, NOW).catalog
    with pytest.raises(BadChain):
        gate.accept_manifest("chat", old, trust, catalog, Floors(), NOW)
    _ota("manifest", "make", "chat.toml", "-o", "new.json", "--now", WHEN, home=folder)
    with pytest.raises(MixAndMatch):  # the catalog still lists the old bytes
        gate.accept_manifest(
            "chat", (folder / "new.json").read_bytes(), trust, catalog, Floors(), NOW
        )


def test_same_inputs_make_the_same_documents_and_keys_are_never_overwritten(
    home: Path,
) -> None:
    _ota("manifest", "make", "chat.toml", "-o", "again.json", "--now", WHEN, home=home)
    assert (home / "again.json").read_bytes() == (home / "chat.json").read_bytes()
    keys = sorted((home / "pki/keys").iterdir())
    assert all(key.stat().st_mode & 0o077 == 0 for key in keys)
    assert all(b"ENCRYPTED" in key.read_bytes() for key in keys)
    _ota("init-pki", home=home, status=64)
    _ota("manifest", "make", "chat.toml", "-o", "chat.json", "--now", WHEN, home=home, status=64)


def test_probes_come_as_toml_that_a_recipe_takes(home: Path) -> None:
    (home / "q4.jsonl").write_text('{"text": "a \\"quoted\\" text", "nats_per_token": 2.5}\n')
    probes = _ota("probe", "make", "q4.jsonl", home=home)
    assert isinstance(probes, list)
    assert probes[0]["max_nats"] == pytest.approx(2.75)


def test_every_kind_is_made_from_the_command_line_and_the_same_bytes_again(
    home: Path, tmp_path: Path
) -> None:
    work = tmp_path / "operator"
    subprocess.run(["cp", "-r", home, work], check=True)
    (work / "site.toml").write_text('deployment_id = "site"\nversion = 4\n')
    (work / "libs").mkdir()
    for name in ("libllama.so", "libggml.so"):
        (work / "libs" / name).write_bytes(name.encode() * 99)
    (work / "policy.toml").write_text("[quotas]\nqueued_jobs = 3\n")
    made = []
    for out in ("one", "two"):
        words = ["--model", "chat=v2", "--adapter", "terse=v1", "--runtime", "libs"]
        words += ["--policy", "policy.toml", "--now", WHEN, "-o", f"{out}.json"]
        _ota("manifest", "make", "site.toml", *words, home=work)
        _ota("catalog", "make", f"{out}.json", "-o", f"{out}-cat.json", "--now", WHEN, home=work)
        tar = f"{out}.runtime.tar"
        _ota(
            "bundle", "make", f"{out}-cat.json", f"{out}.json", "--blobs", "v2", "v1",
            "policy.toml", tar, "--trust", "pki/trust/1.json", "-o", f"{out}-usb", home=work,
        )  # fmt: skip
        _ota("bundle", "pack", f"{out}-usb", "-o", f"{out}.bundle", home=work)
        made.append((work / f"{out}.bundle").read_bytes())
    assert made[0] == made[1]
    trust = str(work / "pki/trust/1.json")
    facts = _ota("verify", "one-usb", "--trust", trust, "--now", WHEN, home=work)
    assert facts["manifests"] == {"site": 4}
    envelope_ = (work / "one.json").read_bytes()
    sha256 = hashlib.sha256(envelope_).hexdigest()
    found = manifest.of_envelope(envelope_, sha256)
    kinds = [(item.kind, item.name, item.base_sha256) for item in found.artifacts]
    base = sha((work / "v2").read_bytes())
    assert kinds == [
        ("model", "chat", ""), ("adapter", "terse", base), ("runtime", "engine", ""),
        ("policy", "policy", ""),
    ]  # fmt: skip
    assert len(json.loads(envelope_)["signatures"]) == 2  # release and policy
    _ota("manifest", "make", "site.toml", "--adapter", "terse=v1", "-o", "x.json", home=work,
         status=64)  # fmt: skip
    _ota("manifest", "make", "site.toml", "--runtime", "v1", "-o", "x.json", home=work, status=65)


def test_a_revoked_certificate_s_role_is_taken_up_by_its_successor(
    home: Path, tmp_path: Path
) -> None:
    work = tmp_path / "operator"
    subprocess.run(["cp", "-r", home, work], check=True)
    _ota("trust", "revoke", "pki/certificates/policy.pem", "--now", WHEN, home=work)
    assert len(_ota("trust", "show", "pki/trust/2.json", home=work)["revoked"]) == 1  # type: ignore[arg-type]
    steps = [(work / "pki/trust/2.json").read_bytes()]
    assert gate.walk_trust(steps, read_trust(work / "pki/trust/1.json"))[0].version == 2
