"""The device's past in SQLite: one row a minute, one for each model in it, one an event."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from stoker.core.history import Answers, Event, Slice
from stoker.core.latency import Histogram
from stoker.drivers.sqlite_file import SqliteFile
from stoker.ports.history import Past
from stoker.units import Celsius, Fraction, KiloHertz

MAX_PAGES: Final = 16_384
"""64 MiB: a month of minutes of a few models has a quarter of it."""
_FIRST: Final = (
    """CREATE TABLE slices (
        at_s REAL NOT NULL PRIMARY KEY,
        span_s REAL NOT NULL,
        temperature_c REAL, wall_c REAL, headroom REAL, cap_khz INTEGER, power_w REAL,
        above_wall_s REAL NOT NULL,
        queue INTEGER NOT NULL
    ) STRICT""",
    """CREATE TABLE answers (
        at_s REAL NOT NULL REFERENCES slices (at_s) ON DELETE CASCADE,
        model TEXT NOT NULL,
        gaps TEXT NOT NULL, gaps_s REAL NOT NULL,
        durations TEXT NOT NULL, durations_s REAL NOT NULL,
        prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL,
        failed INTEGER NOT NULL,
        PRIMARY KEY (at_s, model)
    ) STRICT""",
    "CREATE TABLE events (at_s REAL NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL) STRICT",
    "CREATE INDEX events_by_time ON events (at_s)",
)
STEPS: Final[tuple[tuple[str, ...], ...]] = (_FIRST,)
_SLICE: Final = (
    "at_s, span_s, temperature_c, wall_c, headroom, cap_khz, power_w, above_wall_s, queue"
)
_ANSWERS: Final = (
    "at_s, model, gaps, gaps_s, durations, durations_s, prompt_tokens, completion_tokens, failed"
)


class SqliteHistoryStore:
    """Port ``HistoryStore``."""

    def __init__(self, path: Path, *, max_pages: int = MAX_PAGES) -> None:
        self.file = SqliteFile(path, "the device's history", STEPS, max_pages=max_pages)

    def open(self) -> None:
        self.file.open()

    def close(self) -> None:
        self.file.close()

    def add(self, slices: Sequence[Slice], events: Sequence[Event], keep_from_s: float) -> None:
        with self.file.writing(durable=False) as con:
            for table in ("slices", "events"):
                con.execute(f"DELETE FROM {table} WHERE at_s < ?", (keep_from_s,))
            for one in slices:
                row = (one.at_s, one.span_s, one.temperature_c, one.wall_c, one.headroom,
                       one.cap_khz, one.power_w, one.above_wall_s, one.queue)  # fmt: skip
                con.execute(f"INSERT OR REPLACE INTO slices ({_SLICE}) VALUES "
                            "(?, ?, ?, ?, ?, ?, ?, ?, ?)", row)  # fmt: skip
                con.executemany(
                    f"INSERT INTO answers ({_ANSWERS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    [_row(one.at_s, model, found) for model, found in one.answers.items()],
                )
            con.executemany(
                "INSERT INTO events (at_s, kind, text) VALUES (?, ?, ?)",
                [(event.at_s, event.kind, event.text) for event in events],
            )
        self.file.checkpoint()

    def read(self, from_s: float, to_s: float) -> Past:
        within = "WHERE at_s >= ? AND at_s < ? ORDER BY at_s"
        with self.file.reading() as con:
            rows = con.execute(f"SELECT {_SLICE} FROM slices {within}", (from_s, to_s)).fetchall()
            found = con.execute(f"SELECT {_ANSWERS} FROM answers {within}", (from_s, to_s))
            answers: dict[float, dict[str, Answers]] = {}
            for at_s, model, *rest in found.fetchall():
                answers.setdefault(at_s, {})[model] = _answers(rest)
            marks = con.execute(f"SELECT at_s, kind, text FROM events {within}", (from_s, to_s))
            events = tuple(Event(*row) for row in marks.fetchall())
        return Past(tuple(_slice(row, answers.get(row[0], {})) for row in rows), events)


def _row(at_s: float, model: str, found: Answers) -> tuple[Any, ...]:
    gaps, durations = found.between_tokens, found.duration
    return (
        at_s, model, json.dumps(gaps.counts), gaps.sum_s, json.dumps(durations.counts),
        durations.sum_s, found.prompt_tokens, found.completion_tokens, found.failed,
    )  # fmt: skip


def _answers(row: Sequence[Any]) -> Answers:
    gaps, gaps_s, durations, durations_s, prompt, completion, failed = row
    return Answers(
        Histogram(tuple(json.loads(gaps)), gaps_s),
        Histogram(tuple(json.loads(durations)), durations_s),
        prompt,
        completion,
        failed,
    )


def _slice(row: Sequence[Any], answers: dict[str, Answers]) -> Slice:
    at_s, span_s, temperature_c, wall_c, headroom, cap_khz, power_w, above_wall_s, queue = row
    return Slice(
        at_s,
        span_s,
        None if temperature_c is None else Celsius(temperature_c),
        None if wall_c is None else Celsius(wall_c),
        None if headroom is None else Fraction(headroom),
        None if cap_khz is None else KiloHertz(cap_khz),
        power_w,
        above_wall_s,
        queue,
        answers,
    )
