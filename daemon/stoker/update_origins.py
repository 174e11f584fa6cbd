"""Where updates come from: folders, web servers and the broker, as the configuration has them.

Part of ``wiring``; imported with the engine, decides nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.drivers.network_cost import metered
from stoker.installed import Installed
from stoker.ports.updates import Reports
from stoker_ota.core import broker_address, targeting
from stoker_ota.drivers import bundle_file
from stoker_ota.drivers.bundle_source import BundleFolder
from stoker_ota.drivers.fetcher import ChildFetcher
from stoker_ota.drivers.mixed_source import MixedSource
from stoker_ota.errors import StorageFailed
from stoker_ota.values.fetching import Broker, Link, Tls, Wanted

if TYPE_CHECKING:
    from stoker.config.schema import Config
    from stoker_ota.ports.updates import Sources
    from stoker_ota.services.intake import Folder

INCOMING = "incoming"


class Origins:
    """``source`` and ``folder`` of a bundle's path, or of an address of [updates] sources."""

    def __init__(
        self, root: Path, installed: Installed, device_id: Callable[[], str], reports: Reports
    ) -> None:
        self._root, self._installed, self._reports = root, installed, reports
        self._device_id = device_id

    def source(self, origin: str) -> Sources:
        cancelled = self._reports.cancelled
        bundle = (
            None
            if is_address(origin)
            else bundle_file.source(Path(origin), self._root, cancelled=cancelled)
        )
        return MixedSource(bundle, self._network(origin), self._metered)

    def folder(self, origin: str, trust_version: int) -> Folder:
        """Of an address: its documents are copied first. Unavailable when nobody answers."""
        if not is_address(origin):
            return bundle_file.folder(Path(origin))
        copy = self._root / INCOMING / _copy_name(origin)
        sources = (*self._installed.config.updates.sources, origin)
        forget(self._root / INCOMING, {_copy_name(source) for source in sources})
        try:
            shutil.rmtree(copy, ignore_errors=True)
            copy.mkdir(parents=True)
        except OSError as error:
            raise StorageFailed(f"cannot make {copy}: {error.strerror}") from error
        self._network(origin).documents(trust_version, copy)
        return BundleFolder(copy)

    def _network(self, origin: str) -> ChildFetcher:
        return ChildFetcher(
            self._root,
            lambda: link(self._installed.config, self._device_id()),
            base=origin if is_address(origin) else "",
            delay_s=self._delay_s,
            cancelled=self._reports.cancelled,
            wire=self._reports.wire,
        )

    def _delay_s(self, wanted: Wanted) -> float:
        """Each device its own moment, and each object another one."""
        spread_s = self._installed.config.updates.spread_s
        if not spread_s:
            return 0.0
        return spread_s * targeting.drawn_number(self._device_id(), wanted.sha256)

    def _metered(self) -> bool:
        said = self._installed.config.updates.metered
        return metered() if said == "auto" else said == "yes"


def forget(folder: Path, kept: Collection[str]) -> None:
    """Copies of sources that are configured no more."""
    with contextlib.suppress(OSError):
        for path in list(folder.iterdir()):
            if path.name not in kept:
                shutil.rmtree(path, ignore_errors=True)


def _copy_name(origin: str) -> str:
    return hashlib.sha256(origin.encode()).hexdigest()[:16]


def is_address(origin: str) -> bool:
    return origin.startswith(("https:", "http:", "mqtt:"))


def link(config: Config, device_id: str) -> Link:
    """How the network is used."""
    updates = config.updates
    return Link(
        tls=Tls(updates.ca, updates.certificate, updates.key),
        proxy=updates.proxy,
        plain_http=updates.plain_http,
        max_rate=updates.max_rate,
        window=updates.mqtt_window,
        broker=_broker(config, device_id),
    )


def _broker(config: Config, device_id: str) -> Broker | None:
    fleet = config.fleet
    if not fleet.broker:
        return None
    return broker_address.broker(
        fleet.broker,
        root=fleet.root,
        tls=Tls(fleet.ca, fleet.certificate, fleet.key),
        client_id=device_id,
        username=fleet.username,
        password_file=fleet.password_file,
    )
