"""One verb of stokerctl, as the parser, the man page and the completion know it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple


class Verb(NamedTuple):
    """One verb: what it does in a line, in a paragraph, and how it is used."""

    name: str
    summary: str
    text: str
    examples: tuple[str, ...]
    fill: Callable[[argparse.ArgumentParser], None] = lambda _parser: None
