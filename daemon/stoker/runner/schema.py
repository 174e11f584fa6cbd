"""JSON Schema to GBNF: the grammar whose texts are JSON that the schema accepts. Pure.

What a grammar cannot hold is refused (``not``, ``if``, ``patternProperties``, …) or left to
the caller to check (wide number ranges, ``multipleOf``, ``uniqueItems``, unknown formats):
docs/inference.md lists it. An object takes its properties in the order they are given in,
and no others unless ``additionalProperties`` says so.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from stoker.errors import GrammarInvalid
from stoker.runner import pattern
from stoker.runner.literals import literal
from stoker.runner.schema_facts import (
    PRIMITIVES,
    Schema,
    bounds,
    guess,
    items,
    joined,
    pointed,
    prefix,
    whole_range,
    wrong,
)

MAX_BYTES: Final = 64 * 1024
MAX_RULES: Final = 5000
MAX_DEPTH: Final = 96
MAX_WORK: Final = 20_000  # schemas looked at: references may multiply them
_MAX_RANGE: Final = 512  # whole numbers that are written out
_REFUSED: Final = (
    "not", "if", "then", "else", "patternProperties", "propertyNames", "dependentSchemas",
    "dependentRequired", "dependencies", "contains", "$dynamicRef", "$recursiveRef",
)  # fmt: skip
_FORMATS: Final = {"date": "date", "time": "time", "date-time": 'date "T" time', "uuid": "uuid"}
_TYPES: Final = ("object", "array", "string", "number", "integer", "boolean", "null")


def to_gbnf(text: str) -> str:
    """A grammar whose root is one JSON value of this schema. Raises GrammarInvalid."""
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise GrammarInvalid(f"cannot use the schema: it is over {MAX_BYTES} bytes")
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise GrammarInvalid(f"cannot use the schema: it is no JSON: {error}"[:300]) from error
    return grammar_of(schema)


def grammar_of(schema: object) -> str:
    """As ``to_gbnf``, of a schema that was read."""
    made = Rules(schema)
    body = made.visit(schema, "$", 0)
    return document(body, [made])


def document(root: str, parts: Sequence[Rules]) -> str:
    """The whole text of a grammar."""
    rules = [rule for part in parts for rule in part.rules]
    return "\n".join([f"root ::= {root}", PRIMITIVES, *rules, ""])


class Rules:
    """Rules made so far; each (sub)schema becomes an expression that may stand in a rule."""

    def __init__(self, document: object, prefix: str = "r") -> None:
        self._document = document
        self._prefix = prefix
        self.rules: list[str] = []
        self._references: dict[str, str] = {}
        self._work = 0

    def visit(self, schema: object, path: str, depth: int) -> str:
        self._count(path, depth)
        if schema is True:
            return "value"
        if not isinstance(schema, dict):
            raise wrong(path, "false accepts nothing" if schema is False else "not a schema")
        for key in _REFUSED:
            if key in schema:
                raise wrong(f"{path}.{key}", "not supported")
        if "$ref" in schema:
            return self._reference(schema["$ref"], path, depth)
        if "const" in schema:
            return self._choice([schema["const"]])
        if "enum" in schema:
            return self._choice(items(schema, "enum", path))
        for word in ("anyOf", "oneOf"):
            if word in schema:
                return self._any(schema, word, path, depth)
        if "allOf" in schema:
            return self.visit(self._all(schema, path, depth), path, depth + 1)
        return self._typed(schema, path, depth)

    def _typed(self, schema: Schema, path: str, depth: int) -> str:
        kind = schema.get("type", guess(schema))
        if isinstance(kind, list):
            if not kind:
                raise wrong(f"{path}.type", "is empty")
            parts = [self.visit({**schema, "type": one}, path, depth + 1) for one in kind]
            return self._rule(" | ".join(parts))
        match kind:
            case None:
                return "value"
            case "object":
                return self._object(schema, path, depth)
            case "array":
                return self._array(schema, path, depth)
            case "string":
                return self._string(schema, path)
            case "integer":
                return self._integer(schema, path)
            case "number" | "boolean" | "null":
                return str(kind)
        raise wrong(f"{path}.type", f"{kind!r} is not one of {', '.join(_TYPES)}")

    def _reference(self, target: object, path: str, depth: int) -> str:
        if not isinstance(target, str) or not (target == "#" or target.startswith("#/")):
            raise wrong(f"{path}.$ref", "only references inside the schema (#/…) are followed")
        if target not in self._references:
            name = self._references[target] = self._rule("")
            body = self.visit(self._resolve(target, path), target, depth + 1)
            self.rules[int(name[len(self._prefix) :])] = f"{name} ::= {body}"
        return self._references[target]

    def _resolve(self, target: str, path: str) -> object:
        try:
            return pointed(self._document, target)
        except LookupError:
            raise wrong(f"{path}.$ref", f"there is no {target}") from None

    def _any(self, schema: Schema, word: str, path: str, depth: int) -> str:
        rest = {key: value for key, value in schema.items() if key != word}
        narrow = any(key in rest for key in ("type", "properties", "required", "items", "allOf"))
        parts = []
        for index, option in enumerate(items(schema, word, path)):
            here = f"{path}.{word}[{index}]"
            whole = self._merge([rest, option], here, depth + 1) if narrow else option
            parts.append(self.visit(whole, here, depth + 1))
        return self._rule(" | ".join(dict.fromkeys(parts)))

    def _all(self, schema: Schema, path: str, depth: int) -> Schema:
        rest = {key: value for key, value in schema.items() if key != "allOf"}
        parts = [*items(schema, "allOf", path), rest]
        return self._merge(parts, f"{path}.allOf", depth)

    def _merge(self, parts: Sequence[object], path: str, depth: int) -> Schema:
        """One schema that says what all of them say, where that is easily said."""
        self._count(path, depth)
        out: dict[str, object] = {}
        for part in parts:
            for key, value in self.plain(part, path, depth).items():
                out[key] = joined(key, out[key], value, path) if key in out else value
        return out

    def plain(self, part: object, path: str, depth: int) -> Schema:
        """A schema without a reference or ``allOf`` at its top."""
        if not isinstance(part, dict):
            raise wrong(path, "only objects can be merged")
        if "$ref" in part:
            self._count(path, depth)
            if not isinstance(part["$ref"], str):
                raise wrong(f"{path}.$ref", "not a text")
            return self.plain(self._resolve(part["$ref"], path), path, depth + 1)
        return self._all(part, path, depth + 1) if "allOf" in part else part

    def _object(self, schema: Schema, path: str, depth: int) -> str:
        given = schema.get("properties", {})
        if not isinstance(given, dict):
            raise wrong(f"{path}.properties", "not a table")
        required = items(schema, "required", path) if "required" in schema else []
        properties = {**given, **{key: True for key in required if key not in given}}
        more = schema.get("additionalProperties", not properties)
        if not properties and more is True:
            return "object"
        pairs = []
        for key, value in properties.items():
            body = self.visit(value, f"{path}.{key}", depth + 1)
            name = literal(json.dumps(key, ensure_ascii=False) + ":")
            pairs.append((f"{name} ws {body}", key in required))
        extra = ""
        if more is not False:
            value = self.visit(more, f"{path}.additionalProperties", depth + 1)
            extra = self._rule(f'string ":" ws {value}')
        first, _ = self._members(pairs, extra)
        return self._rule(f'"{{" ws {first} ws "}}"')

    def _members(self, pairs: list[tuple[str, bool]], extra: str) -> tuple[str, str]:
        """What may follow when no member, and when some member, has been written."""
        first, more = (f'({extra} ("," ws {extra})*)?', f'("," ws {extra})*') if extra else ("", "")
        for body, needed in reversed(pairs):
            member = self._rule(body)
            begin, comma = f"{member} {more}", f'"," ws {member} {more}'
            if needed:
                first, more = begin, comma
            else:
                first = f"{begin} | {first}" if first else f'{begin} | ""'
                more = f"{comma} | {more}" if more else f'{comma} | ""'
            first, more = self._rule(first), self._rule(more)
        return first, more

    def _array(self, schema: Schema, path: str, depth: int) -> str:
        heads = items(schema, "prefixItems", path) if "prefixItems" in schema else []
        rest = schema.get("items", not heads)
        if isinstance(rest, list):  # as drafts before 2020-12 say it
            heads, rest = rest, schema.get("additionalItems", False)
        parts = [
            self.visit(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(heads)
        ]
        least, most = bounds(schema, "minItems", "maxItems", path)
        if parts:
            body = ' "," ws '.join(parts)
            if rest is not False:
                tail = self.visit(rest, f"{path}.items", depth + 1)
                body += f' ("," ws {tail})*'
        elif rest is False or most == 0:
            body = ""
        else:
            item = self.visit(rest, f"{path}.items", depth + 1)
            top = "" if most is None else str(most - 1)
            body = f'{item} ("," ws {item}){{{max(least - 1, 0)},{top}}}'
            body = body if least else f"({body})?"
        return self._rule(f'"[" ws {body} ws "]"')

    def _string(self, schema: Schema, path: str) -> str:
        if "pattern" in schema:
            body = pattern.to_gbnf(schema["pattern"], f"{path}.pattern")
            return self._rule(f'"\\"" {body} "\\""')
        shape = _FORMATS.get(str(schema.get("format", "")))
        if shape:
            return self._rule(f'"\\"" {shape} "\\""')
        least, most = bounds(schema, "minLength", "maxLength", path)
        if least == 0 and most is None:
            return "string"
        return self._rule(f'"\\"" char{{{least},{"" if most is None else most}}} "\\""')

    def _integer(self, schema: Schema, path: str) -> str:
        low, high = whole_range(schema, path)
        if low is not None and high is not None:
            if low > high:
                raise wrong(path, "minimum is above maximum")
            if high - low < _MAX_RANGE:
                return self._choice(list(range(low, high + 1)))
        return "natural" if low is not None and low >= 0 else "integer"

    def _choice(self, values: Sequence[object]) -> str:
        if not values:
            raise GrammarInvalid("cannot use the schema: enum: it is empty")
        texts = sorted({json.dumps(value, ensure_ascii=False) for value in values})
        return self._tree(texts, 0)

    def _tree(self, texts: list[str], depth: int) -> str:
        """Alternatives that differ in their first characters: fewer ways stand open."""
        if depth > MAX_DEPTH:
            return self._rule(" | ".join(map(literal, texts)))
        groups: dict[str, list[str]] = {}
        for text in texts:
            groups.setdefault(text[:1], []).append(text)
        parts = []
        for group in groups.values():
            head = prefix(group)
            rest = [text[len(head) :] for text in group]
            parts.append(literal(head) + (f" {self._tree(rest, depth + 1)}" if rest[1:] else ""))
        return self._rule(" | ".join(parts))

    def _count(self, path: str, depth: int) -> None:
        self._work += 1
        if depth > MAX_DEPTH:
            raise wrong(path, f"nested more than {MAX_DEPTH} deep")
        if self._work > MAX_WORK:
            raise wrong(path, "its references multiply too much")

    def _rule(self, body: str) -> str:
        if len(self.rules) >= MAX_RULES:
            raise GrammarInvalid(f"cannot use the schema: it makes more than {MAX_RULES} rules")
        name = f"{self._prefix}{len(self.rules)}"
        self.rules.append(f"{name} ::= {body}")
        return name
