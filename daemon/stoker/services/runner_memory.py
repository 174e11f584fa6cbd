"""What is remembered of models over restarts: the last good one, the selected one, load times.

A small state file behind a port. A disk that is full must not stop answering.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from stoker.errors import StokerError
from stoker.ports.system import StateFile
from stoker.units import Seconds

_log = logging.getLogger(__name__)
SMOOTHING: Final = 0.5  # weight of the newest load
MAX_MODELS: Final = 64
_SELECTED: Final = ("model", "over")
WORTH_WRITING: Final = 0.2  # a change by so much of the old value is written at once


class RunnerMemory:
    """Read once; written when something worth it changed."""

    def __init__(self, file: StateFile) -> None:
        self._file = file
        found = file.load()
        good, loads = found.get("last_good", ""), found.get("load_s", {})
        self.last_good = good if isinstance(good, str) else ""
        chosen = found.get("selected")
        self._selected = _selection(chosen) if isinstance(chosen, Mapping) else ("", "")
        self._load_s = _times(loads) if isinstance(loads, Mapping) else {}

    def selected(self, default: str) -> str:
        """The model that an administrator chose over ``default``; "" = none, or the
        configuration has been changed since, which is a newer word.
        """
        name, over = self._selected
        return name if over == default else ""

    def remember_selected(self, model: str, default: str) -> None:
        chosen = ("", "") if model == default else (model, default)
        if chosen != self._selected:
            self._selected = chosen
            self._save()

    def load_s(self, model: str) -> Seconds:
        """How long this model takes to load; 0 = not known."""
        return Seconds(self._load_s.get(model, 0.0))

    def learn_load(self, model: str, took_s: float) -> None:
        old = self._load_s.get(model)
        new = took_s if old is None else old + SMOOTHING * (took_s - old)
        self._load_s[model] = round(new, 3)
        while len(self._load_s) > MAX_MODELS:
            del self._load_s[next(iter(self._load_s))]
        if old is None or abs(new - old) > WORTH_WRITING * old:
            self._save()

    def remember_good(self, model: str) -> None:
        self.last_good = model
        self._save()

    def _save(self) -> None:
        try:
            self._file.save(
                {
                    "last_good": self.last_good,
                    "load_s": self._load_s,
                    "selected": dict(zip(_SELECTED, self._selected, strict=True)),
                }
            )
        except StokerError as error:
            _log.warning("%s", error.message)


def _selection(found: Mapping[str, object]) -> tuple[str, str]:
    model, over = (found.get(key) for key in _SELECTED)
    return (model, over) if isinstance(model, str) and isinstance(over, str) else ("", "")


def _times(loads: Mapping[str, object]) -> dict[str, float]:
    """Only what can be a time: the file may be anybody's."""
    return {
        str(name): float(took)
        for name, took in list(loads.items())[:MAX_MODELS]
        if isinstance(took, int | float) and 0.0 <= took < 86_400.0
    }
