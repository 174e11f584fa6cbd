"""Updates of a real stokerd over the network: looked for, fetched, cut, refused, gone on with."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest
from gi.repository import GLib
from tests.fakes.tls_world import TlsWorld
from tests.fakes.update_bundles import Operator
from tests.fakes.web_server import Fault, WebServer, serving
from tests.integration import update_rig as rig
from tests.integration.stokerd_rig import Stokerd, echoes, until

from stoker import errors
from stoker.api import contract
from stoker.tour.private_bus import PrivateBus

pytestmark = pytest.mark.bus
SIZE = 1 << 20


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Operator:
    made = Operator.found(tmp_path_factory.mktemp("operator"))
    content = bytearray(random.Random(1).randbytes(SIZE))
    (made.home / "v1").write_bytes(content)
    for at in range(0, SIZE, 4096):
        content[at] ^= 0x10
    (made.home / "v2").write_bytes(content)
    made.bundle(1, made.home / "v1", made.home / "v2")
    return made


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> TlsWorld:
    return TlsWorld(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def server(operator: Operator, world: TlsWorld) -> Iterator[WebServer]:
    with serving(WebServer(operator.home / "bundle-1", world)) as started:
        yield started


@pytest.fixture
def start(
    private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str], operator: Operator,
    world: TlsWorld, server: WebServer,
) -> Iterator[rig.Start]:  # fmt: skip
    def begin(**updates: object) -> Stokerd:
        words = {
            "sources": f'["{server.base}/"]', "ca": f'"{world.ca}"', "proxy": '"none"', **updates,
        }  # fmt: skip
        return daemon_on(rig.config(operator.home / "v1", operator, **words))

    with echoes(private_bus, tmp_path, child_env) as daemon_on:
        yield begin


def check(daemon: Stokerd) -> list[rig.Facts]:
    found: list[rig.Facts] = daemon.client.call(contract.UPDATE, "CheckNow")
    return found


def install(daemon: Stokerd, name: str = "") -> str:
    return str(daemon.client.call(contract.UPDATE, "Install", GLib.Variant("(sa{sv})", (name, {}))))


def content(daemon: Stokerd) -> bytes:
    return Path(rig.served_path(daemon)).read_bytes()


def test_a_look_finds_what_a_web_server_has_and_it_is_installed_from_there(
    start: rig.Start, operator: Operator, server: WebServer
) -> None:
    daemon = start()
    with pytest.raises(errors.InvalidRequest, match="found nothing"):
        install(daemon)
    (found,) = check(daemon)
    assert (found["name"], found["state"], found["source"]) == ("chat", "new", f"{server.base}/")
    assert 0 < found["wire_bytes"] < SIZE
    last = rig.end(daemon, install(daemon))
    assert last["Error"] == ("", "")
    assert content(daemon) == (operator.home / "v2").read_bytes()
    assert found["wire_bytes"] <= last["BytesOnWire"] < SIZE
    assert "chat" in {item["deployment"] for item in rig.history(daemon)}
    assert check(daemon)[0]["state"] == "installed"


def test_a_server_that_breaks_off_is_waited_for_and_a_restart_goes_on(
    start: rig.Start, operator: Operator, server: WebServer
) -> None:
    daemon = start(max_rate=20_000)
    check(daemon)
    job = install(daemon)
    until(lambda: rig.look(daemon, job)["Done"] > 0, "bytes")
    daemon.stop()
    server.faults = deque([Fault(status=404)] * 3)
    daemon = start()
    assert daemon.client.get(contract.UPDATE, "State") != "failed"
    rig.rest(daemon)
    assert content(daemon) == (operator.home / "v2").read_bytes()


def test_what_a_lying_server_sends_is_never_installed(
    start: rig.Start, operator: Operator, server: WebServer
) -> None:
    daemon = start()
    check(daemon)
    begun = len(server.asked)
    server.faults = deque([Fault()] * 3 + [Fault(flip=9)] * 3)
    job = install(daemon)
    until(lambda: rig.look(daemon, job)["State"] == "waiting", "the wait")
    assert content(daemon) == (operator.home / "v1").read_bytes()
    assert len(server.asked) > begun + 3
    assert rig.end(daemon, job)["Error"] == ("", "")  # it is honest again
    assert content(daemon) == (operator.home / "v2").read_bytes()


def test_a_metered_network_is_left_alone_unless_the_manifest_allows_it(
    start: rig.Start, operator: Operator
) -> None:
    daemon = start(metered='"yes"')
    check(daemon)
    job = install(daemon)
    until(lambda: rig.look(daemon, job)["State"] == "waiting", "the wait")
    assert "metered" in rig.look(daemon, job)["Error"][1]
    daemon.client.call(contract.UPDATE_JOB, "Cancel", path=job)
    assert rig.end(daemon, job)["Error"][0] == "cancelled"


def test_the_agent_looks_by_itself_and_installs_only_when_told_to(
    start: rig.Start, operator: Operator
) -> None:
    daemon = start(poll_s=0.3)
    until(lambda: daemon.client.call(contract.UPDATE, "ListDeployments"), "a look")
    time.sleep(0.5)
    assert rig.facts(daemon)["Current"] == 0
    daemon.stop()
    daemon = start(poll_s=0.3, automatic="true")
    until(lambda: rig.facts(daemon)["Current"] == 1, "the installation", 30.0)


def test_a_source_that_does_not_answer_is_told(start: rig.Start, server: WebServer) -> None:
    daemon = start(sources='["https://localhost:1/"]')
    with pytest.raises(errors.Unavailable, match="refused"):
        check(daemon)
    assert daemon.client.ask("still here") == "still here"
