"""A small JSON object on disk that a power cut leaves either old or new, never half.

Written to a temporary beside it, synced, renamed, folder synced. What cannot be read
back is set aside as ``.broken``: evidence for a person, no reason not to start.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from stoker.drivers.regular_file import read_regular
from stoker.errors import InternalError
from stoker_ota.drivers.folder_sync import sync_folder

MAX_BYTES: Final = 1 << 20
_log = logging.getLogger(__name__)


class JsonStateFile:
    """Port ``StateFile``. One process writes it; the folder is made when it is missing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = path.with_name(f".{path.name}.new")

    def load(self) -> Mapping[str, object]:
        try:
            data = read_regular(self._path, MAX_BYTES)
            if len(data) > MAX_BYTES:
                raise ValueError(f"larger than {MAX_BYTES} bytes")
            state = json.loads(data)
            if not isinstance(state, dict):
                raise ValueError("not a JSON object")
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            self._set_aside(error)
            return {}
        return state

    def save(self, state: Mapping[str, object]) -> None:
        """Durable when it returns; InternalError leaves the old state in place."""
        try:
            data = json.dumps(state, indent=1, sort_keys=True).encode()
            if len(data) > MAX_BYTES:
                raise ValueError(f"larger than {MAX_BYTES} bytes")
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
            self._write(data)
            self._temporary.replace(self._path)
            sync_folder(self._path.parent)
        except (OSError, TypeError, ValueError) as error:
            with contextlib.suppress(OSError):
                self._temporary.unlink(missing_ok=True)
            raise InternalError(f"cannot save {self._path}: {error}") from error

    def _write(self, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(self._temporary, flags, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def _set_aside(self, error: Exception) -> None:
        broken = self._path.with_name(self._path.name + ".broken")
        _log.warning("cannot read %s: %s; set aside as %s", self._path, error, broken.name)
        with contextlib.suppress(OSError):
            self._path.replace(broken)
