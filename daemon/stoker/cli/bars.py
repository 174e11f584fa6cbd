"""Progress bars on standard error: the loading of a model, the reading of a long prompt.

They vanish when they end and cost nothing when standard error is no terminal; rich is
imported only when one is really drawn.
"""

from __future__ import annotations

from typing import Any


class Bar:
    """A transient bar; ``update`` draws it from the first time on, ``close`` takes it away."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._progress: Any = None
        self._task: Any = None

    def update(self, title: str, fraction: float) -> None:
        """``fraction`` 0..1."""
        if not self._shown:
            return
        if self._progress is None:
            self._progress, self._task = _start(title)
        self._progress.update(self._task, description=title, completed=min(max(fraction, 0), 1))

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def _start(title: str) -> tuple[Any, Any]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    progress = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = progress.add_task(title, total=1.0)
    progress.start()
    return progress, task
