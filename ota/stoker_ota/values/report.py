"""What the maker found, as the command line and the manifest tell it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Made:
    """A finished delta. ``index_sha256`` is what the signed manifest names."""

    delta_bytes: int
    index_bytes: int
    index_sha256: str
    source_bytes: int
    target_bytes: int
    windows: dict[str, int]  # op and codec -> windows
    payload: dict[str, int]  # op and codec -> bytes of payload

    @property
    def ratio(self) -> float:
        """Delta ÷ target; 0 for an empty target."""
        return self.delta_bytes / self.target_bytes if self.target_bytes else 0.0


@dataclass(frozen=True, slots=True)
class Proof:
    """That the delta was applied in a limited process, and what that took."""

    memory_limit_bytes: int
    peak_memory_bytes: int
    seconds: float
