"""Reads a grammar in GBNF (the notation of llama.cpp) and proves that it can be used. Pure.

llama.cpp's own reader dies of some grammars (60,000 brackets; a left recursion behind a
rule that may be empty), so what comes from a caller never reaches it: this one is bounded,
and refuses left recursion, unknown rules and rules that can never end.
Syntax: literals, [classes], ``.``, groups, ``| * + ? {m,n}``, comments; no token references.
"""

from __future__ import annotations

from typing import Final, NoReturn

from stoker.errors import GrammarInvalid
from stoker.runner.grammar_rules import HIGHEST, Chars, Grammar, Item, prove

MAX_BYTES: Final = 64 * 1024
MAX_MADE_BYTES: Final = 1024 * 1024  # of a grammar that we made of a bounded schema
MAX_ITEMS: Final = 100_000  # after repetitions are written out
MAX_DEPTH: Final = 64
MAX_REPEAT: Final = 2000
_PLAIN: Final = {"t": 9, "r": 13, "n": 10, "\\": 92, '"': 34, "[": 91, "]": 93, "-": 45, "^": 94}
_HEX: Final = {"x": 2, "u": 4, "U": 8}


def parse(text: str, *, max_bytes: int = MAX_BYTES) -> Grammar:
    """The grammar of a text; raises GrammarInvalid with the line and the reason."""
    if len(text.encode("utf-8", "replace")) > max_bytes:
        raise GrammarInvalid(f"cannot use the grammar: it is over {max_bytes} bytes")
    reader = _Reader(text)
    reader.read()
    if "root" not in reader.numbers:
        raise GrammarInvalid("cannot use the grammar: it has no rule named root")
    names = {number: name for name, number in reader.numbers.items()}
    missing = [names[number] for number, rule in enumerate(reader.rules) if rule is None]
    if missing:
        raise GrammarInvalid(f"cannot use the grammar: rule {missing[0]} is not defined")
    rules = tuple(tuple(rule) for rule in reader.rules if rule is not None)
    prove(rules, names, reader.loops)
    return Grammar(rules, reader.numbers["root"])


