"""The device's past: what keeps it (``HistoryStore``), and what the door may ask."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from stoker.core.history import Event, Slice


@dataclass(frozen=True, slots=True)
class Past:
    slices: tuple[Slice, ...] = ()
    events: tuple[Event, ...] = ()


class HistoryStore(Protocol):
    """One thread. StorageFailed, InternalError as for sessions."""

    def open(self) -> None: ...

    def close(self) -> None: ...

    def add(self, slices: Sequence[Slice], events: Sequence[Event], keep_from_s: float) -> None:
        """In one transaction; what is older than ``keep_from_s`` goes."""

    def read(self, from_s: float, to_s: float) -> Past:
        """By time; ``to_s`` is not in it."""


class HistoryDoor(Protocol):
    def read(self, from_s: float, to_s: float, span_s: float) -> Future[Past]:
        """Columns of ``span_s`` (whole minutes). Fails with Unavailable where none is kept."""
