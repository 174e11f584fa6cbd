"""One stokerd to a runtime directory: a second would undo the caps of the first.

At its start a stokerd gives back whatever the cap journal holds, as if its writer were
dead. The lock is the kernel's (flock): it ends with its process, however that ends.
"""

from __future__ import annotations

import fcntl
import logging
import os
from pathlib import Path

from stoker.errors import Unavailable

_log = logging.getLogger(__name__)


class InstanceLock:
    def __init__(self, directory: Path) -> None:
        self._path = directory / "stokerd.lock"
        self._descriptor = -1

    def take(self) -> None:
        """Raises Unavailable when another process has it. A directory that cannot be written
        holds no journal either, so there is nothing to protect: that is only logged.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self._path, flags, 0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.release()
            raise Unavailable(
                f"cannot use {self._path.parent}: another stokerd runs there",
                hint="stop it, or give this one a --runtime-dir of its own",
            ) from error
        except OSError as error:
            self.release()
            _log.warning("cannot lock %s: %s", self._path, error.strerror)

    def release(self) -> None:
        """Safe to call twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
