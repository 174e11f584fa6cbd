"""A small client of Stoker: ask the language model of this device over D-Bus.

    from stoker_client import Stoker

    print(Stoker().ask("Why is the sky blue?"))

It speaks D-Bus and nothing else: it imports nothing of the agent, loads no model and
keeps no state. It needs pydbus and PyGObject, which are imported at the first call.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stoker_client.client import Stoker
    from stoker_client.errors import StokerClientError
    from stoker_client.records import Record
    from stoker_client.requests import Options, Settings
    from stoker_client.session import Session
    from stoker_client.stream import Stream

__all__ = ["Options", "Record", "Session", "Settings", "Stoker", "StokerClientError", "Stream"]

_HOMES = {
    "Options": "requests",
    "Record": "records",
    "Session": "session",
    "Settings": "requests",
    "Stoker": "client",
    "StokerClientError": "errors",
    "Stream": "stream",
}


def __getattr__(name: str) -> Any:
    # Loaded when wanted: a program that only handles errors starts 10 ms earlier.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
