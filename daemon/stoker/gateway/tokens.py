"""Bearer tokens: a file of names and SHA-256 hashes, compared in constant time.

The file is read again when it changes. A line is ``NAME HASH``; "#" begins a comment.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
from pathlib import Path
from typing import Final

from stoker.gateway.problems import Problem

log = logging.getLogger(__name__)
_LINE: Final = re.compile(r"(\S{1,64})\s+([0-9a-fA-F]{64})")
_MAX_BYTES: Final = 1 << 20


class Tokens:
    """``path`` None = everybody may come in."""

    def __init__(self, path: Path | None) -> None:
        """Reads the file; raises ValueError or OSError when it cannot be used."""
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._known: tuple[tuple[str, bytes], ...] = ()
        if path is not None:
            self._refresh(path)

    def admit(self, authorization: str) -> str:
        """The token's name, "" where none is needed. Raises Problem."""
        if self._path is None:
            return ""
        try:
            self._refresh(self._path)
        except (OSError, ValueError) as error:  # what was read before still holds
            log.error("cannot read tokens: %s", error)
        scheme, _, token = authorization.partition(" ")
        given = hashlib.sha256(token.strip().encode("utf-8", "surrogateescape")).digest()
        found = ""
        for name, wanted in self._known:  # all of them, so that time tells nothing
            if hmac.compare_digest(given, wanted):
                found = name
        if scheme.lower() != "bearer" or not found:
            raise Problem(
                "invalid-api-key", "cannot accept request: a bearer token that is known is needed"
            )
        return found

    def _refresh(self, path: Path) -> None:
        facts = path.stat()
        stamp = (facts.st_mtime_ns, facts.st_size)
        if stamp != self._stamp:
            if facts.st_size > _MAX_BYTES:
                raise ValueError(f"{path} has more than {_MAX_BYTES} bytes")
            self._known = parse(path.read_text(encoding="utf-8"), str(path))
            self._stamp = stamp


def parse(text: str, where: str = "tokens") -> tuple[tuple[str, bytes], ...]:
    """(name, hash) of each line. Raises ValueError with the line's number."""
    found: list[tuple[str, bytes]] = []
    for number, row in enumerate(text.splitlines(), 1):
        line = row.partition("#")[0].strip()
        if not line:
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"{where}:{number}: not a name and 64 hexadecimal digits")
        found.append((match[1], bytes.fromhex(match[2])))
    return tuple(found)
