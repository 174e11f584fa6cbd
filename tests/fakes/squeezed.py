"""A process that waits for memory: it writes more than the control group it is in may hold.

``python -m tests.fakes.squeezed FOLDER FILE``: joins the group, writes all of FILE again and
again until it is ended. What it waits, the kernel counts as pressure of the whole machine.
"""

from __future__ import annotations

import mmap
import os
import sys
import time
from pathlib import Path

PAGE = 4096
REST_AFTER = 1 << 20


def main(folder: str, name: str) -> None:
    (Path(folder) / "cgroup.procs").write_text(str(os.getpid()))
    with Path(name).open("r+b") as file, mmap.mmap(file.fileno(), 0) as pages:
        while True:
            for at in range(0, len(pages), PAGE):
                pages[at] = (pages[at] + 1) % 256
                if at % REST_AFTER == 0:
                    time.sleep(0.01)  # half of the time, so that others are not disturbed


if __name__ == "__main__":
    main(*sys.argv[1:])
