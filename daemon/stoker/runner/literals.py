"""Text as a literal of GBNF. Pure."""

from __future__ import annotations

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def literal(text: str) -> str:
    """The quoted literal; control characters and lone surrogates by their number."""
    return '"' + "".join(map(_escaped, text)) + '"'


def code(char: int) -> str:
    """A code point that may stand in a literal or a class."""
    return f"\\U{char:08x}" if char > 0xFFFF else f"\\u{char:04x}"


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    plain = " " <= char <= "~" or char >= "\xa0"
    return char if plain and not "\ud800" <= char <= "\udfff" else code(ord(char))
