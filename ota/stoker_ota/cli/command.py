"""One command of stoker-ota, as the parser, the man page and the completion know it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple


class Command(NamedTuple):
    """Its words, what it does in a line and in a paragraph, and how it is used."""

    words: tuple[str, ...]
    summary: str
    text: str
    examples: tuple[str, ...]
    fill: Callable[[argparse.ArgumentParser], None] = lambda _parser: None
