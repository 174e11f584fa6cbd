"""What ``report.diagnostics`` and ``log.upload`` send: facts and log lines, redacted, packed.

Files of JSON and text in a tar. Prompts, answers and conversations are never looked at.
Runs aside, since a disk may be slow.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable, Mapping
from typing import Final

from stoker.core import redaction
from stoker.core.fleet_words import MAX_UPLOAD_BYTES
from stoker.errors import TooLarge

LOG_LINES: Final = 2000
_LEVEL: Final = 6


def diagnostics(
    facts: Mapping[str, Callable[[], object]], log: Callable[[int], str], at_s: float
) -> bytes:
    """A gzipped tar. A fact that cannot be had is there as its reason. TooLarge."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=_LEVEL) as tar:
        for name, look in facts.items():
            try:
                found = look()
            except Exception as error:  # one fact less is no reason to send none
                found = {"cannot": redaction.text(str(error))}
            plain = redaction.value(found)
            text = json.dumps(plain, indent=1, sort_keys=True, default=str, ensure_ascii=False)
            _add(tar, f"{name}.json", text, at_s)
        _add(tar, "stokerd.log", redaction.text(log(LOG_LINES)), at_s)
    return _bounded(out.getvalue())


def log_file(lines: str) -> bytes:
    return _bounded(gzip.compress(redaction.text(lines).encode("utf-8", "replace"), _LEVEL))


def _add(tar: tarfile.TarFile, name: str, text: str, at_s: float) -> None:
    data = text.encode("utf-8", "replace")
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = len(data), int(at_s), 0o600
    tar.addfile(entry, io.BytesIO(data))


def _bounded(data: bytes) -> bytes:
    if len(data) > MAX_UPLOAD_BYTES:
        raise TooLarge(f"cannot send it: {len(data)} bytes, at most {MAX_UPLOAD_BYTES} are sent")
    return data
