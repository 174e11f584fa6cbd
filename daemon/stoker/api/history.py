"""org.stoker.History1: the device's past for everyone. Reads, changes nothing."""

from __future__ import annotations

import math
from typing import Any, Final

from stoker.api import contract
from stoker.api.exports import Answer, Door, Later, bus_text, vardict
from stoker.core.history import Slice
from stoker.errors import InvalidRequest
from stoker.events.inference import Owner
from stoker.ports.history import HistoryDoor, Past

_HERTZ: Final = 1000


class HistoryRoom:
    def __init__(self, history: HistoryDoor) -> None:
        self._history = history

    def door(self) -> Door:
        return Door(contract.HISTORY, {"Read": self.read})

    def read(self, _owner: Owner, args: tuple[Any, ...]) -> Later:
        if not all(math.isfinite(value) for value in args):
            raise InvalidRequest("cannot read the history: from, to and span must be numbers")
        return Later(self._history.read(*args), _answer)


def _answer(past: Past) -> Answer:
    answers = [
        (
            one.at_s,
            bus_text(model),
            found.between_tokens.counts,
            found.between_tokens.sum_s,
            found.duration.counts,
            found.duration.sum_s,
            found.prompt_tokens,
            found.completion_tokens,
            found.failed,
        )
        for one in past.slices
        for model, found in sorted(one.answers.items())
    ]
    events = [(event.at_s, event.kind, bus_text(event.text)) for event in past.events]
    return Answer(([_column(one) for one in past.slices], answers, events))


def _column(one: Slice) -> dict[str, Any]:
    values: dict[str, tuple[str, Any]] = {
        "at": ("d", one.at_s),
        "span_s": ("d", one.span_s),
        "temperature_c": ("d", one.temperature_c),
        "wall_c": ("d", one.wall_c),
        "headroom": ("d", one.headroom),
        "cap_hz": ("t", None if one.cap_khz is None else one.cap_khz * _HERTZ),
        "power_w": ("d", one.power_w),
        "above_wall_s": ("d", one.above_wall_s),
        "queue": ("u", one.queue),
    }
    return vardict(**{key: value for key, value in values.items() if value[1] is not None})
