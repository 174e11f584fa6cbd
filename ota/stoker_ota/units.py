"""Sizes as a type: a count of bytes is never compared with a count of windows."""

from typing import Final, NewType

Bytes = NewType("Bytes", int)

KIB: Final = 1024
MIB: Final = 1024 * 1024
