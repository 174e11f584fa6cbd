"""What must not leave the device in diagnostics and logs: keys, passwords, prompts, addresses.

Rather too much than too little; the names of things stay, so that a reader sees what was
there. Pure text in, text out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

GONE: Final = "[redacted]"
_SECRET: Final = (
    r"(?:pass(?:word|phrase|wd)?|pwd|secret|token|api[_-]?key|private[_-]?key|credential)"
)
_VALUE: Final = r"(\"[^\"]*\"|'[^']*'|[^\s,;]+)"
# Each may begin anywhere and looks at no more than is bounded before it: a hostile line of
# dashes or dots must not cost time by the square of its length.
_PATTERNS: Final = (
    (re.compile(r"-----BEGIN [A-Z0-9 ]+-----.*?(?:-----END [A-Z0-9 ]+-----|\Z)", re.DOTALL), GONE),
    (re.compile(r"(?i)(authorization\s*[:=]\s*)(?:\w+\s+)?\S+"), rf"\1{GONE}"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9+/._~=-]{8,}"), rf"\1 {GONE}"),
    (re.compile(rf"(?i)({_SECRET}\b[\"']?\s*[:=]\s*){_VALUE}"), rf"\1{GONE}"),
    (re.compile(rf"(?i)([-_]{_SECRET}\s+){_VALUE}"), rf"\1{GONE}"),
    (re.compile(r"(?i)([a-z0-9+.-]://)[^\s/@]+@"), rf"\1{GONE}@"),
    (re.compile(r"\b(?:sk|pk|ghp|gho|xox[abp])[-_][A-Za-z0-9_-]{8,}"), GONE),
    (re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}\.[\w.-]+\b"), GONE),
    (re.compile(r"\b[A-Za-z0-9+/]{60,}={0,2}"), GONE),
)  # fmt: skip
_NAME: Final = re.compile(rf"(?i)[\w.-]*{_SECRET}")
_LONGEST: Final = 256
SECRET_SETTINGS: Final = ("fleet.username", "fleet.password_file", "runner.shared_prefixes")
"""Shared prefixes are system prompts."""


def text(lines: str) -> str:
    """Lines of a log."""
    for pattern, instead in _PATTERNS:
        lines = pattern.sub(instead, lines)
    return lines


def value(found: object) -> object:
    """A fact of any depth; lists and tables keep their shape."""
    if isinstance(found, str):
        return text(found)
    if isinstance(found, Mapping):
        return {str(key): _named(str(key), item) for key, item in found.items()}
    if isinstance(found, list | tuple):
        return [value(item) for item in found]
    return found


def _named(key: str, item: object) -> object:
    """Whatever a secret's name holds is one, of any shape; that it is there (true) is none."""
    secret = item and not isinstance(item, bool) and _NAME.fullmatch(key[-_LONGEST:])
    return GONE if secret else value(item)


def settings(flat: Mapping[str, object]) -> dict[str, object]:
    """Settings by their full names; what a secret one holds is only told to be there."""
    return {key: _setting(key, value) for key, value in flat.items()}


def _setting(key: str, found: object) -> object:
    if key in SECRET_SETTINGS:
        return GONE if found else found
    return _named(key, found)
