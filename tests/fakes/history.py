"""A past that stands still, as the door tells it; and a store in memory."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace

from stoker.core.history import Answers, Event, Slice, widened
from stoker.core.latency import Histogram
from stoker.errors import StorageFailed
from stoker.ports.history import Past
from stoker.units import Celsius, Fraction, KiloHertz

WARM = Slice(
    600.0,
    temperature_c=Celsius(71.0),
    wall_c=Celsius(80.0),
    headroom=Fraction(0.5),
    cap_khz=KiloHertz(1_500_000),
    above_wall_s=2.0,
    queue=3,
    answers={
        "tiny": Answers(Histogram((0, 4, 1), 0.012), Histogram((0,) * 9 + (2,), 0.7), 90, 7, 1)
    },
)
PAST = Past((WARM, Slice(660.0, queue=1)), (Event(610.0, "restart", "killed by signal 9"),))


class FakeHistory:
    def read(self, from_s: float, to_s: float, span_s: float) -> Future[Past]:
        future: Future[Past] = Future()
        slices = [one for one in PAST.slices if from_s <= one.at_s < to_s]
        future.set_result(replace(PAST, slices=widened(slices, span_s)))
        return future


class MemoryHistoryStore:
    """``full``: the disk refuses."""

    def __init__(self) -> None:
        self.slices: dict[float, Slice] = {}
        self.events: list[Event] = []
        self.full = False

    def open(self) -> None: ...

    def close(self) -> None: ...

    def add(self, slices: Sequence[Slice], events: Sequence[Event], keep_from_s: float) -> None:
        if self.full:
            raise StorageFailed("cannot write the device's history: it is full")
        self.slices |= {one.at_s: one for one in slices}
        self.slices = {at_s: one for at_s, one in self.slices.items() if at_s >= keep_from_s}
        self.events = [event for event in (*self.events, *events) if event.at_s >= keep_from_s]

    def read(self, from_s: float, to_s: float) -> Past:
        return Past(
            tuple(self.slices[at_s] for at_s in sorted(self.slices) if from_s <= at_s < to_s),
            tuple(event for event in self.events if from_s <= event.at_s < to_s),
        )
