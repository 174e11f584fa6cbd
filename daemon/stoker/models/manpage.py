"""stoker-model(1), made from its command line: ``python -m stoker.models.manpage``."""

from __future__ import annotations

from typing import Final

from stoker.api.errormap import ROWS
from stoker.cli import manpage
from stoker.models import words

_HEAD: Final = """\
.\\" Made by python -m stoker.models.manpage from the command line's own description.
.TH STOKER\\-MODEL 1 "" "stoker @VERSION@" "User commands"
.SH NAME
stoker\\-model \\- look at, quantise, prune and judge model files
.SH SYNOPSIS
.B stoker\\-model
.RI [ OPTION ...]
.I VERB
.RI [ ARGUMENT ...]
.SH DESCRIPTION
.B stoker\\-model
works on GGUF files and needs no running agent. Everything that llama.cpp does happens in a child
process: a damaged or hostile file ends that one, and is told as an error. New files appear whole
or not at all."""

_TAIL: Final = """\
.SH NOTES
Divergence is that of Kullback and Leibler, of a variant's next\\-token distribution from the
reference's, in nats a token: 0 is the same model. It wants a text of the kind that the model is
asked about; two thousand tokens tell variants apart, ten thousand tell close ones.
.SH SEE ALSO
.BR stoker\\-ota (1),
.BR stokerctl (1)"""
_CODES: Final = {
    "invalid-request", "file-unreadable", "model-unavailable", "internal", "dependency",
    "insufficient-memory", "storage-failed", "engine-failed", "request-too-large",
}  # fmt: skip


def page() -> str:
    """The page as roff."""
    by_status: dict[int, list[str]] = {}
    for row in ROWS:
        if row.code in _CODES:
            by_status.setdefault(row.exit_status, []).append(row.code)
    statuses = [("0", "fine"), *((str(s), ", ".join(by_status[s])) for s in sorted(by_status))]
    statuses.append(("130", "Ctrl-C"))
    return manpage.render(_HEAD, words.build(), words.VERBS, statuses, _TAIL)


if __name__ == "__main__":
    print(page(), end="")
