"""The one table from an error's code to the exit status of ``stoker-ota``; numbers of sysexits."""

from __future__ import annotations

from typing import Final

USAGE: Final = 64
INTERRUPT: Final = 130
PIPE: Final = 141
OUTPUT: Final = 74

STATUS: Final = {
    "invalid-request": USAGE,
    "bad-delta": 65,
    "bad-gguf": 65,
    "bad-document": 65,
    "too-large": 65,
    "source-mismatch": 65,
    "chunk-hash": 65,
    "file-unreadable": 66,
    "delta-too-large": 69,
    "unavailable": 69,
    "dependency": 69,
    "wrong-target": 69,
    "internal": 70,
    "no-memory": 71,
    "no-space": 73,
    "storage-failed": OUTPUT,
    "result-hash": 76,
    "unhealthy": 76,
    "bad-signature": 77,
    "bad-chain": 77,
    "revoked": 77,
    "expired": 77,
    "rollback": 77,
    "freeze": 77,
    "mix-and-match": 77,
    "cancelled": INTERRUPT,
}


def of(code: str) -> int:
    """An unknown code is a fault of ours: 70."""
    return STATUS.get(code, 70)


def meanings() -> list[tuple[int, str]]:
    """Every status and the codes behind it, for help and man page."""
    found: dict[int, list[str]] = {0: ["fine"]}
    for code, status in STATUS.items():
        found.setdefault(status, []).append(code)
    found[USAGE].append("wrong words on the command line")
    found[OUTPUT].append("the output cannot be written")
    found[INTERRUPT].append("Ctrl-C")
    found[PIPE] = ["the reader of the output went away"]
    return [(status, ", ".join(found[status])) for status in sorted(found)]
