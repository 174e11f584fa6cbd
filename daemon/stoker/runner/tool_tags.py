"""Tool calls in tags, as Qwen3-Coder and later write them, and what may stand in them. Pure.

``<function=NAME>`` holds ``<parameter=KEY>``, a line break, the value, a line break,
``</parameter>`` for each argument. Texts stand there bare and everything else as JSON: only
the tool's schema tells ``1`` from ``"1"``.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from stoker.runner.literals import literal
from stoker.runner.schema_facts import pointed

if TYPE_CHECKING:
    from stoker.runner.schema import Rules

OPENINGS: Final = ("<function=", "<parameter=")
_FUNCTION: Final = re.compile(r"\s*<function=([^>\n]+)>\s*")
_PARAMETER: Final = re.compile(
    r"<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>\s*(?=<parameter=|</function>)", re.DOTALL
)
_END: Final = re.compile(r"</function>\s*")
_CLOSE: Final = "</parameter>"
_BREAK: Final = "\n"
_PYTHON: Final = {"True": True, "False": False, "None": None}  # as templates print them
# lines that begin with "<" might be a tag
_LINE: Final = r"([^<\n] [^\n]*)?"
_TEXT: Final = rf'{_LINE} ("\n" {_LINE})*'
_ANY: Final = rf'("<parameter=" [a-zA-Z0-9_.-]+ ">\n" {_TEXT} "\n</parameter>\n")*'
_MAX_DEPTH: Final = 16

Made = list[tuple[str, dict[str, object]]]


def read(body: str, offered: Mapping[str, object]) -> tuple[Made, bool]:
    """(name, arguments) of each call, [] when it is none; and whether it ended in a value."""
    made: Made = []
    at = 0
    while at < len(body):
        head = _FUNCTION.match(body, at)
        if head is None:
            return [], False
        name, at = head[1].strip(), head.end()
        schema, values = offered.get(name), {}
        while (found := _PARAMETER.match(body, at)) is not None:
            if OPENINGS[1] in found[2]:
                return [], False  # another call's: this one was not closed
            key = found[1].strip()
            values[key] = _value(found[2], kinds(_property(schema, key), schema))
            at = found.end()
        end = _END.match(body, at)
        if end is None:
            return [], body.rfind(OPENINGS[1]) > body.rfind(_CLOSE)
        made.append((name, values))
        at = end.end()
    return made, False


def arguments(rules: Rules, schema: object, path: str) -> str:
    """GBNF of all arguments, in the order of the schema. Raises GrammarInvalid.

    Texts are any lines that do not begin with "<"; their own patterns and lengths are not
    enforced.
    """
    type(rules)(schema).visit(schema, path, 0)  # refuses what the other forms refuse
    plain = rules.plain(schema, path, 0)
    properties = plain.get("properties")
    if not isinstance(properties, dict) or not properties:
        return "" if plain.get("additionalProperties") is False else _ANY
    listed = plain.get("required")
    required = listed if isinstance(listed, list) else []
    close = literal(f"{_BREAK}{_CLOSE}{_BREAK}")
    parts = []
    for key, value in properties.items():
        rule = _rule(rules, value, schema, f"{path}.{key}")
        part = f"{literal(f'<parameter={key}>{_BREAK}')} ({rule}) {close}"
        parts.append(part if key in required else f"({part})?")
    return " ".join(parts)


def kinds(schema: object, root: object) -> frozenset[str]:
    """The JSON types that a schema lets through; empty = any."""
    return _kinds(schema, root, {}, 0)


def _kinds(
    schema: object, root: object, known: dict[str, frozenset[str]], depth: int
) -> frozenset[str]:
    """``known``, by reference: each is followed once, however often the schema names it."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return frozenset()
    reference = schema.get("$ref")
    if isinstance(reference, str):
        if reference not in known:
            known[reference] = frozenset()  # of one that leads to itself
            with contextlib.suppress(LookupError):
                known[reference] = _kinds(pointed(root, reference), root, known, depth + 1)
        return known[reference]
    if "const" in schema:
        return frozenset({_kind(schema["const"])})
    if isinstance(schema.get("enum"), list):
        return frozenset(map(_kind, schema["enum"]))
    for word in ("anyOf", "oneOf"):
        if isinstance(schema.get(word), list):
            found = [_kinds(option, root, known, depth + 1) for option in schema[word]]
            return frozenset().union(*found) if all(found) else frozenset()
    if isinstance(schema.get("allOf"), list):  # as pydantic names a type with a description
        all_of = [_kinds(part, root, known, depth + 1) for part in schema["allOf"]]
        if said := [part for part in all_of if part]:
            return frozenset.intersection(*said)
    kind = schema.get("type", [])
    listed = kind if isinstance(kind, list) else [kind]
    return frozenset(one for one in listed if isinstance(one, str))


def _rule(rules: Rules, schema: object, root: object, path: str) -> str:
    options = schema.get("enum") if isinstance(schema, dict) else None
    if options and isinstance(options, list) and all(isinstance(one, str) for one in options):
        return " | ".join(map(literal, options))
    found = kinds(schema, root)
    return _TEXT if "string" in found or not found else rules.visit(schema, path, 1)


def _value(text: str, wanted: frozenset[str]) -> object:
    """What the words of a value mean, where these types are wanted."""
    if wanted == {"string"}:
        return text
    try:
        value = _PYTHON[text] if text in _PYTHON else json.loads(text)
    except (ValueError, RecursionError):
        return text
    kind = _kind(value)
    fits = not wanted or kind in wanted or (kind == "integer" and "number" in wanted)
    if "string" in wanted:
        return value if fits and kind != "string" else text
    return value


def _kind(value: object) -> str:
    for kind, name in (
        (bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (dict, "object"),
        (list, "array"),
    ):  # fmt: skip
        if isinstance(value, kind):
            return name
    return "null"


def _property(schema: object, key: str) -> object:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return properties.get(key) if isinstance(properties, dict) else None
