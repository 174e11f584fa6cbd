"""One answer's way through its grammar, in tokens of a vocabulary. Pure but for the pieces."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final

from stoker.runner.grammar_rules import Grammar
from stoker.runner.matcher import Matcher, Point

MOST_FOUND: Final = 4096

Pieces = tuple[Sequence[bytes], Sequence[int]]
"""Bytes of all tokens that print something, in order, and their numbers."""


class Constraint:
    """``piece``: bytes of a token, None = it ends the text. ``pieces``: all, made when needed."""

    def __init__(
        self,
        grammar: Grammar,
        piece: Callable[[int], bytes | None],
        pieces: Callable[[], Pieces],
        ends: Callable[[], Sequence[int]],
    ) -> None:
        self._matcher = Matcher(grammar)
        self._point = self._matcher.start
        self._piece = piece
        self._pieces = pieces
        self._ends = ends

    @property
    def exhausted(self) -> bool:
        """The answer is whole and nothing may follow."""
        return self._point.exhausted

    def new_token(self) -> None:
        self._matcher.new_token()

    def allows(self, token: int) -> bool:
        piece = self._piece(token)
        return self._point.complete if piece is None else self._after(piece) is not None

    def accept(self, token: int) -> bool:
        """Go on with this token; False, and nothing changed, when the grammar forbids it."""
        piece = self._piece(token)
        if piece is None:
            return self._point.complete
        after = self._after(piece)
        if after is not None:
            self._point = after
        return after is not None

    def all_allowed(self) -> list[int]:
        """Every token that may come, at most ``MOST_FOUND``, by a walk over sorted pieces:
        what no token with a beginning can follow is passed over at once.
        """
        pieces, numbers = self._pieces()
        found = list(self._ends()) if self._point.complete else []
        points = [self._point]  # after each byte of ``before``
        before = b""
        at = 0
        while at < len(pieces) and len(found) < MOST_FOUND:
            piece = pieces[at]
            same = _common(before, piece)
            del points[same + 1 :]
            for size in range(same, len(piece)):
                after = self._matcher.feed(points[-1], piece[size : size + 1])
                if after is None:
                    before = piece[:size]
                    at = bisect_left(pieces, _next(piece[: size + 1]), at + 1)
                    break
                points.append(after)
            else:
                before = piece
                found.append(numbers[at])
                at += 1
        return found

    def _after(self, piece: bytes) -> Point | None:
        return self._matcher.feed(self._point, piece) if piece else None


def _common(one: bytes, other: bytes) -> int:
    size = min(len(one), len(other))
    return next((at for at in range(size) if one[at] != other[at]), size)


def _next(prefix: bytes) -> bytes:
    """The first bytes behind everything that begins with ``prefix``."""
    body = prefix.rstrip(b"\xff")
    return body[:-1] + bytes((body[-1] + 1,)) if body else b"\xff" * 64
