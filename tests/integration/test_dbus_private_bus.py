"""The private bus comes up, serves everyone, and leaves nothing behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.fakes.bus_client import BusClient

from stoker.errors import Unavailable
from stoker.tour.private_bus import PrivateBus

pytestmark = pytest.mark.bus


def folder_of(address: str) -> Path:
    return Path(address.removeprefix("unix:path=").split(",")[0]).parent


def test_it_serves_while_open_and_cleans_up_after_itself() -> None:
    with PrivateBus() as bus:
        folder = folder_of(bus.address)
        pid = bus.pid
        with BusClient(bus.address) as client:
            assert client.name.startswith(":1.")
        assert folder.is_dir()
    assert not folder.exists()
    assert not Path(f"/proc/{pid}").exists()
    bus.stop()


def test_a_broken_policy_is_a_typed_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    policy = tmp_path / "bad.conf"
    policy.write_text('<busconfig><policy context="never"/></busconfig>')
    with pytest.raises(Unavailable, match="cannot start a private bus"):
        PrivateBus([policy]).start()
    assert list(tmp_path.iterdir()) == [policy]


def test_without_dbus_daemon_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(Unavailable) as caught:
        PrivateBus().start()
    assert "dbus" in caught.value.hint


def test_a_killed_owner_takes_its_daemon_along(child_env: dict[str, str]) -> None:
    code = (
        "import sys, time\n"
        "from stoker.tour.private_bus import PrivateBus\n"
        "bus = PrivateBus().start()\n"
        "print(bus.pid, bus.address, flush=True)\n"
        "time.sleep(60)\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code], env=child_env, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    pid, address = owner.stdout.readline().split()
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    end = time.monotonic() + 5
    while time.monotonic() < end and not gone(pid):
        time.sleep(0.01)
    assert gone(pid)
    for left in folder_of(address).iterdir():
        left.unlink()
    folder_of(address).rmdir()


def gone(pid: str) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"  # nobody reaps orphans in some containers
