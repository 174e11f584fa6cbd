"""Files of the system that we set for a while and give back: governors, limits of other clocks.

As with caps: the journal knows the old and the new text before the first write, nothing is
written twice, and what goes back goes back only where the value is still ours.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from stoker.core.thermal_plan import GRANT
from stoker.errors import StokerError
from stoker.ports.system import StateFile
from stoker.services.caps import SETTLE_S, SETTLE_TRIES

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
    """``before``: what we wrote before ``ours``; it is there still if the last write failed."""

    original: str
    ours: str
    before: str = ""

    def mine(self, text: str) -> bool:
        return text == self.ours or (self.before != "" and text == self.before)


class HeldFiles:
    """One thread."""

    def __init__(
        self,
        files: TextFiles,
        journal: StateFile,
        boot_id: str,
        rest: Callable[[float], None] = time.sleep,
    ) -> None:
        self.files, self._journal, self._boot_id = files, journal, boot_id
        self._rest = rest
        self._held: dict[str, Held] = {}
        self._complaints: dict[str, str] = {}

    def left(self) -> tuple[str, ...]:
        """What could not be given back yet."""
        return tuple(self._held)

    def hold(self, name: str, text: str, top: str = "") -> bool:
        """True while the file says ``text`` because of us, or did so before. ``top``: for a limit
        that reads as the lowest of several requests, the highest value it can have."""
        known, now = self._held.get(name), self.files.get(name)
        if now is None or not _NAMES.fullmatch(name):
            return False
        if now == text:
            return True
        if known is not None and not known.mine(now):
            self._complain(name, "another program changes it too: left alone")
            return False
        if known is None and top not in ("", now):
            known = self._probed(name, now, top)
            if known is None:
                return False
        if known is None:
            return self._put(name, None, Held(now, text))
        return self._put(name, known, Held(known.original, text, known.ours))

    def release(self, name: str) -> bool:
        """True when nothing of ours is left: given back, or proven somebody else's."""
        held = self._held.get(name)
        if held is None:
            return True
        now = self.files.get(name)
        if now is None:
            return False  # offline: what we wrote may come back with it
        if held.mine(now) or _lower(now, held.ours):
            fault = self.files.put(name, held.original) if now != held.original else ""
            if not fault and not held.mine(now) and self._rises(name, now):
                fault = self.files.put(name, now)  # somebody had set it lower than we did
            if fault:
                self._complain(name, f"{fault}; it is tried again")
                return False
        self._drop(name)
        return True

    def release_all(self) -> None:
        for name in tuple(self._held):
            self.release(name)

    def restore(self) -> tuple[str, ...]:
        """What a killed predecessor left, given back; the names. What cannot be given back stays
        in the journal for the next one."""
        state = self._journal.load()
        entries = state.get("held")
        if state.get("boot_id") == self._boot_id and isinstance(entries, dict):
            for name, entry in entries.items():
                if _NAMES.fullmatch(name) and isinstance(entry, dict):
                    words = [str(entry.get(key, "")) for key in ("original", "ours", "before")]
                    if words[0] and words[1]:
                        self._held.setdefault(name, Held(*words))
        found = tuple(self._held)
        self.release_all()
        if entries:
            self._write_down()
        return found

    def _probed(self, name: str, now: str, top: str) -> Held | None:
        """With what is in the file's own slot, which rises with a write of ``top`` unless another
        limit holds it down: then nobody limits it there. None: it cannot be told."""
        if not self._put(name, None, Held(now, top)):
            return None
        self._held[name] = Held(now if self._rises(name, now) else top, top)
        return self._held[name]

    def _rises(self, name: str, before: str) -> bool:
        """The kernel applies a write in a thread of its own."""
        for _ in range(SETTLE_TRIES):
            if self.files.get(name) not in (before, None):
                return True
            self._rest(SETTLE_S)
        return False

    def _put(self, name: str, known: Held | None, coming: Held) -> bool:
        """Journaled first; a write that failed leaves what was known."""
        self._held[name] = coming
        fault = "" if self._write_down() else "no journal"
        if not fault:
            fault = self.files.put(name, coming.ours)
            if fault:
                self._complain(name, f"{fault}; {GRANT} gives that right")
        if not fault:
            return True
        if known is None:
            self._drop(name)
        else:
            self._held[name] = known
            self._write_down()
        return False

    def _drop(self, name: str) -> None:
        del self._held[name]
        self._write_down()

    def _write_down(self) -> bool:
        held: Mapping[str, object] = {
            name: {"original": held.original, "ours": held.ours, "before": held.before}
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


def _lower(now: str, ours: str) -> bool:
    """Of a limit: another one may hold it down, with our value still in the slot."""
    return now.isdecimal() and ours.isdecimal() and int(now) < int(ours)
