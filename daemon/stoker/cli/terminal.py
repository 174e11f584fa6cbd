"""Where a verb writes: plain or coloured, with what a terminal must not see left out.

A model's words are untrusted: on a terminal, control characters are dropped, so that an
answer cannot move the cursor or change the title. A pipe gets every byte as it came.
"""

from __future__ import annotations

import os
import sys
from typing import TextIO

_DROPPED = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
_COLOURS = {"dim": "2", "bold": "1", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class Terminal:
    """Standard output and error as one verb uses them."""

    def __init__(
        self,
        *,
        colour: bool = True,
        as_json: bool = False,
        out: TextIO | None = None,
        err: TextIO | None = None,
    ) -> None:
        self.out = out or sys.stdout
        self.err = err or sys.stderr
        self.as_json = as_json
        self.out_is_tty = self.out.isatty()
        self.err_is_tty = self.err.isatty()
        wanted = colour and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        self.colour = wanted and self.out_is_tty

    def paint(self, text: str, *looks: str) -> str:
        """The text in these looks (``dim``, ``bold``, a colour), if colours are wanted."""
        if not self.colour or not text:
            return text
        codes = ";".join(_COLOURS[look] for look in looks)
        return f"\x1b[{codes}m{text}\x1b[0m"

    def clean(self, text: str) -> str:
        """Others' text without what a terminal would obey."""
        return clean(text) if self.out_is_tty else text

    def write(self, text: str) -> None:
        """At once, so that a reader sees each piece when it exists."""
        self.out.write(text)
        self.out.flush()

    def line(self, text: str = "") -> None:
        self.write(text + "\n")

    def json(self, value: object) -> None:
        """One JSON value on one line."""
        import json

        self.line(json.dumps(value, ensure_ascii=False, separators=(", ", ": ")))

    def note(self, text: str) -> None:
        """A remark for the person, beside the output."""
        self.err.write(clean(text) + "\n")
        self.err.flush()


def clean(text: str) -> str:
    return text.translate(_DROPPED)
