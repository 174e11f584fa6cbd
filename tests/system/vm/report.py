"""What the person at the terminal sees, and the two ways in which the field test ends badly."""

from __future__ import annotations

import sys


class VmError(Exception):
    """The field test cannot go on: the message is for the person who ran it."""


class Miss(Exception):
    """A step did not find what it must find."""


def expect(fact: bool, miss: str) -> None:
    if not fact:
        raise Miss(miss)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
