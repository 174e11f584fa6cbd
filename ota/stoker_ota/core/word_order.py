"""Options may stand anywhere among a command's words: argparse wants the other words together.

It gives all positionals that may be left out their (empty) values with the first run of words, so
that ``install --json FOLDER`` has no place for FOLDER. stokerctl reads its words with it too.
Pure; judges nothing.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Final

_NUMBER: Final = re.compile(r"-\d+|-\d*\.\d+")  # as argparse knows them: values, not options


def gathered(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """The same words with the options behind the others, or before them where ``--`` ends options.

    Unchanged when an option lacks its value: no other word may become it.
    """
    takes = {name: action.nargs for action in parser._actions for name in action.option_strings}
    options: list[str] = []
    others: list[str] = []
    rest = list(words)
    many = False
    while rest and rest[0] != "--":
        word = rest.pop(0)
        if not _is_option(word):
            others.append(word)
            continue
        options.append(word)
        nargs = takes.get(word, 0)
        if nargs in ("*", "+"):
            many = True
            while rest and not _is_option(rest[0]):
                options.append(rest.pop(0))
        elif nargs != 0:
            if not rest or rest[0] == "--":
                return list(words)
            options.append(rest.pop(0))
    if not rest:
        return [*others, *options]
    return list(words) if many else [*options, *others, *rest]


def _is_option(word: str) -> bool:
    return len(word) > 1 and word.startswith("-") and not _NUMBER.fullmatch(word)
