"""The journal's bytes: the machine's state as JSON with a checksum, strictly read back."""

from __future__ import annotations

from typing import Any, Final

from stoker_ota.core import fields, sealed
from stoker_ota.getters import Table
from stoker_ota.values.deployment import MAX_REMEMBERED, Journal, Offer, Phase

MAX_JOURNAL_BYTES: Final = 64 << 10
MAX_TEXT_BYTES: Final = 4096
_NUMBERS: Final = ("generation", "previous", "earlier", "attempts", "moves", "delta_failures")
_NEWER: Final = ("memory_failures",)  # a journal of an older version has not
_FLAGS: Final = ("whole", "healthy")
_TEXTS: Final = ("code", "reason")


def encode(journal: Journal) -> bytes:
    """Whatever a reason holds: what is written can be read back."""
    offer = journal.offer
    body: dict[str, object] = {
        "phase": journal.phase.value,
        "failed": list(journal.failed),
        **{key: getattr(journal, key) for key in (*_NUMBERS, *_FLAGS)},
        **{key: getattr(journal, key) for key in _NEWER if getattr(journal, key)},
        **{key: fields.plain(getattr(journal, key), MAX_TEXT_BYTES) for key in _TEXTS},
    }
    if offer is not None:
        body["offer"] = {
            "deployment": offer.deployment, "version": offer.version, "manifest": offer.manifest,
            "allow_full": offer.allow_full, "confirm": offer.confirm, "forced": offer.forced,
        }  # fmt: skip
    return sealed.seal("journal", body)


def decode(data: bytes) -> Journal:
    """Raises BadDocument when it is damaged: then the tree on disk is asked instead."""
    inner = sealed.unseal("journal", data, MAX_JOURNAL_BYTES)
    values: dict[str, Any] = {
        **{key: inner.whole(key, low=0, high=1 << 53) for key in _NUMBERS},
        **{key: inner.flag(key) for key in _FLAGS},
        **{key: inner.whole(key, low=0, high=1 << 53) for key in _NEWER if inner.has(key)},
        **{key: inner.text(key, max_bytes=MAX_TEXT_BYTES) for key in _TEXTS},
    }
    journal = Journal(
        phase=Phase(inner.choice("phase", [phase.value for phase in Phase])),
        offer=_offer(inner.table("offer")) if inner.has("offer") else None,
        failed=inner.texts("failed", max_items=MAX_REMEMBERED),
        **values,
    )
    inner.finish()
    return journal


def _offer(table: Table) -> Offer:
    offer = Offer(
        deployment=fields.name(table, "deployment"),
        version=table.whole("version", low=1, high=fields.MAX_VERSION),
        manifest=fields.sha256(table, "manifest"),
        allow_full=table.flag("allow_full"),
        confirm=table.flag("confirm"),
        forced=table.flag("forced"),
    )
    table.finish()
    return offer
