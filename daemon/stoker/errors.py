"""The one error tree of the agent.

Every error a caller can meet is a class here with a stable kebab-case ``code``.
``api/errormap.py`` alone knows how a code looks on D-Bus, as an exit status and
over HTTP; a test fails when a class has no row there. Messages follow
"cannot <verb> <object>: <reason>"; ``hint`` says what the reader can do.
"""

from __future__ import annotations

from collections.abc import Mapping

from stoker_ota.typed_error import TypedError


class StokerError(TypedError):
    """Base of all typed errors."""


class InternalError(StokerError):
    """A fault of ours: worth a bug report."""

    code = "internal"


class InvalidRequest(StokerError):
    """The request itself is wrong; ``details.path`` names the key."""

    code = "invalid-request"


class RequestTooLarge(StokerError):
    code = "request-too-large"


class NotFound(StokerError):
    """No such job, session or object (or not yours: the two look alike on purpose)."""

    code = "not-found"


class NotAuthorized(StokerError):
    code = "not-authorized"


class ConfigInvalid(StokerError):
    """A configuration file is wrong; ``details.path`` names the key."""

    code = "config-invalid"


class Busy(StokerError):
    """Not now; ``details.retry_after_ms`` says when to come back, in a second if nobody knew."""

    code = "busy"
    retryable = True

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        details: Mapping[str, str | int | float | bool] | None = None,
    ) -> None:
        super().__init__(message, hint=hint, details={"retry_after_ms": 1000, **(details or {})})


class QuotaExceeded(StokerError):
    code = "quota-exceeded"
    retryable = True


class ContextLengthExceeded(StokerError):
    """``details.prompt_tokens`` and ``details.context_tokens`` say by how much."""

    code = "context-length-exceeded"


class ModelUnavailable(StokerError):
    code = "model-unavailable"


class ModelLoading(StokerError):
    code = "model-loading"
    retryable = True


class InsufficientMemory(StokerError):
    code = "insufficient-memory"


class GrammarInvalid(StokerError):
    code = "grammar-invalid"


class Cancelled(StokerError):
    code = "cancelled"


class Preempted(StokerError):
    code = "preempted"
    retryable = True


class DeadlineExceeded(StokerError):
    code = "deadline-exceeded"
    retryable = True


class SlowConsumer(StokerError):
    """The reader of the stream stopped reading for too long."""

    code = "slow-consumer"


class Throttled(StokerError):
    """The device is too hot to take new work."""

    code = "throttled"
    retryable = True


class StorageFailed(StokerError):
    """The disk is full or cannot be written; nothing that was kept is lost."""

    code = "storage-failed"


class EngineFailed(StokerError):
    """The runner died or refused while this job ran; the next one may succeed."""

    code = "engine-failed"
    retryable = True


class Unavailable(StokerError):
    """The daemon or the bus is not there."""

    code = "unavailable"
    retryable = True


# Updates: the same codes as in stoker_ota.errors (a test compares them).


class BadDelta(StokerError):
    """A delta breaks its own format: damaged, truncated or made to harm."""

    code = "bad-delta"


class SourceMismatch(StokerError):
    """The file that a delta starts from is not here."""

    code = "source-mismatch"


class ChunkHash(StokerError):
    """Bytes that were fetched are not those that were promised."""

    code = "chunk-hash"


class ResultHash(StokerError):
    code = "result-hash"


class NoSpace(StokerError):
    code = "no-space"


class NoMemory(StokerError):
    code = "no-memory"


class FileUnreadable(StokerError):
    code = "file-unreadable"


class BadDocument(StokerError):
    """Not the signed document it should be."""

    code = "bad-document"


class TooLarge(StokerError):
    code = "too-large"


class BadSignature(StokerError):
    code = "bad-signature"


class BadChain(StokerError):
    """A certificate does not lead to a pinned anchor, or has the wrong use or role."""

    code = "bad-chain"


class Revoked(StokerError):
    code = "revoked"


class Expired(StokerError):
    code = "expired"


class Rollback(StokerError):
    """Older than what this device has accepted before."""

    code = "rollback"


class Freeze(StokerError):
    """A document is past its expiry: somebody may be keeping newer ones from us."""

    code = "freeze"


class MixAndMatch(StokerError):
    """Parts that were never published together."""

    code = "mix-and-match"


class WrongTarget(StokerError):
    """For another board, architecture, system or agent."""

    code = "wrong-target"


class Dependency(StokerError):
    code = "dependency"


class Unhealthy(StokerError):
    """The new set did not pass its probes; the one before it serves."""

    code = "unhealthy"


def by_code(code: str) -> type[StokerError]:
    """The class of a code that came over a wire; unknown codes become InternalError."""
    return _BY_CODE.get(code, InternalError)


def all_errors() -> tuple[type[StokerError], ...]:
    """Every concrete class, for the table test."""
    return tuple(_BY_CODE.values())


_BY_CODE: dict[str, type[StokerError]] = {c.code: c for c in StokerError.__subclasses__()}
