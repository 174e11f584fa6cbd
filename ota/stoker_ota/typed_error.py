"""An error with a stable code, a hint and details: the root of both error trees.

``stoker.errors`` and ``stoker_ota.errors`` say which codes there are; nothing here does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar


class TypedError(Exception):
    """``details`` holds numbers a program may use; ``hint`` says what the reader can do."""

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        details: Mapping[str, str | int | float | bool] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details: dict[str, str | int | float | bool] = dict(details or {})

    def record(self) -> dict[str, object]:
        """The error as the plain record that streams, ``--json`` and logs carry."""
        out: dict[str, object] = {"code": self.code, "message": self.message}
        if self.hint:
            out["hint"] = self.hint
        if self.retryable:
            out["retryable"] = True
        if self.details:
            out["details"] = dict(self.details)
        return out
