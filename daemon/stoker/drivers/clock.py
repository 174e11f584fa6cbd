"""The clock of everything that waits: CLOCK_MONOTONIC.

Not CLOCK_BOOTTIME, which runs on while the device sleeps: on waking every heartbeat,
deadline and watchdog would be overdue at once and a healthy runner be killed for it.
GLib's main loop, poll() and systemd's watchdog count on CLOCK_MONOTONIC too.
"""

from __future__ import annotations

import time

from stoker.units import Seconds


class MonotonicClock:
    """Port ``Clock``."""

    def monotonic_s(self) -> Seconds:
        return Seconds(time.monotonic())


def asleep_s() -> Seconds:
    """How long the device has slept since it booted; it only grows, and only by a sleep."""
    both = time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
    return Seconds(max(0.0, both))
