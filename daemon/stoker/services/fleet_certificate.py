"""When this device's own certificate ends, and what to say of it. Fleet thread only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from stoker.core.fleet_words import moment

RENEW_S: Final = 30 * 86_400.0


class OwnCertificate:
    """``end_s``: seconds since 1970, 0 = there is none; ``wall_s`` as well."""

    def __init__(self, wall_s: Callable[[], float]) -> None:
        self.end_s = 0.0
        self._wall_s = wall_s

    @property
    def expires(self) -> str:
        return moment(self.end_s) if self.end_s else ""

    def warnings(self) -> tuple[str, ...]:
        if not self.end_s:
            return ()
        left_s = self.end_s - self._wall_s()
        if left_s <= 0:
            return ("this device's certificate has expired, or its clock is wrong",)
        if left_s < RENEW_S:
            return (f"this device's certificate expires in {left_s / 86_400:.0f} days",)
        return ()
