"""Grammars and schemas that are wrong, or meant to hurt: each must end in grammar-invalid."""

from __future__ import annotations

HOSTILE: dict[str, str] = {
    "left recursion": 'root ::= root "a" | "b"',
    # kills llama.cpp's own reader: c and b may be empty, so x begins with itself
    "left recursion behind empty rules": 'root ::= c root "x" | "y"\nc ::= b b\nb ::= "" | "z"',
    "60,000 brackets": "root ::= " + "(" * 30_000 + '"a"' + ")" * 30_000,
    "no end": 'root ::= "a" root',
    "two rules without an end": 'root ::= "a" b\nb ::= "b" root',
    "itself": "root ::= root",
    "unknown rule": "root ::= thing",
    "no root": 'x ::= "a"',
    "root twice": 'root ::= "a"\nroot ::= "b"',
    "open literal": 'root ::= "a',
    "open class": "root ::= [a",
    "open group": 'root ::= ("a"',
    "stray bracket": 'root ::= "a")',
    "backward range": "root ::= [z-a]",
    "backward repetition": "root ::= [a]{3,2}",
    "huge repetition": "root ::= [a]{999999999999}",
    "huge product": 'root ::= (("a" "b" "c" "d"){2000} | ("e" "f" "g"){2000}){2000} ' * 30,
    "nothing to repeat": "root ::= *",
    "token": "root ::= <[3]>",
    "unknown escape": 'root ::= "\\q"',
    "half an escape": 'root ::= "\\u12"',
    "no character": "root ::= []",
    "half a pair": 'root ::= "a\\ud800"',
    "half pairs alone": "root ::= [\\uD800-\\uDFFF]+",
    "all but everything": "root ::= [^\\x00-\\uD7FF\\uE000-\\U0010FFFF]",
    "empty": "",
    "nonsense": "\0\1\2 ::= ::= |",
    "too long": f'root ::= "{"a" * 70_000}"',
}


def _deep(levels: int) -> dict[str, object]:
    found: dict[str, object] = {"type": "integer"}
    for _ in range(levels):
        found = {"type": "array", "items": found}
    return found


def _twice(levels: int) -> dict[str, object]:
    """Each level asks for the one below twice: 2^levels if nobody remembers."""
    found: dict[str, object] = {}
    for level in range(levels):
        both = [{"$ref": f"#/$defs/{side}{level + 1}"} for side in "xy"]
        for side in "xy":
            found[f"{side}{level}"] = {
                "title": side,
                "properties": {side: {"allOf": both}, "a": {"allOf": both}},
            }
    found |= {f"{side}{levels}": {"type": "integer"} for side in "xy"}
    return {"$defs": found, "$ref": "#/$defs/x0"}


REFUSED: dict[str, object] = {
    "itself": {"$ref": "#"},
    "circle": {"$defs": {"a": {"$ref": "#/b"}}, "b": {"$ref": "#/$defs/a"}, "$ref": "#/b"},
    "circle in allOf": {"allOf": [{"$ref": "#"}]},
    "remote": {"$ref": "https://example.org/schema"},
    "nowhere": {"$ref": "#/$defs/none"},
    "never ends": {"properties": {"x": {"$ref": "#"}}, "required": ["x"]},
    "false": False,
    "not": {"not": {"type": "string"}},
    "if": {"if": {}, "then": {}},
    "unknown type": {"type": "text"},
    "empty enum": {"enum": []},
    "no table": {"properties": []},
    "no list": {"anyOf": {}},
    "look-ahead": {"type": "string", "pattern": "(?=a)b"},
    "back reference": {"type": "string", "pattern": "(?P<x>a)(?P=x)"},
    "bad pattern": {"type": "string", "pattern": "a("},
    "regex bomb": {"type": "string", "pattern": "((((a{900}){900}){900}){900}){900}b{1001}"},
    "long pattern": {"type": "string", "pattern": "a" * 2000},
    "too deep": _deep(200),
    "doubling": _twice(40),
    "too many": {"properties": {str(n): {"type": "array", "items": {}} for n in range(3000)}},
    "half a pair": {"type": "string", "pattern": "^[\\ud800-\\udfff]+$"},
    "bounds": {"type": "string", "minLength": 5, "maxLength": 2},
    "negative": {"type": "array", "minItems": -1},
    "backwards": {"type": "integer", "minimum": 3, "maximum": 1},
    "differs": {"allOf": [{"type": "string"}, {"type": "integer"}]},
    "nonsense": 7,
}
