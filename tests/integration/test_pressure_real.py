"""The kernel's own memory pressure: its file is read, and a real shortage is heard.

The pressure is made in a control group of a few megabytes, so that nobody else is short of
anything; whoever reads this machine's file sees a few per cent for some seconds.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench.random_model import random_model
from gi.repository import GLib
from tests.integration.stokerd_rig import Stokerd, Stream, stokerd, until

from stoker.drivers.memory import LinuxMemory
from stoker.tour.private_bus import PrivateBus

PSI = Path("/proc/pressure/memory")
MIB = 1 << 20
CONFIG = """
[memory]
tight_pct = {pct}
critical_pct = {pct}
[models.tiny]
path = "{model}"
"""


def _told() -> bool:
    with contextlib.suppress(OSError):  # ENOTSUP: the kernel was started with psi=0
        return bool(PSI.read_text())
    return False


pytestmark = [
    pytest.mark.bus,
    pytest.mark.real,
    pytest.mark.skipif(not _told(), reason="this kernel tells no pressure"),
]


def _some_pct() -> float:
    found = re.match(r"some avg10=([\d.]+) ", PSI.read_text())
    assert found, PSI.read_text()
    return float(found[1])


def test_the_driver_says_what_the_kernels_file_says() -> None:
    for _ in range(100):  # the kernel may write between two looks
        before, seen, after = _some_pct(), LinuxMemory().pressure(), _some_pct()
        assert seen is not None
        assert 0.0 <= seen.full_pct <= seen.some_pct <= 100.0
        if before == seen.some_pct == after:
            return
    raise AssertionError(f"{seen} is not what the file says: {after}")


@contextlib.contextmanager
def _group(limit_bytes: int) -> Iterator[Path]:
    """A control group of so much memory, in either form that kernels have; skips without."""
    own = re.search(r"^\d+:memory:(/.*)$", Path("/proc/self/cgroup").read_text(), re.MULTILINE)
    mount = Path("/sys/fs/cgroup")
    parent, limit = mount, "memory.max"
    if own:
        parent, limit = mount / "memory" / own[1].lstrip("/"), "memory.limit_in_bytes"
    folder = parent / f"stoker-test-{secrets.token_hex(4)}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error.strerror}")
    try:
        try:
            (folder / limit).write_text(str(limit_bytes))
        except OSError as error:
            pytest.skip(f"no control group can be bounded here: {error.strerror}")
        yield folder
    finally:
        until(lambda: not (folder / "cgroup.procs").read_text(), "the group is empty")
        folder.rmdir()


@contextlib.contextmanager
def _squeezed(folder: Path, file: Path, root: Path, env: dict[str, str]) -> Iterator[None]:
    with file.open("wb") as new:
        new.truncate(64 * MIB)
    command = [sys.executable, "-m", "tests.fakes.squeezed", str(folder), str(file)]
    process = subprocess.Popen(command, cwd=root, env=env)
    try:
        yield
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def begin(tmp_path: Path, child_env: dict[str, str]) -> Iterator[Callable[[str], Stokerd]]:
    model = random_model("qwen2-tiny", tmp_path)
    with contextlib.ExitStack() as running:
        bus = running.enter_context(PrivateBus())

        def started(pct: str) -> Stokerd:
            config = CONFIG.format(pct=pct, model=model)
            daemon = running.enter_context(stokerd(bus, tmp_path, child_env, config=config))
            daemon.wait_ready()
            return daemon

        yield started


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a control group")
def test_a_real_shortage_shrinks_the_context(
    begin: Callable[[str], Stokerd], tmp_path: Path, root: Path, child_env: dict[str, str]
) -> None:
    """Heard at a third of a per cent, which a small group makes and no idle machine. That the
    context comes back when all is calm is tested with a file that is played: the kernel's mean
    of ten seconds takes half a minute to forget.
    """
    with _group(16 * MIB) as group:
        daemon = begin("0.3")
        full = daemon.status()["context_tokens"]
        with _squeezed(group, tmp_path / "large", root, child_env):
            until(lambda: daemon.status()["memory_level"] != "calm", daemon.text(), 40)
        assert _some_pct() > 0.0
        until(lambda: daemon.status()["context_tokens"] < full, daemon.text(), 40)
        assert "tells no memory pressure" not in daemon.text()
        _, fd = daemon.client.create_job("Say hello.", max_tokens=GLib.Variant("u", 4))
        assert "done" in Stream(fd).rest()[-1]
        assert daemon.status()["runner_restarts"] == 0
