"""Follows a text through a grammar, character by character: which may come next. Pure.

Every open way through the rules is a stack; a state is a set of them. Stacks share their
tails and states are remembered, so that a grammar becomes a quick table as it is used.
All of it is bounded: a grammar that opens too many ways at once ends with GrammarInvalid.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from stoker.errors import GrammarInvalid
from stoker.runner.grammar_rules import HIGHEST, SURROGATES, Chars, Grammar

MAX_WAYS: Final = 1024
MAX_EXPANDED: Final = 16_384  # for one character
MAX_NODES: Final = 50_000
MAX_WORK: Final = 1_000_000  # expanded for one token: about a second
_MAX_REMEMBERED: Final = 20_000
_END: Final = 0

_LEAST: Final = {2: 0x80, 3: 0x800, 4: 0x10000}  # by bytes; less would be too long a form

State = frozenset[int]


class Point(NamedTuple):
    """Where a text has come to; ``pending`` are bytes of an unfinished character."""

    state: State
    pending: bytes = b""

    @property
    def complete(self) -> bool:
        """The text so far is a whole one."""
        return _END in self.state and not self.pending

    @property
    def exhausted(self) -> bool:
        """Nothing can follow."""
        return len(self.state) == 1 and self.complete


class Matcher:
    """One for each job: what it remembers grows with the text."""

    def __init__(self, grammar: Grammar) -> None:
        self._code: list[Chars | int | None] = []  # alternatives one after another, None = end
        self._starts: list[list[int]] = []
        for rule in grammar.rules:
            self._starts.append([self._lay(alternative) for alternative in rule])
        self._nodes: list[tuple[int, int]] = [(-1, -1)]  # (place in the code, what comes after)
        self._ids: dict[tuple[int, int], int] = {}
        self._known: dict[tuple[State, int], State] = {}
        self._states: dict[State, State] = {}
        self._work = 0
        self.start = Point(self._close(self._enter(grammar.root, _END)))

    def new_token(self) -> None:
        """The bound of work counts from here."""
        self._work = 0

    def feed(self, point: Point, data: bytes) -> Point | None:
        """The point after these bytes; None when the grammar does not allow them."""
        if not point.pending and data.isascii():
            state = self._run(point.state, data)
            return Point(state) if state else None
        data = point.pending + data
        while data:
            size = _length(data[0])
            if size == 0:
                return None
            if len(data) < size:
                return self._partial(point.state, data, size)
            try:
                code = ord(data[:size].decode())
            except UnicodeDecodeError:
                return None
            state = self._run(point.state, (code,))
            if not state:
                return None
            point, data = Point(state), data[size:]
        return point if not point.pending else Point(point.state)

    def _run(self, state: State, codes: Iterable[int]) -> State:
        known = self._known
        for code in codes:
            found = known.get((state, code))
            if found is None:
                found = self._step(state, code)
            if not found:
                return found
            state = found
        return state

    def _step(self, state: State, code: int) -> State:
        after = []
        for node in state:
            if node != _END:
                place, parent = self._nodes[node]
                item = self._code[place]
                if isinstance(item, Chars) and item.has(code):
                    after.append(self._after(place, parent))
        found = self._close(after)
        if len(self._known) >= _MAX_REMEMBERED:
            self._known.clear()
            self._states.clear()
        found = self._states.setdefault(found, found)
        self._known[state, code] = found
        return found

    def _partial(self, state: State, data: bytes, size: int) -> Point | None:
        """Bytes of a character that is not whole: could one that begins so be allowed?"""
        low = max(_decoded(data, size, 0x80), _LEAST[size])
        high = min(_decoded(data, size, 0xBF), HIGHEST)
        if low > high or (low >= SURROGATES[0] and high <= SURROGATES[1]):
            return None  # no character is written so
        items = (self._code[self._nodes[node][0]] for node in state if node != _END)
        if any(isinstance(item, Chars) and item.meets(low, high) for item in items):
            return Point(state, data)
        return None

    def _close(self, nodes: Sequence[int]) -> State:
        """Rules at the top are entered until only characters, or the end, are on top."""
        todo = list(nodes)
        seen = set(todo)
        found = set()
        while todo:
            node = todo.pop()
            place, parent = self._nodes[node]
            item = self._code[place] if node != _END else None
            if not isinstance(item, int):
                found.add(node)
                continue
            for new in self._enter(item, self._after(place, parent)):
                if new not in seen:
                    seen.add(new)
                    todo.append(new)
            self._work += 1
            if len(seen) > MAX_EXPANDED or self._work > MAX_WORK:
                raise _ambiguous()
        if len(found) > MAX_WAYS:
            raise _ambiguous()
        return frozenset(found)

    def _enter(self, rule: int, parent: int) -> list[int]:
        return [
            parent if self._code[start] is None else self._node(start, parent)
            for start in self._starts[rule]
        ]

    def _after(self, place: int, parent: int) -> int:
        # the last item of an alternative leaves nothing behind: loops need no memory
        return parent if self._code[place + 1] is None else self._node(place + 1, parent)

    def _node(self, place: int, parent: int) -> int:
        key = place, parent
        found = self._ids.get(key)
        if found is None:
            if len(self._nodes) >= MAX_NODES:
                raise GrammarInvalid("cannot go on: the grammar is nested too deep by this text")
            found = self._ids[key] = len(self._nodes)
            self._nodes.append(key)
        return found

    def _lay(self, alternative: tuple[Chars | int, ...]) -> int:
        start = len(self._code)
        self._code += [*alternative, None]
        return start


def _ambiguous() -> GrammarInvalid:
    return GrammarInvalid(
        "cannot use the grammar: it leaves too many ways open at once",
        hint="let alternatives differ in their first characters",
    )


def _length(first: int) -> int:
    """Bytes of a character by its first one; 0 = no character begins so."""
    if first < 0x80:
        return 1
    if 0xC2 <= first < 0xE0:
        return 2
    if 0xE0 <= first < 0xF0:
        return 3
    return 4 if 0xF0 <= first < 0xF5 else 0


def _decoded(data: bytes, size: int, filler: int) -> int:
    """The lowest (filler 0x80) or highest (0xBF) code point that begins with these bytes;
    far too high for both when they are no begin of a character.
    """
    code = data[0] & (0x7F >> size)
    for index in range(1, size):
        byte = data[index] if index < len(data) else filler
        if byte & 0xC0 != 0x80:
            return 1 << 30
        code = code << 6 | byte & 0x3F
    return code
