"""a{sv} → settings of a session, and what Append may say. Pure; raises InvalidRequest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from stoker.api import requests
from stoker.config.limits import SECTIONS
from stoker.config.schema import Config, SessionsConfig
from stoker.errors import InvalidRequest, StokerError
from stoker.events.inference import Ask
from stoker.events.sessions import Settings
from stoker.getters import Table
from stoker.units import Seconds

MAX_TITLE_BYTES: Final = 256
_SUMMARY: Final = ("", "on", "off")
MAX_SYSTEM_BYTES: Final = 64 << 10
MAX_TTL_S: Final = 10 * 365 * 86_400
_NOT_HERE: Final = {
    "messages": "a session brings its own",
    "system": "it belongs to the session: Configure sets it",
    "tools": "a session keeps text alone: give calls and results as messages of CreateJob",
    "tool_choice": "there are no tools in a session",
    "raw": "a conversation goes through the chat template",
}


def defaults(config: Config) -> Settings:
    """Settings of a session that says nothing."""
    sessions: SessionsConfig = config.sessions
    return Settings(window_turns=sessions.window_turns, window_tokens=sessions.window_tokens)


def parse_settings(given: Mapping[str, object], base: Settings) -> Settings:
    """``settings`` of CreateSession and Configure; absent keys are ``base``'s."""
    table = Table(given, _fail, "settings")
    settings = replace(
        base,
        title=_line(table, "title", base.title),
        system=_text(table, "system", MAX_SYSTEM_BYTES, base.system),
        model=_text(table, "model", requests.MAX_MODEL_BYTES, base.model),
        window_turns=_whole(table, "window_turns", base.window_turns),
        window_tokens=_whole(table, "window_tokens", base.window_tokens),
        summaries=_summary(table, base.summaries),
        ttl_s=Seconds(table.whole("ttl_s", int(base.ttl_s), low=0, high=MAX_TTL_S)),
    )
    table.finish()
    return settings


def parse_append(request: Mapping[str, object], limits: requests.Limits) -> Ask:
    """``request`` of Append: as CreateJob's, with the question alone in ``prompt``."""
    for key, reason in _NOT_HERE.items():
        if key in request:
            raise _fail(f"request.{key}", reason)
    if "prompt" not in request:
        raise _fail("request.prompt", "missing")
    return requests.parse_ask(request, limits)


def _whole(table: Table, key: str, default: int) -> int:
    """In the range that configuration has for it."""
    return int(str(SECTIONS["sessions"][key](table, key, default)))


def _summary(table: Table, default: str) -> str:
    word = table.text("summary", default, max_bytes=3)
    if word not in _SUMMARY:
        table.refuse("summary", "must be on, off or empty (as configured)")
    return word


def _line(table: Table, key: str, default: str) -> str:
    text = _text(table, key, MAX_TITLE_BYTES, default)
    if not text.isprintable():
        table.refuse(key, "has a line break or a control character")
    return text


def _text(table: Table, key: str, limit: int, default: str) -> str:
    text = table.text(key, default, max_bytes=limit)
    if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
        table.refuse(key, "has a character that no text file can hold")
    return text


def _fail(path: str, reason: str) -> StokerError:
    return InvalidRequest(f"cannot read request: {path}: {reason}", details={"path": path})
