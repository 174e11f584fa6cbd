"""The throttle flags of a Raspberry Pi's firmware, from sysfs: ``vcgencmd`` is not needed.

The kernel's clock files ignore what the firmware does, so this is the only place that tells.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from stoker.drivers.attribute import ReadText, read_attribute
from stoker.events.heat_finds import FirmwareFlags

PLACES: Final = (
    "devices/platform/soc/soc:firmware/get_throttled",
    "devices/platform/soc*/*firmware*/get_throttled",
    "devices/platform/*firmware*/get_throttled",
)


class SysfsFirmware:
    """Port ``ThrottleFlags``; finds the file once more when it went away."""

    def __init__(self, root: Path, read: ReadText = read_attribute) -> None:
        self._root = root
        self._read = read
        self._path: Path | None = None

    def find(self) -> Path | None:
        """The attribute; None where there is no such firmware."""
        for place in PLACES:
            for path in sorted(self._root.glob(place)):
                return path
        return None

    def discover(self) -> None:
        """Look for the file (again); reading alone never searches."""
        self._path = self.find()

    def read(self) -> FirmwareFlags | None:
        """None without such a firmware or while it does not answer; never raises."""
        if self._path is None:
            return None
        try:
            return FirmwareFlags(int(self._read(self._path), 16) & 0xFFFFFFFF)
        except (OSError, ValueError):
            return None
