"""The typed errors that end jobs: their words in one place."""

from __future__ import annotations

from collections.abc import Mapping

from stoker import errors
from stoker.core.runner_life import RunnerGone
from stoker.events import runner as wire
from stoker.events.inference import JobClass
from stoker.units import Seconds


def typed(code: str, message: str, hint: str, details: Mapping[str, object]) -> errors.StokerError:
    """The error class of a code that came from the runner."""
    plain = {k: v for k, v in details.items() if isinstance(v, str | int | float | bool)}
    return errors.by_code(code)(message, hint=hint, details=plain)


_MEMORY_HINT = "ask for less, or have a smaller model or context_tokens configured"
_REASONS = {
    "queue": "the queue is full",
    "deadline": "it would still be waiting at its deadline",
    "queued_jobs": "you have as many waiting jobs as your quota allows",
    "queued_bytes": "your waiting jobs are as large as your quota allows",
    "tokens_per_minute": "your quota of tokens a minute is used up",
}


def refused(reason: str, wait: Seconds) -> errors.StokerError:
    """``busy`` or, with the name of the quota in its details, ``quota-exceeded``."""
    message = f"cannot accept job: {_REASONS[reason]}"
    hint = f"try again in {wait:.0f} s"
    details: dict[str, str | int | float | bool] = {"retry_after_ms": int(wait * 1000)}
    if reason in ("queue", "deadline"):
        return errors.Busy(message, hint=hint, details=details)
    return errors.QuotaExceeded(message, hint=hint, details={"quota": reason, **details})


def class_not_allowed(wanted: JobClass, highest: JobClass) -> errors.StokerError:
    return errors.NotAuthorized(
        f"cannot accept job: class {wanted.word} is not for you",
        hint=f"the highest you may use is {highest.word}",
    )


def too_many_queries() -> errors.Busy:
    return errors.Busy(
        "cannot answer query: others are waiting",
        hint="try again in 1 s",
        details={"retry_after_ms": 1000},
    )


def query_lost(gone: RunnerGone) -> errors.StokerError:
    if gone.out_of_memory:
        return errors.InsufficientMemory(f"cannot answer: {gone.reason}", hint=_MEMORY_HINT)
    return errors.EngineFailed(f"cannot answer: {gone.reason}", hint="ask again")


def lost(gone: RunnerGone, *, poison: bool) -> errors.StokerError:
    """How a job ends that its runner took along."""
    if gone.ordered:
        return errors.Preempted(f"cannot finish job: {gone.reason}", hint="ask again")
    if gone.out_of_memory:
        return errors.InsufficientMemory(f"cannot finish job: {gone.reason}", hint=_MEMORY_HINT)
    if poison:
        return errors.EngineFailed(
            "cannot finish job: the runner died twice while it ran",
            hint="this prompt may be what kills it; it is not tried a third time",
        )
    return errors.EngineFailed(f"cannot finish job: {gone.reason}", hint="ask again")


def of_runner(delta: wire.Delta) -> errors.StokerError:
    record = dict(delta.error or {})
    details = record.get("details")
    return typed(
        str(record.get("code", "")),
        str(record.get("message", "")),
        str(record.get("hint", "")),
        details if isinstance(details, dict) else {},
    )
