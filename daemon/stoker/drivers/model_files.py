"""Model files as stat sees them. Only the runner ever opens one."""

from __future__ import annotations

import os
import stat


class LocalModelFiles:
    """See ``ports.runner.ModelFiles``."""

    def size_bytes(self, path: str) -> int:
        try:
            facts = os.stat(path)  # noqa: PTH116 - one system call, no Path object
        except (OSError, ValueError):
            return -1
        return facts.st_size if stat.S_ISREG(facts.st_mode) else -1
