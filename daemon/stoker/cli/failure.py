"""A failed call as a person or a program is told of it, and its exit status."""

from __future__ import annotations

from typing import Final

from stoker.cli.terminal import Terminal
from stoker_client.errors import PREFIX, StokerClientError

_WHERE_TO_LOOK: Final = """\
  start it:          sudo systemctl start stoker
  how it is:         systemctl status stoker
  what it said:      journalctl -u stoker
  from a checkout:   make run"""


def why(fault: OSError | ValueError) -> str:
    """What is wrong with a file, without its name and the number that OSError's text has."""
    return (fault.strerror if isinstance(fault, OSError) else None) or str(fault)


def report(error: StokerClientError, terminal: Terminal) -> int:
    """Tell the person, or the program behind ``--json``, and choose the exit status."""
    from stoker.api import errormap

    if terminal.as_json:
        terminal.json({"error": error.record()})
    else:
        terminal.note(f"stokerctl: {error.message}")
        if error.hint:
            terminal.note(f"  hint: {error.hint}")
        if error.code == "unavailable" and not error.dbus_name.startswith(PREFIX):
            # An agent that says so itself is there: starting it helps nobody.
            terminal.note(_WHERE_TO_LOOK)
    return errormap.row(error.code).exit_status
