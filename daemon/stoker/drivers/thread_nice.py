"""Lets the calling thread go before others of its control group (setpriority(2) of one thread).

For a thread that must come in time and needs little; it asks for no right that is not there.
"""

from __future__ import annotations

import os
import resource
import threading
from typing import Final

URGENT: Final = -10
_RLIMIT_NICE: Final = 13  # asm-generic/resource.h; the module has no name for it


def favour_this_thread() -> int:
    """Down to ``URGENT``, as far as CAP_SYS_NICE or RLIMIT_NICE allows; what it is then. Never
    raises, and never makes it less urgent than it was."""
    thread = threading.get_native_id()
    now = os.getpriority(os.PRIO_PROCESS, thread)
    for wanted in (URGENT, max(URGENT, 20 - resource.getrlimit(_RLIMIT_NICE)[0])):
        if wanted >= now:
            break
        try:
            os.setpriority(os.PRIO_PROCESS, thread, wanted)
        except OSError:
            continue
        return wanted
    return now
