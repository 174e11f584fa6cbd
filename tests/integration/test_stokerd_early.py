"""What reaches stokerd before it is ready."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stoker.tour.private_bus import PrivateBus

pytestmark = pytest.mark.bus


def test_sighup_in_the_first_moment_does_not_end_it(
    private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str]
) -> None:
    """From its first line on; before that, Python itself is starting."""
    config = tmp_path / "stoker.toml"
    config.write_text("")
    command = [
        sys.executable, "-c",
        "import os, signal, stoker.main as m; real = m.configuration\n"
        "def late(*args, **more):\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    return real(*args, **more)\n"
        "m.configuration = late; raise SystemExit(m.entry())",
        "--engine=echo", f"--bus={private_bus.address}", f"--state-dir={tmp_path / 's'}",
        f"--runtime-dir={tmp_path / 'r'}", f"--config={config}",
    ]  # fmt: skip
    with subprocess.Popen(command, env=child_env, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        end = time.monotonic() + 30
        said = ""
        while "configuration read again" not in said and time.monotonic() < end:
            line = process.stderr.readline()
            assert line, f"it ended: {process.wait()}; {said}"
            said += line
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
        assert process.wait(20) == 0
