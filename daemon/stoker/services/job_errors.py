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
    "queue_bytes": "the requests of all users fill the memory that they may have",
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
    if reason in ("queue", "queue_bytes", "deadline"):
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


def loading(progress: float, eta_s: Seconds) -> errors.ModelLoading:
    """``eta_ms`` is 0 while nothing is known of how long it takes."""
    details: dict[str, str | int | float | bool] = {"progress": round(progress, 3)}
    hint = ""
    if eta_s:
        details |= {"eta_ms": int(eta_s * 1000), "retry_after_ms": int(eta_s * 1000)}
        hint = f"try again in {eta_s:.0f} s"
    return errors.ModelLoading("cannot answer: the model is loading", hint=hint, details=details)


def too_late(eta_s: Seconds) -> errors.ModelLoading:
    """The job's deadline comes before the model does."""
    return errors.ModelLoading(
        f"cannot accept job: the model is loading for {eta_s:.0f} s more, beyond its deadline",
        hint=f"try again in {eta_s:.0f} s",
        details={"eta_ms": int(eta_s * 1000), "retry_after_ms": int(eta_s * 1000)},
    )


def swapping(model: str, eta_s: Seconds) -> errors.Busy:
    wait = max(eta_s, 1.0)
    return errors.Busy(
        f"cannot change the model: the change to {model} is under way",
        hint=f"try again in {wait:.0f} s",
        details={"retry_after_ms": int(wait * 1000)},
    )


def unknown_model(name: str, in_use: str) -> errors.ModelUnavailable:
    loaded = f", {in_use!r} is loaded" if in_use else ""
    return errors.ModelUnavailable(
        f"cannot use model {name!r}: there is none of this name{loaded}",
        hint="see 'stokerctl models'",
    )


def set_aside(name: str, reason: str) -> errors.ModelUnavailable:
    return errors.ModelUnavailable(
        f"cannot use model {name!r}: it is set aside: {reason}", hint="see 'stokerctl models'"
    )


def other_model(name: str, in_use: str) -> errors.ModelUnavailable:
    return errors.ModelUnavailable(
        f"cannot answer with model {name!r}: {in_use!r} is loaded",
        hint="leave model empty, or see 'stokerctl models'",
    )


def swap_failed(name: str, reason: str, old: str) -> errors.ModelUnavailable:
    back = f"; {old} is used as before" if old else ""
    return errors.ModelUnavailable(f"cannot use model {name!r}: {reason}{back}")
