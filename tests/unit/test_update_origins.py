"""How the configuration becomes a link, and which origins are addresses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stoker import errors
from stoker.config.parse import parse
from stoker.config.schema import Config, UpdatesConfig
from stoker.ports.updates import Reports
from stoker.units import Seconds
from stoker.update_origins import Origins, forget, is_address, link
from stoker_ota.drivers.bundle_source import BundleFolder
from stoker_ota.values.fetching import Tls, Wanted


def updates(**values: object) -> UpdatesConfig:
    return parse([("test", {"updates": values})]).updates


def test_the_settings_of_the_network_are_those_of_the_link() -> None:
    wide = {"max_rate": 5, "mqtt_window": 3}
    config = Config(updates=updates(ca="/ca", certificate="/c", key="/k", proxy="none", **wide))
    made = link(config, "edge-1")
    assert made.window == 3
    assert (made.tls, made.proxy, made.max_rate) == (Tls("/ca", "/c", "/k"), "none", 5)
    assert made.broker is None


def test_the_fleet_s_broker_serves_updates_too() -> None:
    @dataclass
    class Fleet:
        broker: str = "mqtts://broker.example"
        root: str = "farm/1"
        ca: str = "/ca"
        certificate: str = "/c"
        key: str = "/k"
        username: str = ""
        password_file: str = ""

    config: Any = SimpleNamespace(updates=UpdatesConfig(), fleet=Fleet())
    broker = link(config, "edge-1").broker
    assert broker is not None
    assert (broker.host, broker.port, broker.root) == ("broker.example", 8883, "farm/1")
    assert (broker.client_id, broker.tls) == ("edge-1", Tls("/ca", "/c", "/k"))


@pytest.mark.parametrize(
    "good", ["/media/usb", "https://a.example/x/", "http://localhost:1/", "mqtt:"]
)
def test_sources_that_are_taken(good: str) -> None:
    assert updates(sources=[good]).sources == (good,)
    assert is_address(good) != good.startswith("/")


@pytest.mark.parametrize(
    "bad", ["usb", "ftp://x/", "https://u:p@a/", "https://a b/", "mqtt:x", "", "/a\0"]
)
def test_sources_that_are_refused(bad: str) -> None:
    with pytest.raises(errors.ConfigInvalid, match="sources"):
        updates(sources=[bad])


def test_each_device_begins_at_its_own_moment(tmp_path: Path) -> None:
    config = Config(updates=replace(UpdatesConfig(), spread_s=Seconds(100.0)))
    installed: Any = SimpleNamespace(config=config)
    reports = Reports(lambda *_: None, lambda *_: None, lambda _: None, lambda: "", lambda: False)

    def delay_s(device: str, sha256: str = "ab" * 32) -> float:
        origins = Origins(tmp_path, installed, lambda: device, reports)
        return origins._delay_s(Wanted(1, sha256, ()))

    delays = [delay_s(f"edge-{number}") for number in range(50)]
    assert all(0 <= delay < 100 for delay in delays)
    assert max(delays) - min(delays) > 50
    assert delay_s("edge-1") == delays[1]
    assert delay_s("edge-1", "cd" * 32) != delays[1]
    installed.config = Config()
    assert delay_s("edge-1") == 0
    folder = Origins(tmp_path, installed, lambda: "x", reports).folder(str(tmp_path), 1)
    assert isinstance(folder, BundleFolder)


def test_copies_of_sources_of_before_are_removed(tmp_path: Path) -> None:
    for name in ("kept", "old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "catalog.json").write_bytes(b"{}")
    forget(tmp_path, {"kept"})
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    forget(tmp_path / "nowhere", set())
