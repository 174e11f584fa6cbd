"""Tells systemd how we are (sd_notify); does nothing where nobody listens.

Reports only what it is told: when to be ready, or when a watchdog ping is deserved,
is for the caller to decide.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

import sdnotify

from stoker.units import Seconds

_MAX_STATUS_CHARS = 400


class SystemdNotifier:
    """Port ``Notifier``."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._environ = environ
        # The library reads NOTIFY_SOCKET by itself and swallows every failure, which is
        # right: a daemon must not die because its manager is restarting.
        self._systemd = sdnotify.SystemdNotifier() if environ.get("NOTIFY_SOCKET") else None

    def ready(self) -> None:
        self._send("READY=1")

    def status(self, text: str) -> None:
        # A newline would start another assignment, READY=1 for instance.
        self._send("STATUS=" + " ".join(text.split())[:_MAX_STATUS_CHARS])

    def watchdog(self) -> None:
        self._send("WATCHDOG=1")

    def reloading(self) -> None:
        """To be followed by ``ready``; systemd ≥ 253 wants the time to pair the two."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def watchdog_interval_s(self) -> Seconds:
        """Half of WatchdogSec; 0 = no watchdog asked for, or not of this process."""
        pid = self._environ.get("WATCHDOG_PID", "")
        if pid and pid != str(os.getpid()):
            return Seconds(0.0)
        try:
            usec = int(self._environ.get("WATCHDOG_USEC", "0"))
        except ValueError:
            return Seconds(0.0)
        return Seconds(max(usec, 0) / 2_000_000)

    def _send(self, text: str) -> None:
        if self._systemd is not None:
            self._systemd.notify(text)
