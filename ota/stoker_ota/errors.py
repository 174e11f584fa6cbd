"""The one error tree of this package.

Every failure that an operator or a program can meet is a class here with a stable kebab-case
``code``. Messages read "cannot <verb> <object>: <reason>"; ``hint`` says what the reader can
do. ``cli/exit_status.py`` alone knows exit statuses; a test fails when a class has no row there.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker_ota.typed_error import TypedError


class OtaError(TypedError):
    """Base of all typed errors here."""


class InternalError(OtaError):
    """A fault of ours: worth a bug report."""

    code = "internal"


class InvalidRequest(OtaError):
    """The call or the command line asks for something that makes no sense."""

    code = "invalid-request"


class BadDelta(OtaError):
    """The delta breaks its own format: damaged, truncated or made to harm."""

    code = "bad-delta"


class BadGguf(OtaError):
    """A file that says it is GGUF and is not, or goes beyond the reader's limits."""

    code = "bad-gguf"


class SourceMismatch(OtaError):
    """The file to start from is not the one the delta was made from."""

    code = "source-mismatch"


class ChunkHash(OtaError):
    """Bytes that were fetched are not those that the index promises."""

    code = "chunk-hash"


class ResultHash(OtaError):
    """What came out is not what was promised; nothing of it may be used."""

    code = "result-hash"


class DeltaTooLarge(OtaError):
    """The delta saves too little to be worth publishing."""

    code = "delta-too-large"


class NoSpace(OtaError):
    code = "no-space"


class NoMemory(OtaError):
    code = "no-memory"


class FileUnreadable(OtaError):
    """A file that was named is missing or cannot be read."""

    code = "file-unreadable"


class StorageFailed(OtaError):
    """Writing, syncing or renaming failed; what was there before is untouched."""

    code = "storage-failed"


class BadDocument(OtaError):
    """Not the document it should be: encoding, schema, a value out of range."""

    code = "bad-document"


class TooLarge(OtaError):
    """Longer than what is allowed before anything is parsed."""

    code = "too-large"


class BadSignature(OtaError):
    """A signature does not hold, or fewer distinct valid signers than the role asks for."""

    code = "bad-signature"


class BadChain(OtaError):
    """A certificate does not lead to a pinned anchor, or has the wrong key, use or role."""

    code = "bad-chain"


class Revoked(BadChain):
    code = "revoked"


class Expired(OtaError):
    """A signature's certificate was not valid when it had to be."""

    code = "expired"


class Rollback(OtaError):
    """Older than what this device has accepted before."""

    code = "rollback"


class Freeze(OtaError):
    """A document is past its expiry: somebody may be keeping newer ones from us."""

    code = "freeze"


class MixAndMatch(OtaError):
    """Parts that were never published together."""

    code = "mix-and-match"


class WrongTarget(OtaError):
    """For another board, architecture, system or agent."""

    code = "wrong-target"


class Dependency(OtaError):
    code = "dependency"


class Unavailable(OtaError):
    """A source does not answer, or breaks off; later it may."""

    code = "unavailable"
    retryable = True


class Cancelled(OtaError):
    code = "cancelled"


class Unhealthy(OtaError):
    """The new set did not pass its probes."""

    code = "unhealthy"


def all_errors() -> tuple[type[OtaError], ...]:
    """Every concrete class, for the table test."""
    return tuple(_leaves(OtaError))


def _leaves(cls: type[OtaError]) -> Iterator[type[OtaError]]:
    for sub in cls.__subclasses__():
        yield sub
        yield from _leaves(sub)
