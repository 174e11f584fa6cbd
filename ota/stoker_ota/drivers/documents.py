"""Copies the documents that lie at an address into a folder, where a bundle would have them.

They are judged later, from that folder: nothing here believes them. The catalog's names only
say which files to ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

from stoker_ota.core import bundle, listing, web_rules
from stoker_ota.core.listing import Named
from stoker_ota.drivers import folders, write_errors
from stoker_ota.drivers.web import Web
from stoker_ota.errors import BadDocument, TooLarge, Unavailable

MAX_TOTAL_BYTES: Final = 32 << 20


class Shelf(Protocol):
    """Where documents are. Unavailable when it does not answer."""

    def trust(self, version: int) -> bytes | None: ...

    def catalog(self) -> bytes | None: ...

    def manifests(self, names: Sequence[Named]) -> Iterator[tuple[Named, bytes]]:
        """Those that are there."""
        ...


class WebShelf:
    """A bundle's tree below a web address."""

    def __init__(self, web: Web, base: str) -> None:
        self._web, self._base = web, base

    def trust(self, version: int) -> bytes | None:
        return self._small(bundle.trust_path(version), listing.MAX_TRUST_BYTES)

    def catalog(self) -> bytes | None:
        return self._small(bundle.CATALOG, listing.MAX_CATALOG_BYTES)

    def manifests(self, names: Sequence[Named]) -> Iterator[tuple[Named, bytes]]:
        for named in names:
            data = self._small(bundle.manifest_path(named.name), listing.MAX_MANIFEST_BYTES)
            if data is not None:
                yield named, data

    def _small(self, name: str, most: int) -> bytes | None:
        return self._web.small(web_rules.below(self._base, name), most)


def copy(shelf: Shelf, folder: Path, trust_version: int, said: Callable[[int, int], None]) -> int:
    """How many documents came. ``said`` hears how far it is. Unavailable, NoSpace, TooLarge."""
    count = total = 0
    for version in range(trust_version + 1, trust_version + listing.MAX_STEPS + 1):
        data = shelf.trust(version)
        if data is None:
            break
        total = _bounded(total + len(data))
        _put(folder / bundle.trust_path(version), data)
        count += 1
        said(count, count + 1)
    data = shelf.catalog()
    if data is None:
        raise Unavailable("cannot look for updates: there is no catalog at the source")
    _put(folder / bundle.CATALOG, data)
    try:
        names = listing.of_catalog(data)
    except (BadDocument, TooLarge):
        names = ()  # whoever judges it says what is wrong with it
    count, total = count + 1, _bounded(total + len(data))
    for number, (named, found) in enumerate(shelf.manifests(names)):
        said(number, len(names))
        total = _bounded(total + len(found))
        _put(folder / bundle.manifest_path(named.name), found)
        count += 1
    said(len(names), len(names))
    return count


def _bounded(total: int) -> int:
    """Nobody has judged any of it yet."""
    if total > MAX_TOTAL_BYTES:
        raise TooLarge(f"cannot keep the documents: they have more than {MAX_TOTAL_BYTES} bytes")
    return total


def _put(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_errors.typed("make folder", path.parent, error) from error
    folders.replace(path, data)
