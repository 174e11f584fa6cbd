"""A stokerd that trusts an operator, and jobs of updates followed to their end."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gi.repository import GLib
from tests.fakes.update_bundles import Operator
from tests.integration.stokerd_rig import Stokerd, until

from stoker.api import contract
from stoker.tour.private_bus import PrivateBus

Facts = dict[str, Any]


def config(model: Path, operator: Operator, **updates: object) -> str:
    more = "".join(f"{key} = {value}\n" for key, value in updates.items())
    return (
        f'[models.chat]\npath = "{model}"\ncontext_tokens = 512\n'
        f'[updates]\ntrust = "{operator.trust}"\nretry_s = 0.5\n{more}'
    )


def three_versions(home: Path, size: int) -> tuple[Path, Path, Path]:
    """v1, v2, v3: each like the one before but for 500 bytes."""
    chance = random.Random(1)
    content = bytearray(chance.randbytes(size))
    made = home / "v1", home / "v2", home / "v3"
    for path in made:
        path.write_bytes(content)
        for _ in range(500):
            content[chance.randrange(size)] ^= 0x10
    return made


def install(daemon: Stokerd, bundle: Path, **options: GLib.Variant) -> str:
    """The job's path. Raises the typed error that refuses the bundle."""
    folder = os.open(bundle, os.O_RDONLY)
    try:
        values, _ = daemon.client.call_with_fds(
            contract.UPDATE, "InstallBundle", GLib.Variant("(ha{sv})", (0, options)),
            contract.AGENT_PATH, 60_000, folder,
        )  # fmt: skip
    finally:
        os.close(folder)
    return str(values[0])


def look(daemon: Stokerd, job: str) -> Facts:
    return daemon.client.get_all(contract.UPDATE_JOB, job)


def end(daemon: Stokerd, job: str, timeout_s: float = 60.0) -> Facts:
    """The job's last words."""
    limit = time.monotonic() + timeout_s
    while True:
        now = look(daemon, job)
        if now["State"] in ("done", "failed"):
            return now
        assert time.monotonic() < limit, f"it goes on: {now}; log:\n{daemon.text()}"
        time.sleep(0.02)


def facts(daemon: Stokerd) -> Facts:
    return daemon.client.get_all(contract.UPDATE)


def rest(daemon: Stokerd, timeout_s: float = 60.0) -> Facts:
    """Until nothing is under way."""
    until(lambda: facts(daemon)["State"] == "idle", f"rest; log:\n{daemon.text()}", timeout_s)
    return facts(daemon)


def history(daemon: Stokerd) -> list[Facts]:
    args = GLib.Variant("(uu)", (0, 100))
    found: list[Facts] = daemon.client.call(contract.UPDATE, "GetHistory", args)
    return found


def served_path(daemon: Stokerd) -> str:
    """The file of the model in use."""
    models = daemon.client.call(contract.INFERENCE, "ListModels")
    (path,) = (model["path"] for model in models if model["state"] == "ready")
    return str(path)


def catch(daemon: Stokerd, job: str, phase: str, timeout_s: float = 20.0) -> bool:
    """True when the job was seen in the phase; False when it was over before."""
    limit = time.monotonic() + timeout_s
    while time.monotonic() < limit:
        now = look(daemon, job)
        if now["Phase"] == phase:
            return True
        if now["State"] in ("done", "failed"):
            return False
        time.sleep(0.001)
    raise AssertionError(f"never in {phase}: {look(daemon, job)}")


Start = Callable[..., Stokerd]
Bus = PrivateBus
