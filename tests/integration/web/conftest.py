"""A web server that the fetching child trusts, an object on it, and a device that wants it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.tls_world import TlsWorld
from tests.fakes.web_server import WebServer, serving
from tests.integration.fetch_rig import Fetch, Thing

from stoker_ota.values.fetching import Link, Tls


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> TlsWorld:
    return TlsWorld(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def server(world: TlsWorld, tmp_path: Path) -> Iterator[WebServer]:
    with serving(WebServer(tmp_path / "www", world)) as started:
        yield started


@pytest.fixture
def link(world: TlsWorld) -> Link:
    return Link(tls=Tls(ca=str(world.ca)), proxy="none")


@pytest.fixture
def fetch(tmp_path: Path, link: Link) -> Fetch:
    return Fetch(tmp_path / "device", link)


@pytest.fixture
def thing(server: WebServer) -> Thing:
    made = Thing.made()
    made.put(server.folder)
    return made
