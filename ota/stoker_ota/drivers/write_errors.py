"""What the kernel says when it cannot write, as this package's errors: one rule for all files."""

from __future__ import annotations

import errno
from typing import Final

from stoker_ota.errors import NoSpace, StorageFailed

_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def typed(verb: str, what: object, error: OSError, *, hint: str = "") -> NoSpace | StorageFailed:
    """``hint`` is for a full disk; nothing else is mended by making room."""
    message = f"cannot {verb} {what}: {error.strerror}"
    return NoSpace(message, hint=hint) if error.errno in _FULL else StorageFailed(message)
