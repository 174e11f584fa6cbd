"""What the sections of a desired state may say, judged before it is signed. Pure.

A device takes what it does not understand for nothing, silently: a word that is misspelt, or of
the wrong kind, must be found by whoever writes it. What a policy's values mean is the device's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stoker_ota.core import campaign_section
from stoker_ota.core.fields import MAX_VERSION, NAME
from stoker_ota.errors import InvalidRequest, OtaError
from stoker_ota.getters import Table

_PLAIN: Final = (str, bool, int, float, list, dict)


def check(sections: Mapping[str, Mapping[str, object]]) -> None:
    """InvalidRequest."""
    for name, values in sections.items():
        _CHECKS[name](Table(values, _fail, name))


def _fail(path: str, reason: str) -> OtaError:
    return InvalidRequest(f"cannot read the desired state: {path}: {reason}")


def _update(table: Table) -> None:
    name = table.text("deployment", max_bytes=128)
    if not NAME.fullmatch(name):
        table.refuse("deployment", f"{name!r} is no deployment's name")
    table.whole("version", 0, low=0, high=MAX_VERSION)
    table.flag("force", False)
    table.flag("consent", False)
    table.text("retry", "", max_bytes=64)
    table.finish()


def _policy(table: Table) -> None:
    names = table.keys()
    for key in names:
        if not isinstance(table.raw(key), _PLAIN):
            table.refuse(key, "dates and times are no settings")


def _runtime(table: Table) -> None:
    table.flag("paused", False)
    table.text("model", "", max_bytes=64)
    table.finish()


def _campaign(table: Table) -> None:
    if table.has("turn"):  # one that 'stoker-ota campaign' has made
        names = table.keys()
        campaign_section.parse({name: table.raw(name) for name in names})
        return
    table.text("id", "", max_bytes=64)
    table.number("percent", 100.0, low=0, high=100)
    table.flag("paused", False)
    table.finish()


_CHECKS: Final = {
    "update": _update, "policy": _policy, "runtime": _runtime, "campaign": _campaign,
}  # fmt: skip
