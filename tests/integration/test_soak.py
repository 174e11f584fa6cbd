"""A short soak in every run of the tests; the long ones are ``make bench NAME=soak``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.bus

SECONDS = 20


def test_apps_that_cancel_vanish_and_lose_their_runner_lose_nothing_else(
    root: Path, child_env: dict[str, str], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "bench.soak", "--json", "--seconds", str(SECONDS)]
    command += ["--output", str(tmp_path / "soak.json")]
    done = subprocess.run(
        command, cwd=root, env=child_env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout, done.stderr
    facts = json.loads(done.stdout)
    assert facts["wrong"] == [], done.stderr
    assert len(facts["users"]) == 6
    kept = json.loads((tmp_path / "soak.json").read_text())["metrics"]
    assert kept["soak.echo.wrong"] == {"value": 0, "unit": "", "target": "≤ 0", "met": True}
    assert sum(user["whole"] for user in facts["users"]) > 20
    if os.geteuid() == 0:  # else all are one user, who shares nothing with himself
        assert facts["jain"] > 0.7
