"""Whom the fetching child speaks to: certificates, redirects, proxies, plain HTTP if allowed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.fakes.connect_proxy import connect_proxy
from tests.fakes.tls_world import TlsWorld
from tests.fakes.web_server import WebServer, serving
from tests.integration.fetch_rig import Fetch, Thing

from stoker_ota.errors import Unavailable
from stoker_ota.values.fetching import Link, Tls


def test_redirects_are_followed_to_https_and_no_further_than_five(
    server: WebServer, thing: Thing, fetch: Fetch
) -> None:
    server.moved = {"/a": "/b", "/b": server.url("thing"), "/a.chunks": "/thing.chunks"}
    assert fetch(thing.wanted(server.url("a"))) == thing.data
    server.moved = {"/loop": "/loop", "/down": "http://localhost/thing"}
    for name, reason in (("loop", "too often"), ("down", "no https address")):
        with pytest.raises(Unavailable, match=reason):
            Fetch(fetch.folder / name, fetch.link)(thing.wanted(server.url(name), chunked=False))


def test_a_server_that_nobody_vouches_for_is_not_asked_anything(
    server: WebServer, thing: Thing, fetch: Fetch, world: TlsWorld, tmp_path: Path
) -> None:
    fetch.link = Link(proxy="none")
    with pytest.raises(Unavailable, match="certificate"):
        fetch(thing.wanted(server.url("thing")))
    stranger = TlsWorld(tmp_path / "other")
    fetch.link = Link(tls=Tls(ca=str(stranger.ca)), proxy="none")
    with pytest.raises(Unavailable, match="certificate"):
        fetch(thing.wanted(server.url("thing")))
    fetch.link = Link(tls=Tls(ca=str(world.ca)), proxy="none")
    server.host = "127.0.0.2"  # not among the certificate's names
    with pytest.raises(Unavailable, match=r"127\.0\.0\.2|certificate"):
        fetch(thing.wanted(server.url("thing")))
    assert server.asked == []


def test_a_server_that_wants_a_certificate_gets_one(
    world: TlsWorld, tmp_path: Path, fetch: Fetch
) -> None:
    thing = Thing.made()
    with serving(WebServer(tmp_path / "www2", world, clients=True)) as server:
        thing.put(server.folder)
        with pytest.raises(Unavailable):
            fetch(thing.wanted(server.url("thing")))
        pair = world.device("edge-1")
        tls = Tls(str(world.ca), str(pair.certificate), str(pair.key))
        fetch.link = replace(fetch.link, tls=tls)
        assert fetch(thing.wanted(server.url("thing"))) == thing.data
        late = world.device("late", timedelta(days=-1))
        tls = Tls(str(world.ca), str(late.certificate), str(late.key))
        with pytest.raises(Unavailable):
            Fetch(tmp_path / "late", replace(fetch.link, tls=tls))(
                thing.wanted(server.url("thing"))
            )


def test_a_proxy_is_used_if_the_configuration_or_the_environment_names_one(
    server: WebServer, thing: Thing, fetch: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect_proxy() as proxy:
        where = f"http://127.0.0.1:{proxy.port}"
        host = server.base.removeprefix("https://")
        fetch.link = replace(fetch.link, proxy=where)
        assert fetch(thing.wanted(server.url("thing"))) == thing.data
        assert set(proxy.asked) == {f"CONNECT {host}"}
        monkeypatch.setenv("https_proxy", where)
        for link, used in (("", True), ("none", False)):
            proxy.asked.clear()
            again = Fetch(fetch.folder / f"2{link}", replace(fetch.link, proxy=link))
            assert again(thing.wanted(server.url("thing"))) == thing.data
            assert bool(proxy.asked) is used
        monkeypatch.setenv("no_proxy", "localhost")
        proxy.asked.clear()
        Fetch(fetch.folder / "3", replace(fetch.link, proxy=""))(thing.wanted(server.url("thing")))
        assert proxy.asked == []


def test_plain_http_is_asked_only_where_it_is_allowed(tmp_path: Path, fetch: Fetch) -> None:
    thing = Thing.made()
    with serving(WebServer(tmp_path / "plain")) as server:
        thing.put(server.folder / "blobs", thing.sha256)
        fetch.base = server.base
        wanted = thing.wanted(f"file:blobs/{thing.sha256}")
        with pytest.raises(Unavailable, match="no https address"):
            fetch(wanted)
        fetch.link = replace(fetch.link, plain_http=True)
        assert fetch(wanted) == thing.data