class _Reader:
    """Recursive descent over the text; groups and repetitions become rules of their own."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self.numbers: dict[str, int] = {}
        self.rules: list[list[tuple[Item, ...]] | None] = []
        self.loops: set[int] = set()  # X* as S ::= X S | nothing: may loop without harm
        self._items = 0

    def read(self) -> None:
        self._space(lines=True)
        while self._at < len(self._text):
            self._rule()
            self._space(lines=True)

    def refuse(self, reason: str) -> NoReturn:
        line = self._text.count("\n", 0, self._at) + 1
        raise GrammarInvalid(
            f"cannot use the grammar: line {line}: {reason}", details={"path": f"line {line}"}
        )

    def _rule(self) -> None:
        name = self._name()
        if not name:
            self.refuse("expected the name of a rule")
        number = self._number(name)
        if self.rules[number] is not None:
            self.refuse(f"rule {name} is there twice")
        self._space(lines=False)
        if not self._text.startswith("::=", self._at):
            self.refuse("expected ::=")
        self._at += 3
        self._space(lines=True)
        self.rules[number] = self._alternatives(nested=False)
        if self._at < len(self._text) and self._text[self._at] not in "\r\n":
            self.refuse(f"unexpected {self._text[self._at]!r}")

    def _alternatives(self, *, nested: bool) -> list[tuple[Item, ...]]:
        found = [self._sequence(nested=nested)]
        while True:
            self._continue(nested=nested)
            if self._peek() != "|":
                return found
            self._at += 1
            self._space(lines=True)
            found.append(self._sequence(nested=nested))

    def _continue(self, *, nested: bool) -> None:
        """A line that begins with | goes on with the rule before it."""
        before = self._at
        self._space(lines=True)
        if self._peek() != "|" and not nested:
            self._at = before

    def _sequence(self, *, nested: bool) -> tuple[Item, ...]:
        items: list[Item] = []
        while True:
            unit = self._unit()
            if unit is None:
                self._count(len(items) + 1)
                return tuple(items)
            self._space(lines=nested)
            while (times := self._times(nested=nested)) is not None:
                unit = self._repeat(unit, *times)
                self._space(lines=nested)
            items += unit

    def _unit(self) -> list[Item] | None:
        char = self._peek()
        if char == '"':
            return self._literal()
        if char == "[":
            return [self._class()]
        if char == ".":
            self._at += 1
            return [Chars((), negated=True)]
        if char == "(":
            return [self._group()]
        if char == "<" or self._text.startswith("!<", self._at):
            self.refuse("references to tokens are not supported")
        name = self._name()
        return [self._number(name)] if name else None

    def _group(self) -> int:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self.refuse(f"groups are nested more than {MAX_DEPTH} deep")
        self._at += 1
        self._space(lines=True)
        made = self._add(self._alternatives(nested=True))
        if self._peek() != ")":
            self.refuse("expected )")
        self._at += 1
        self._depth -= 1
        return made

    def _literal(self) -> list[Item]:
        self._at += 1
        found: list[Item] = []
        while self._peek() != '"':
            code = self._char()
            found.append(self._some(Chars(((code, code),))))
        self._at += 1
        self._count(len(found))
        return found

    def _class(self) -> Chars:
        self._at += 1
        negated = self._peek() == "^"
        self._at += negated
        ranges: list[tuple[int, int]] = []
        while self._peek() != "]":
            low = high = self._char()
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high = self._char()
                if high < low:
                    self.refuse("a range of characters goes backwards")
            ranges.append((low, high))
        self._at += 1
        self._count(len(ranges))
        return self._some(Chars(tuple(ranges), negated))

    def _some(self, chars: Chars) -> Chars:
        """An answer that comes to an empty set could only break off there."""
        if chars.empty:
            self.refuse("no character can stand here")
        return chars

    def _char(self) -> int:
        """The code point of a character or of an escape."""
        char = self._peek()
        if not char:
            self.refuse("the text ends inside a literal")
        self._at += 1
        if char != "\\":
            return ord(char)
        kind = self._peek()
        self._at += 1
        if kind in _PLAIN:
            return _PLAIN[kind]
        digits = self._text[self._at : self._at + _HEX.get(kind, 0)]
        self._at += len(digits)
        try:
            code = int(digits, 16)
        except ValueError:
            self.refuse(f"unknown escape \\{kind}{digits}")
        if len(digits) != _HEX[kind] or code > HIGHEST:
            self.refuse(f"\\{kind}{digits} is no character")
        return code

    def _times(self, *, nested: bool) -> tuple[int, int | None] | None:
        """(least, most or None for no end) of a repetition sign."""
        sign = self._peek()
        if sign and sign in "*+?":
            self._at += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
        if sign != "{":
            return None
        end = self._text.find("}", self._at)
        parts = [part.strip() for part in self._text[self._at + 1 : end].split(",")]
        if end < 0 or len(parts) > 2 or not all(_small(part) for part in parts if part):
            self.refuse("expected {least,most}")
        self._at = end + 1
        self._space(lines=nested)
        if not parts[0]:
            self.refuse("expected {least,most}")
        least = int(parts[0])
        most = least if len(parts) == 1 else int(parts[1]) if parts[1] else None
        if max(least, most or 0) > MAX_REPEAT:
            self.refuse(f"more than {MAX_REPEAT} repetitions")
        if most is not None and most < least:
            self.refuse("a repetition has its limits the wrong way round")
        return least, most

    def _repeat(self, unit: list[Item], least: int, most: int | None) -> list[Item]:
        if len(unit) != 1:
            unit = [self._add([tuple(unit)])]
        item = unit[0]
        self._count(least)
        out: list[Item] = [item] * least
        if most is None:
            loop = self._add([])
            self.rules[loop] = [(item, loop), ()]
            self.loops.add(loop)
            return [*out, loop]
        rest: int | None = None
        for _ in range(most - least):
            rest = self._add([(item,) if rest is None else (item, rest), ()])
        return out if rest is None else [*out, rest]

    def _add(self, rule: list[tuple[Item, ...]]) -> int:
        self._count(2)
        self.rules.append(rule)
        return len(self.rules) - 1

    def _count(self, more: int) -> None:
        self._items += more
        if self._items > MAX_ITEMS:
            self.refuse(f"it has more than {MAX_ITEMS} parts, repetitions written out")

    def _number(self, name: str) -> int:
        if name not in self.numbers:
            self.numbers[name] = len(self.rules)
            self.rules.append(None)
        return self.numbers[name]

    def _name(self) -> str:
        start = self._at
        while (char := self._peek()) and char.isascii() and (char.isalnum() or char in "-_"):
            self._at += 1
        return self._text[start : self._at]

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _space(self, *, lines: bool) -> None:
        blank = " \t\r\n" if lines else " \t"
        while char := self._peek():
            if char == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            elif char in blank:
                self._at += 1
            else:
                return


def _small(digits: str) -> bool:
    return digits.isascii() and digits.isdigit() and len(digits) < 8
