"""The typed errors that end jobs: their words in one place."""

from __future__ import annotations

from collections.abc import Mapping

from stoker import errors
from stoker.events import runner as wire
from stoker.units import Seconds


def typed(code: str, message: str, hint: str, details: Mapping[str, object]) -> errors.StokerError:
    """The error class of a code that came from the runner."""
    plain = {k: v for k, v in details.items() if isinstance(v, str | int | float | bool)}
    return errors.by_code(code)(message, hint=hint, details=plain)


def busy(wait: Seconds) -> errors.Busy:
    return errors.Busy(
        "cannot accept job: the queue is full",
        hint=f"try again in {wait:.0f} s",
        details={"retry_after_ms": int(wait * 1000)},
    )


def lost(ordered: bool, poison: bool, reason: str) -> errors.StokerError:
    if ordered:
        return errors.Preempted(f"cannot finish job: {reason}", hint="ask again")
    if poison:
        return errors.EngineFailed(
            "cannot finish job: the runner died twice while it ran",
            hint="this prompt may be what kills it; it is not tried a third time",
        )
    return errors.EngineFailed(f"cannot finish job: {reason}", hint="ask again")


def of_runner(delta: wire.Delta) -> errors.StokerError:
    record = dict(delta.error or {})
    details = record.get("details")
    return typed(
        str(record.get("code", "")),
        str(record.get("message", "")),
        str(record.get("hint", "")),
        details if isinstance(details, dict) else {},
    )
