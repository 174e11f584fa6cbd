"""Bytes of token pieces to text, never splitting a character.

A piece may end in the middle of a character; the rest comes with the next token.
Bytes that can never become a character turn into U+FFFD at once. Pure.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable

_DECODER = codecs.getincrementaldecoder("utf-8")


class Utf8Stream:
    """Feeding any split of some bytes gives the same text as decoding the whole."""

    __slots__ = ("_decoder", "feed")

    def __init__(self) -> None:
        self._decoder = _DECODER(errors="replace")
        self.feed: Callable[[bytes], str] = self._decoder.decode

    def flush(self) -> str:
        """What an unfinished character leaves: U+FFFD, or nothing."""
        return self._decoder.decode(b"", final=True)
