"""Files of the system that we set for a while and give back: governors, limits of other clocks.

As with caps: the journal knows the old and the new text before the first write, nothing is
written twice, and what goes back goes back only where the value is still ours.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from stoker.errors import StokerError
from stoker.ports.system import StateFile

_NAMES: Final = re.compile(
    r"devices/system/cpu/cpufreq/policy\d{1,4}/scaling_governor"
    r"|class/devfreq/[A-Za-z0-9._:-]{1,64}/max_freq"
)
"""A damaged journal must not make us write anywhere else."""

_log = logging.getLogger(__name__)


class TextFiles(Protocol):
    """Attributes below /sys (or another root), by their path below it."""

    def get(self, name: str) -> str | None:
        """None: it is not there, or not readable."""

    def put(self, name: str, text: str) -> str:
        """The fault (an errno name); "" = written."""

    def names(self, folder: str) -> tuple[str, ...]:
        """What is in a folder; () when it is not there."""


@dataclass(frozen=True, slots=True)
class Held:
    original: str
    ours: str


class HeldFiles:
    """One thread."""

    def __init__(self, files: TextFiles, journal: StateFile, boot_id: str) -> None:
        self.files, self._journal, self._boot_id = files, journal, boot_id
        self._held: dict[str, Held] = {}
        self._complaints: dict[str, str] = {}

    def hold(self, name: str, text: str) -> bool:
        """True while the file says ``text`` because of us, or did so before."""
        known, now = self._held.get(name), self.files.get(name)
        if now is None or not _NAMES.fullmatch(name):
            return False
        if now == text:
            return True
        if known is not None and now != known.ours:
            self._complain(name, "another program changes it too: left alone")
            return False
        original = now if known is None else known.original
        self._held[name] = Held(original, text)
        if not self._write_down():
            return False
        fault = self.files.put(name, text)
        if fault:
            self._complain(name, f"{fault}; /usr/libexec/stoker/grant gives that right")
            self._drop(name)
            return False
        return True

    def release(self, name: str) -> None:
        held = self._held.get(name)
        if held is None:
            return
        if self.files.get(name) == held.ours:
            self.files.put(name, held.original)
        self._drop(name)

    def release_all(self) -> None:
        for name in tuple(self._held):
            self.release(name)

    def restore(self) -> tuple[str, ...]:
        """What a killed predecessor left, given back; the names."""
        state = self._journal.load()
        entries = state.get("held")
        if state.get("boot_id") == self._boot_id and isinstance(entries, dict):
            for name, entry in entries.items():
                if _NAMES.fullmatch(name) and isinstance(entry, dict):
                    held = Held(str(entry.get("original", "")), str(entry.get("ours", "")))
                    if held.original and held.ours:
                        self._held.setdefault(name, held)
        found = tuple(self._held)
        self.release_all()
        if entries:
            self._write_down()
        return found

    def _drop(self, name: str) -> None:
        del self._held[name]
        self._write_down()

    def _write_down(self) -> bool:
        held: Mapping[str, object] = {
            name: {"original": held.original, "ours": held.ours}
            for name, held in self._held.items()
        }
        try:
            self._journal.save({"boot_id": self._boot_id, "held": held})
        except (StokerError, OSError) as error:
            self._complain("journal", str(error))
            return False
        return True

    def _complain(self, name: str, text: str) -> None:
        """Once until it changes."""
        if self._complaints.get(name) != text:
            self._complaints[name] = text
            _log.warning("cannot set %s: %s", name, text)
