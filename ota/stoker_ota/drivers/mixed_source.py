"""An update's sources as the engine sees them: a bundle in a folder, and the network.

What the bundle holds is taken from it; everything else comes over the network, unless that
costs money and the manifest does not allow it. See ``ports.updates.Sources``.
"""

from __future__ import annotations

from collections.abc import Callable

from stoker_ota.drivers.bundle_source import BundleSource
from stoker_ota.drivers.fetcher import ChildFetcher
from stoker_ota.errors import Unavailable
from stoker_ota.ports.files import Progress
from stoker_ota.values.fetching import Wanted

FILE = "file:"


class MixedSource:
    """``bundle`` None: the source is an address. ``metered``: whether the network costs money."""

    def __init__(
        self,
        bundle: BundleSource | None,
        network: ChildFetcher,
        metered: Callable[[], bool] = lambda: False,
    ) -> None:
        self._bundle, self._network, self._metered = bundle, network, metered

    def fetch(self, wanted: Wanted, part: str, progress: Progress) -> None:
        distant = any(not uri.startswith(FILE) for uri in wanted.uris)
        if self._bundle is not None and (self._bundle.has(wanted.uris) or not distant):
            self._bundle.fetch(wanted, part, progress)
            return
        if not wanted.allow_metered and self._metered():
            raise Unavailable(
                "cannot fetch: this network is metered, and the manifest does not allow that",
                hint="it is tried again; [updates] metered says what this network is",
            )
        self._network.fetch(wanted, part, progress)
