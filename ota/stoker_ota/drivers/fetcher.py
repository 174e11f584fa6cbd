"""Fetches in a child: TLS, brokers and what they send stay out of this process.

``ChildFetcher`` is the network's half of ``ports.updates.Sources`` (a bundle in a folder is read
by ``bundle_source``), and copies a source's documents.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from stoker_ota.core import fetch_request
from stoker_ota.drivers.told_child import Child, Told, number
from stoker_ota.errors import Unavailable
from stoker_ota.ports.files import Progress, no_progress
from stoker_ota.values.fetching import DocumentsRequest, Link, ObjectRequest, Wanted

SILENCE_S: Final = 300.0
"""A server that gives a byte now and then keeps the child silent: it is left."""
GRACE_S: Final = 20.0
"""To sync what came to a slow disk."""
CHILD: Final = Child("stoker_ota.fetch", "fetch", SILENCE_S, GRACE_S, Unavailable, Unavailable)


class ChildFetcher:
    """Parts are relative to ``root``. ``wire`` hears the bytes that came over the network in
    this fetch. ``base``: where the addresses of a bundle lie, "" = nowhere. ``delay_s``: how
    long to wait before a fetch begins, so that a fleet does not begin at once.
    """

    def __init__(
        self,
        root: Path,
        link: Callable[[], Link],
        *,
        base: str = "",
        delay_s: Callable[[Wanted], float] = lambda _wanted: 0.0,
        cancelled: Callable[[], bool] = lambda: False,
        wire: Callable[[int], None] = lambda _bytes: None,
    ) -> None:
        self._root, self._link, self._base = root, link, base
        self._delay_s, self._cancelled, self._wire = delay_s, cancelled, wire

    def fetch(self, wanted: Wanted, part: str, progress: Progress) -> None:
        """See ``ports.updates.Sources``."""
        path = self._root.absolute() / part
        delay_s = 0.0 if path.exists() else self._delay_s(wanted)  # once an object
        request = ObjectRequest(str(path), wanted, self._link(), self._base, delay_s)

        def said(line: Told) -> None:
            if "wire" in line:
                self._wire(number(line, "wire"))
            if "phase" in line and number(line, "total"):
                progress("fetch", number(line, "done"), number(line, "total"))

        done = CHILD.run((), said, self._cancelled, fetch_request.encode(request))
        self._wire(number(done, "wire_bytes"))

    def documents(self, trust_version: int, folder: Path, progress: Progress = no_progress) -> int:
        """What lies at ``base``, into a folder as a bundle has it; how many. Unavailable."""
        link = replace(self._link(), max_rate=0)  # they are small
        request = DocumentsRequest(str(folder.absolute()), self._base, trust_version, link)

        def said(line: Told) -> None:
            progress("documents", number(line, "done"), number(line, "total"))

        done = CHILD.run((), said, self._cancelled, fetch_request.encode(request))
        return number(done, "documents")
