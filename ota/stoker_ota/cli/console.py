"""Where a command writes: results to standard output, remarks and bars to standard error."""

from __future__ import annotations

import json
import sys
from types import TracebackType
from typing import Any, Self

_DROPPED = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


class Console:
    """``as_json``: one JSON object for programs instead of lines for people."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json

    def line(self, text: str = "") -> None:
        print(clean(text), flush=True)

    def json(self, value: object) -> None:
        print(json.dumps(value, ensure_ascii=False), flush=True)

    def note(self, text: str) -> None:
        print(clean(text), file=sys.stderr, flush=True)

    def table(self, rows: list[tuple[str, str]]) -> None:
        """Names and values, aligned."""
        width = max(len(name) for name, _ in rows)
        for name, value in rows:
            self.line(f"{name:{width}}  {value}")

    def bar(self) -> Bar:
        return Bar(shown=sys.stderr.isatty() and not self.as_json)


class Bar:
    """A progress callback with a bar for each phase; nothing when standard error is no terminal.

    It vanishes at the end. rich is imported only when a bar is really drawn.
    """

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._progress: Any = None
        self._tasks: dict[str, Any] = {}

    def __call__(self, phase: str, done: int, total: int) -> None:
        if not self._shown:
            return
        if self._progress is None:
            self._progress = _progress()
        if phase not in self._tasks:
            self._tasks[phase] = self._progress.add_task(phase, total=total)
        self._progress.update(self._tasks[phase], completed=done, total=max(total, 1))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._progress is not None:
            self._progress.stop()


def _progress() -> Any:
    from rich.console import Console as Screen
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    progress = Progress(
        TextColumn("{task.description:8}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Screen(stderr=True),
        transient=True,
    )
    progress.start()
    return progress


def clean(text: str) -> str:
    """Others' text (file names, tensor names) without what a terminal would obey."""
    return text.translate(_DROPPED)


def size(count: int) -> str:
    """1.5 MiB."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
