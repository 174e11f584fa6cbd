"""Where an artifact or a delta may be fetched, as a manifest says it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stoker_ota.core import web_rules
from stoker_ota.errors import InvalidRequest
from stoker_ota.getters import Table

MAX_SOURCES: Final = 16


@dataclass(frozen=True, slots=True)
class Source:
    """Where an artifact's whole bytes or a delta may be fetched; ``uri`` as in ota.md."""

    uri: str


def read_sources(table: Table, key: str) -> tuple[Source, ...]:
    """BadDocument for what no device could ask."""
    texts = table.texts(key, (), max_items=MAX_SOURCES)
    for index, text in enumerate(texts):
        if not text.startswith(("file:", "https:", "mqtt:")) or len(text) > 2048:
            table.refuse(f"{key}[{index}]", "is no file:, https: or mqtt: address")
        try:
            if text.startswith("https:"):
                web_rules.address(text, plain=False)
        except InvalidRequest as error:
            table.refuse(f"{key}[{index}]", error.message)
    return tuple(Source(text) for text in texts)
