"""A grammar as numbered rules, and what must be true of it before it is used. Pure.

A matcher that follows it must neither loop for ever nor lead a text to where nothing ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Final, NamedTuple

from stoker.errors import GrammarInvalid

HIGHEST: Final = 0x10FFFF
SURROGATES: Final = (0xD800, 0xDFFF)


class Chars(NamedTuple):
    """A set of code points; ``ranges`` hold both ends."""

    ranges: tuple[tuple[int, int], ...]
    negated: bool = False

    def has(self, code: int) -> bool:
        return any(low <= code <= high for low, high in self.ranges) is not self.negated

    def meets(self, low: int, high: int) -> bool:
        """True when some code point of low..high may be in the set."""
        if not self.negated:
            return any(first <= high and low <= last for first, last in self.ranges)
        return not any(first <= low and high <= last for first, last in self.ranges)

    @property
    def empty(self) -> bool:
        """No text can have one: nothing is left, or halves of surrogate pairs alone."""
        if not self.negated:
            first, last = SURROGATES
            return all(first <= low and high <= last for low, high in self.ranges)
        reached = 0
        for low, high in sorted((*self.ranges, SURROGATES)):
            if low > reached:
                return False
            reached = max(reached, high + 1)
        return reached > HIGHEST


Item = Chars | int
"""One step of an alternative: characters, or the number of a rule."""
Rule = tuple[tuple[Item, ...], ...]
"""Alternatives."""


@dataclass(frozen=True, slots=True)
class Grammar:
    rules: tuple[Rule, ...]
    root: int


def prove(rules: tuple[Rule, ...], names: Mapping[int, str], loops: Set[int]) -> None:
    """Raises GrammarInvalid for a rule that can never end or begins with itself.

    ``loops`` are the rules of ``X*``: of these it does no harm to begin with themselves.
    """
    ends = _closed(rules, chars=True)
    for number, rule in enumerate(rules):
        if number not in ends and rule:
            name = names.get(number, "a group")
            raise GrammarInvalid(f"cannot use the grammar: {name} can never end")
    circle = _left_recursive(rules, _closed(rules, chars=False), loops)
    if circle is not None:
        name = names.get(circle, "a group")
        raise GrammarInvalid(f"cannot use the grammar: {name} begins with itself (left recursion)")


def _closed(rules: tuple[Rule, ...], *, chars: bool) -> set[int]:
    """Rules with an alternative all of whose items count; characters count if ``chars``."""
    users: dict[int, list[int]] = {}
    owner: list[int] = []
    open_items: list[int] = []
    ready: list[int] = []
    for number, rule in enumerate(rules):
        for alternative in rule:
            index = len(owner)
            owner.append(number)
            references = [item for item in alternative if isinstance(item, int)]
            plain = len(references) == len(alternative)
            open_items.append(len(references) if plain or chars else -1)
            for item in references:
                users.setdefault(item, []).append(index)
            if not references and (plain or chars):
                ready.append(number)
    found: set[int] = set()
    while ready:
        number = ready.pop()
        if number in found:
            continue
        found.add(number)
        for index in users.get(number, ()):
            open_items[index] -= 1
            if open_items[index] == 0:
                ready.append(owner[index])
    return found


def _left_recursive(rules: tuple[Rule, ...], empty: Set[int], loops: Set[int]) -> int | None:
    """A rule that can begin with itself, or None. Depth first, without Python's recursion."""
    colour: dict[int, bool] = {}  # False = under way, True = done
    for start in range(len(rules)):
        todo: list[tuple[int, Iterable[int]]] = []
        if start not in colour:
            colour[start] = False
            todo.append((start, iter(_first(rules, start, empty, loops))))
        while todo:
            number, following = todo[-1]
            child = next(iter(following), None)
            if child is None:
                colour[number] = True
                todo.pop()
            elif child not in colour:
                colour[child] = False
                todo.append((child, iter(_first(rules, child, empty, loops))))
            elif not colour[child]:
                return child
    return None


def _first(rules: tuple[Rule, ...], number: int, empty: Set[int], loops: Set[int]) -> list[int]:
    """Rules that may stand at the very begin of this one."""
    found = []
    for alternative in rules[number]:
        for item in alternative:
            if not isinstance(item, int):
                break
            if not (item == number and number in loops):
                found.append(item)
            if item not in empty:
                break
    return found
