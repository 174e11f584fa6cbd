"""Two stokerds on one device: the second ends with a clear word and disturbs nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.stokerd_rig import stokerd

from stoker.drivers.cap_journal import read_boot_id
from stoker.tour.private_bus import PrivateBus

pytestmark = pytest.mark.bus


def test_a_second_stokerd_leaves_the_caps_of_the_first_alone(
    private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str]
) -> None:
    config = '[models.echo]\npath = "/dev/null"\n'
    with stokerd(private_bus, tmp_path, child_env, "--engine", "echo", config=config) as daemon:
        daemon.wait_ready()
        journal = daemon.home / "run" / "caps.json"
        cap = {"policy": "policy0", "original_khz": 2, "ours_khz": 1, "boot_id": read_boot_id()}
        journal.write_text(json.dumps({"version": 1, "caps": [cap]}))
        second = subprocess.run(
            [sys.executable, "-m", "stoker.main", f"--config={daemon.config_file}",
             "--engine=echo", f"--bus={private_bus.address}", f"--state-dir={daemon.home}/state",
             f"--runtime-dir={daemon.home}/run"],
            env=child_env, capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        assert second.returncode == 69
        assert "another stokerd runs there" in second.stderr
        assert journal.exists()
        assert daemon.client.ask("still here") == "still here"
