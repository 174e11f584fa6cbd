"""How the tour looks: numbered headings, commands as they are run, small facts."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text


class Screen:
    """A thin layer over rich; text is never read as markup."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)

    def heading(self, number: int, total: int, title: str) -> None:
        self.console.print()
        self.console.rule(Text(f"{number}/{total}  {title}", style="bold"), align="left")

    def say(self, text: str, style: str = "") -> None:
        self.console.print(Text(text, style=style), soft_wrap=True)

    def fact(self, name: str, value: str) -> None:
        line = Text(f"  {name:<12}", style="dim").append(Text(value, style="default"))
        self.console.print(line, soft_wrap=True)

    def command(self, words: Sequence[str]) -> None:
        # One unbroken line, so that it can be copied.
        line = Text("$ ", style="dim").append(Text(shlex.join(words), style="bold cyan"))
        self.console.print(line, soft_wrap=True)

    def run(self, words: Sequence[str], timeout_s: float, *, may_fail: bool = False) -> int:
        """Show a command and run exactly it, with its output here; returns its status.
        ``may_fail``: what it says on standard error belongs to the show.
        """
        self.command(words)
        sys.stdout.flush()
        err = subprocess.STDOUT if may_fail else None
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=err)
        try:
            return child.wait(timeout_s)
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()

    def write(self, text: str) -> None:
        """A piece of a streamed answer."""
        self.console.print(Text(text), end="", soft_wrap=True)
        self.console.file.flush()


def interactive() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
