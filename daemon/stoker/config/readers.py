"""Readers of configuration values: one function a kind of value, with what it may be.

Each is called as (table, key, default) and gives the checked value, or refuses the key by its
path. ``limits`` says which key has which.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from stoker.config.addresses import parse_address
from stoker.events import broker
from stoker.getters import Table

Reader = Callable[[Table, str, Any], object]
"""(table, key, default) -> the checked value."""

KIB: Final = 1 << 10
MIB: Final = 1 << 20
DAY_S: Final = 86_400.0
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
BOARD: Final = re.compile(rf"{NAME.pattern}|sim:[A-Za-z0-9][A-Za-z0-9.,=_-]{{0,127}}")
CLOCK: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
GROUP: Final = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
DEVICE: Final = re.compile(rf"(?:{NAME.pattern})?")  # "" = made of the machine's id
ORIGIN: Final = re.compile(r"/.*|https?://[^@\s]+|mqtt:")
PROXY: Final = re.compile(r"(?:none|https?://[^\s]+)?")
TOPIC_ROOT: Final = re.compile(r"[A-Za-z0-9_-]{1,20}(?:/[A-Za-z0-9_-]{1,20}){0,2}")
PREFIX: Final = re.compile(r"[A-Za-z0-9_-]{0,64}")
TEXT: Final = re.compile(r"[!-~]{0,128}")
USER: Final = re.compile(r"(?:[a-z_][a-z0-9_-]{0,31})?")  # "" = nobody
MAX_LABELS: Final = 64
MAX_LABEL_CHARACTERS: Final = 128
_MAX_PATH_BYTES: Final = 4096  # PATH_MAX


def whole(low: int, high: int) -> Reader:
    return lambda table, key, default: table.whole(key, default, low=low, high=high)


def number(low: float, high: float) -> Reader:
    return lambda table, key, default: table.number(key, default, low=low, high=high)


def within(low: float, high: float) -> Reader:
    """Whole numbers where both limits are whole."""
    if isinstance(low, int) and isinstance(high, int):
        return whole(low, high)
    return number(low, high)


def flag(table: Table, key: str, default: Any) -> object:
    return table.flag(key, default)


def one_of(*allowed: str) -> Reader:
    return lambda table, key, default: table.choice(key, allowed, default)


def matching(pattern: re.Pattern[str], what: str) -> Reader:
    def read(table: Table, key: str, default: Any) -> object:
        value = table.text(key, default)
        if not pattern.fullmatch(value):
            table.refuse(key, f"{value!r} is not {what}")
        return value

    return read


def path(table: Table, key: str, default: Any) -> object:
    """The daemon runs in ``/``: a relative path would mean another file than it says."""
    value = table.text(key, default, max_bytes=_MAX_PATH_BYTES)
    if not value.startswith("/"):
        table.refuse(key, f"{value!r} is not an absolute path")
    if "\0" in value:
        table.refuse(key, "a path cannot hold a NUL character")
    return value


def file_or_none(table: Table, key: str, default: Any) -> object:
    """An absolute path, or "" for none."""
    return "" if table.text(key, default) == "" else path(table, key, default)


def bus(table: Table, key: str, default: Any) -> object:
    """``system``, ``session`` or a D-Bus address such as ``unix:path=/run/x``."""
    value = table.text(key, default, max_bytes=_MAX_PATH_BYTES)
    if value not in ("system", "session") and not re.match(r"[a-z-]+:[^\s]+=", value):
        table.refuse(key, f"{value!r} is not system, session or a D-Bus address")
    return value


def address(table: Table, key: str, default: Any) -> object:
    """Of a local door, or "" for none."""
    value = table.text(key, default)
    if value:
        try:
            parse_address(value)
        except ValueError as error:
            table.refuse(key, str(error))
    return value


def wall(table: Table, key: str, default: Any) -> object:
    """0 leaves the wall to the board; a few degrees would mean "never run"."""
    value = table.number(key, default, low=0.0, high=125.0)
    if 0.0 < value < 30.0:
        table.refuse(key, f"{value} °C is colder than the air around many boards; 0 or 30..125")
    return value


def names(table: Table, key: str, default: Any) -> object:
    """Further names of a model."""
    found = table.texts(key, default, max_items=16)
    for index, name in enumerate(found):
        if not NAME.fullmatch(name):
            table.refuse(f"{key}[{index}]", f"{name!r} is not a model's name")
    return found


def sensors(table: Table, key: str, default: Any) -> object:
    """Kernel names, so any printable text; whether they exist is seen when the board is."""
    found = table.texts(key, default, max_items=16)
    for index, name in enumerate(found):
        if not 0 < len(name) <= 64 or not name.isprintable() or name in found[:index]:
            table.refuse(f"{key}[{index}]", f"{name!r} is no sensor's name, or is there twice")
    return found


def devices(table: Table, key: str, default: Any) -> object:
    """Names in class/devfreq."""
    found = table.texts(key, default, max_items=16)
    for index, name in enumerate(found):
        if not CLOCK.fullmatch(name) or name in found[:index]:
            table.refuse(f"{key}[{index}]", f"{name!r} is no device's name, or is there twice")
    return found


def prompts(table: Table, key: str, default: Any) -> object:
    """Whole system prompts, as programs send them."""
    found = table.texts(key, default, max_items=16)
    for index, prompt in enumerate(found):
        if not prompt or len(prompt.encode("utf-8", "surrogatepass")) > 64 * KIB:
            table.refuse(f"{key}[{index}]", f"must have 1..{64 * KIB} bytes")
    return found


def origins(table: Table, key: str, default: Any) -> object:
    """Absolute paths, web addresses without a password, or the broker."""
    found = table.texts(key, default, max_items=16)
    for index, text in enumerate(found):
        good = ORIGIN.fullmatch(text) and "\0" not in text and len(text) <= _MAX_PATH_BYTES
        if not good:
            table.refuse(
                f"{key}[{index}]", f"{text!r} is no absolute path, no https: address and not mqtt:"
            )
    return found


def labels(table: Table, key: str, default: Any) -> object:  # noqa: ARG001
    """Words by name, as a manifest's targets compare them."""
    words = table.table(key)
    if len(words.keys()) > MAX_LABELS:
        table.refuse(key, f"more than {MAX_LABELS} labels")
    found: dict[str, str] = {}
    for name in words.keys():  # noqa: SIM118
        if not NAME.fullmatch(name):
            words.refuse(name, f"{name!r} is not a label's name")
        if name == "region":
            words.refuse(name, "the region has a key of its own: device.region")
        text = words.text(name)
        if not 0 < len(text) <= MAX_LABEL_CHARACTERS or not text.isprintable():
            words.refuse(name, f"must be 1..{MAX_LABEL_CHARACTERS} printable characters")
        found[name] = text
    return found


def broker_address(table: Table, key: str, default: Any) -> object:
    """Where a broker is; "" = there is none."""
    value = table.text(key, default, max_bytes=1024)
    if value:
        try:
            broker.parse(value)
        except ValueError as error:
            table.refuse(key, str(error))
    return value
