"""Child processes for integration tests: started, known by their words, always ended."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.fakes.bus_client import BusClient

from stoker.tour.private_bus import PrivateBus

if TYPE_CHECKING:
    from tests.fakes.update_bundles import Operator
    from tests.integration.broker_rig import Broker
    from tests.integration.gateway_rig import Gateway
    from tests.integration.stokerd_rig import Stokerd

Spawn = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="session")
def spawn_session(root: Path, child_env: dict[str, str]) -> Iterator[Spawn]:
    yield from _spawner(root, child_env)


@pytest.fixture
def spawn(root: Path, child_env: dict[str, str]) -> Iterator[Spawn]:
    """``spawn("module", arg, …, ready="word", **popen)``: ``python -m module`` in the
    repository; waits for a line that begins with ``ready``."""
    yield from _spawner(root, child_env)


@pytest.fixture(scope="session")
def fake_server(session_bus: PrivateBus, spawn_session: Spawn) -> subprocess.Popen[str]:
    """The doors over fake services, on the session bus."""
    return spawn_session("tests.fakes.dbus_server", session_bus.address, ready="ready")


@pytest.fixture
def client(session_bus: PrivateBus, fake_server: object) -> Iterator[BusClient]:
    with BusClient(session_bus.address) as found:
        yield found


@pytest.fixture(scope="module")
def door(
    daemon: Stokerd, tmp_path_factory: pytest.TempPathFactory, child_env: dict[str, str]
) -> Iterator[Gateway]:
    """The REST door in front of the module's ``daemon``."""
    from tests.integration import gateway_rig

    home = tmp_path_factory.mktemp("gateway")
    with gateway_rig.gateway(daemon.bus.address, home, child_env) as running:
        yield running
        assert "Traceback" not in running.text()


@pytest.fixture
def updating(
    private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str], operator: Operator
) -> Iterator[Stokerd]:
    """A ready stokerd on the default model that trusts the module's ``operator``."""
    from tests.fakes.default_model import default_model
    from tests.integration import update_rig
    from tests.integration.stokerd_rig import stokerd

    text = update_rig.config(default_model(), operator)
    with stokerd(private_bus, tmp_path, child_env, config=text) as running:
        running.wait_ready()
        yield running


def _spawner(root: Path, env: dict[str, str]) -> Iterator[Spawn]:
    children: list[subprocess.Popen[str]] = []

    def start(module: str, *args: str, ready: str = "", **popen: object) -> subprocess.Popen[str]:
        options: dict[str, object] = {"cwd": root, "env": env, "stdout": subprocess.PIPE}
        command = [sys.executable, "-m", module, *args]
        child = subprocess.Popen(command, text=True, **(options | popen))  # type: ignore[call-overload]
        children.append(child)
        if ready:
            assert child.stdout is not None
            line = child.stdout.readline()
            assert line.startswith(ready), f"{module} said {line!r}, not {ready!r}"
        return child  # type: ignore[no-any-return]

    yield start
    for child in reversed(children):
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        if child.stdout is not None:
            child.stdout.close()


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Broker]:
    """Mosquitto with TLS, where certificates are names and each has its rights."""
    from tests.fakes.tls_world import TlsWorld  # most tests here need neither TLS nor MQTT
    from tests.integration import broker_rig

    broker = broker_rig.by_certificate(tmp_path / "broker", TlsWorld(tmp_path / "tls"))
    with broker_rig.started(broker):
        yield broker
