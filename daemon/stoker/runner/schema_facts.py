"""What single keywords of a JSON Schema say, and the grammar of plain JSON. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from stoker.errors import GrammarInvalid

MAX_COUNT: Final = 1000  # minItems, maxLength, …; a higher maximum is not enforced
PRIMITIVES: Final = """\
ws ::= (" " | "\\n" " "{0,16})?
value ::= object | array | string | number | boolean | null
object ::= "{" ws (pair ("," ws pair)*)? ws "}"
pair ::= string ":" ws value
array ::= "[" ws (value ("," ws value)*)? ws "]"
string ::= "\\"" char* "\\""
char ::= [^"\\\\\\x00-\\x1F\\x7F] | "\\\\" (["\\\\/bfnrt] | "u" hex{4})
hex ::= [0-9a-fA-F]
natural ::= "0" | [1-9] [0-9]{0,15}
integer ::= "-"? natural
number ::= integer ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,2})?
boolean ::= "true" | "false"
null ::= "null"
date ::= [0-9]{4} "-" ("0" [1-9] | "1" [0-2]) "-" ("0" [1-9] | [12] [0-9] | "3" [01])
time ::= ([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9] ":" [0-5] [0-9] ("." [0-9]{1,6})? zone
zone ::= "Z" | [-+] ([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9]
uuid ::= hex{8} "-" hex{4} "-" hex{4} "-" hex{4} "-" hex{12}
"""

Schema = Mapping[str, object]


def prefix(texts: Sequence[str]) -> str:
    """What all of these texts begin with."""
    low, high = min(texts), max(texts)
    same = next((at for at, char in enumerate(low) if not high.startswith(char, at)), len(low))
    return low[:same]


def pointed(document: object, reference: str) -> object:
    """What "#/…" leads to (RFC 6901). Raises LookupError."""
    found = document
    for part in reference.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and re.fullmatch("[0-9]{1,9}", key) and int(key) < len(found):
            found = found[int(key)]
        elif isinstance(found, dict) and key in found:
            found = found[key]
        else:
            raise LookupError(reference)
    return found


def guess(schema: Schema) -> str | None:
    """The type that other keywords speak of."""
    for kind, keys in (
        ("object", ("properties", "required", "additionalProperties")),
        ("array", ("items", "prefixItems", "minItems", "maxItems")),
        ("string", ("pattern", "minLength", "maxLength")),
    ):
        if any(key in schema for key in keys):
            return kind
    return None


def joined(key: str, old: object, new: object, path: str) -> object:
    if old == new or key in ("title", "description", "default", "examples", "$defs", "$schema"):
        return old
    if key == "properties" and isinstance(old, dict) and isinstance(new, dict):
        both = {name: {"allOf": [old[name], new[name]]} for name in new if name in old}
        return {**old, **new, **both}
    if key == "required" and isinstance(old, list) and isinstance(new, list):
        return [*old, *(name for name in new if name not in old)]
    raise wrong(f"{path}.{key}", "said twice, and differently")


def items(schema: Schema, key: str, path: str) -> list[object]:
    found = schema[key]
    if not isinstance(found, list) or (not found and key != "required"):
        raise wrong(f"{path}.{key}", "not a list with items")
    if key == "required" and not all(isinstance(name, str) for name in found):
        raise wrong(f"{path}.{key}", "not a list of names")
    return found


def bounds(schema: Schema, low: str, high: str, path: str) -> tuple[int, int | None]:
    least, most = schema.get(low, 0), schema.get(high)
    for key, value in ((low, least), (high, most if most is not None else 0)):
        if type(value) is not int or value < 0:
            raise wrong(f"{path}.{key}", "not a whole number")
    assert isinstance(least, int)
    if least > MAX_COUNT:
        raise wrong(f"{path}.{low}", f"over {MAX_COUNT}")
    if not isinstance(most, int) or most > MAX_COUNT:
        return least, None
    if most < least:
        raise wrong(f"{path}.{high}", f"below {low}")
    return least, most


def whole_range(schema: Schema, path: str) -> tuple[int | None, int | None]:
    found: list[int | None] = []
    for plain, exclusive, step in (
        ("minimum", "exclusiveMinimum", 1),
        ("maximum", "exclusiveMaximum", -1),
    ):
        value = schema.get(plain)
        edge = schema.get(exclusive)
        for key, number in ((plain, value), (exclusive, edge)):
            if number is not None and type(number) not in (int, float):
                raise wrong(f"{path}.{key}", "not a number")
        if type(edge) is int:
            found.append(edge + step)
        else:
            found.append(value if type(value) is int else None)
    return found[0], found[1]


def wrong(path: str, reason: str) -> GrammarInvalid:
    return GrammarInvalid(
        f"cannot use the schema: {path}: {reason}"[:500], details={"path": path[:200]}
    )
