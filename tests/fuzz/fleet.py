"""Entries for a fuzzer: what a fleet's operator signs, and what an operator's own files hold.

As in ``delta``: a typed error is the parser doing its work, anything else is a bug.
"""

from __future__ import annotations

import contextlib
import json
import math
import tomllib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from tests.fuzz.documents import the_same_again

from stoker_ota.core import campaign_section, fleet_documents, fleet_orders, recipe, strict_json
from stoker_ota.core import probes as figures
from stoker_ota.core.campaign import Plan, State
from stoker_ota.core.fleet_documents import Command, Desired, Target
from stoker_ota.core.recipe import Measured
from stoker_ota.errors import OtaError

_NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
_FILE: Final = Measured(10, "ab" * 32)
_ID: Final = fleet_orders.uuid7(1, 1)
_PLAN: Final = Plan(
    "c1", ("blue",), "chat", 2, (10.0, 100.0), success=90.0, abort=10.0, soak_s=60, window="",
    lost_s=600,
)  # fmt: skip


def command(data: bytes) -> None:
    the_same_again(data, fleet_documents.parse_command, fleet_documents.command_payload)


def desired(data: bytes) -> None:
    the_same_again(data, fleet_documents.parse_desired, fleet_documents.desired_payload)


def campaign(data: bytes) -> None:
    """What a broker has kept may be anybody's."""
    try:
        values = strict_json.loads(data, max_bytes=1 << 16, what="section")
        found = campaign_section.parse(values) if isinstance(values, dict) else None
    except OtaError:
        return
    if found is not None:
        assert campaign_section.parse(campaign_section.section(*found)) is not None


def probes(data: bytes) -> None:
    with contextlib.suppress(OtaError):
        found = figures.bounds([figures.parse(data)], 0.1)
        assert all(math.isfinite(item.min_nats + item.max_nats) for item in found)


def manifest_recipe(data: bytes) -> None:
    """TOML has dates, nan and endless numbers, which no document has."""
    try:
        table = tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        return
    with contextlib.suppress(OtaError):
        found = recipe.parse(table)
        files = {item.file: _FILE for item in found.artifacts}
        files |= {item.base: _FILE for item in found.artifacts if item.base}
        if not any(item.deltas for item in found.artifacts):
            recipe.payload(found, files, {})
    with contextlib.suppress(OtaError):
        state = fleet_orders.desired(table, None, _NOW, 90)
        fleet_documents.parse_desired(fleet_documents.desired_payload(state))


def argument(data: bytes) -> None:
    """A word of an operator's command line, as the shell hands it over."""
    text = data.decode("utf-8", "surrogateescape")
    with contextlib.suppress(OtaError):
        made = Command(_ID, 1, _NOW, _NOW + timedelta(hours=1), Target("d"), "cancel",
                       {"a": fleet_orders.value_of(text)})  # fmt: skip
        payload = fleet_documents.command_payload(made)
        assert fleet_documents.parse_command(payload) == made


def samples() -> dict[str, list[bytes]]:
    """Good ones, for changing."""
    end = _NOW + timedelta(hours=1)
    order = Command(_ID, 7, _NOW, end, Target(labels={"ring": "a"}), "policy.set", {"x": 1.5})
    share = campaign_section.section(_PLAN, State())
    wish = Desired("g:blue", 3, _NOW, end, {"campaign": share, "policy": {"wall_c": 70}})
    made = (
        b'deployment_id = "a"\nversion = 1\nissued_at = "2026-01-01T00:00:00Z"\n'
        b'expires = "2026-03-01T00:00:00Z"\nhealth = {min_tok_s = 4.0}\n[[artifacts]]\n'
        b'kind = "model"\nname = "m"\nversion = "1"\nfile = "m.gguf"\n'
    )
    return {
        "command": [fleet_documents.command_payload(order)],
        "desired": [fleet_documents.desired_payload(wish)],
        "campaign": [json.dumps(share).encode()],
        "probes": [b'{"text": "plain words", "nats_per_token": 2.5}\n'],
        "manifest_recipe": [made, b'audience = "d:x"\n[policy]\nday = 2026-01-01\nlow = -inf\n'],
        "argument": [b'{"a": [1, true, "x"]}', b"NaN", b"word", b"\xff"],
    }


ENTRIES: Final[dict[str, Callable[[bytes], None]]] = {
    entry.__name__: entry
    for entry in (command, desired, campaign, probes, manifest_recipe, argument)
}
