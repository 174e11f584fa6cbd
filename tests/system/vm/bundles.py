"""What the update steps install: a small model, five versions of it, signed bundles that lead from
one to the next, and one of them changed on its way. Made on the host, kept in the cache.

The models are random: llama.cpp loads them and they talk nonsense, a thousand words a second.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final

from bench import random_model
from bench.random_model import Shape
from tests.fakes.tls_world import TlsWorld
from tests.fakes.update_bundles import Operator, other_weights
from tests.system.vm.report import say

ROOT: Final = Path(__file__).resolve().parents[3]
NAME: Final = "field"
_SHAPE: Final = Shape("qwen2", 3, 768, 12, 2, 3072, 4096)  # 14 MB; half of it changes
_PROBE: Final = '[[health.probes]]\ntext = "plain words"\nmax_nats = {nats}\n'
_HEALTH: Final = {
    1: "",
    2: '[health]\nsoak_s = 20\nconfirm = "dbus"\n',
    3: "",
    4: "",
    5: _PROBE.format(nats=0.001),  # no model is so sure: it must go back
}


def prepare(cache: Path) -> Mapping[str, Path]:
    """Name on the media → file. Takes half a minute when new."""
    home = cache / "vm" / f"updates-{_key()}"
    if not home.is_dir():
        say("  bundles for the update steps: making, half a minute …")
        for old in (cache / "vm").glob("updates-*"):
            shutil.rmtree(old)
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="making.", dir=home.parent) as made:
            _make(Path(made) / "work", Path(made) / "out")
            (Path(made) / "out").rename(home)
    return {
        f"updates/{file.relative_to(home)}": file
        for file in sorted(home.rglob("*"))
        if file.is_file()
    }


def _key() -> str:
    """Of all that makes them; and of the month, since catalogs expire."""
    digest = hashlib.sha256(f"{_SHAPE} {_HEALTH} {time.strftime('%Y-%m')}".encode())
    sources = [Path(__file__), *sorted((ROOT / "ota/stoker_ota").rglob("*.py"))]
    for file in sources:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _make(work: Path, out: Path) -> None:
    operator = Operator.found(work)
    models = [work / "0.gguf"]
    with models[0].open("wb") as file:
        random_model.write(file, NAME, _SHAPE)
    out.mkdir()
    shutil.copy(models[0], out / "field.gguf")
    shutil.copy(operator.trust, out / "trust.json")
    shutil.copytree(work / "pki", out / "pki")  # the guest plays the operator of a fleet too
    TlsWorld(out / "tls").server(life=timedelta(days=59))
    for version, health in _HEALTH.items():
        models.append(other_weights(models[-1], work / f"{version}.gguf"))
        bundle = operator.bundle(version, models[-2], models[-1], health, NAME)
        shutil.move(bundle, out / f"bundle-{version}")
    forged = out / "forged"
    shutil.copytree(out / "bundle-1", forged)
    manifest = forged / "manifests" / f"{NAME}.json"
    envelope = json.loads(manifest.read_bytes())
    payload = bytearray(base64.b64decode(envelope["payload"]))
    payload[len(payload) // 2] ^= 1
    envelope["payload"] = base64.b64encode(payload).decode()
    manifest.write_text(json.dumps(envelope, separators=(",", ":")))
