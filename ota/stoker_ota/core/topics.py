"""The names of the fleet's topics, and what every topic must keep.

No dots (RabbitMQ translates them, NATS refuses them), at most seven slashes and 256 bytes
(AWS IoT Core), exact subscriptions only. Pure; agent and operator's tool use the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from stoker_ota.errors import InvalidRequest

DEFAULT_ROOT: Final = "stoker/1"
LEVEL: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
MAX_SLASHES: Final = 7
MAX_BYTES: Final = 256
MAX_PAYLOAD_BYTES: Final = 120 << 10  # AWS takes 128 KB with its head
_DEEPEST: Final = 5  # slashes below the root: /d/DEVICE/up/TRANSFER/N


@dataclass(frozen=True, slots=True)
class Topics:
    """All topics below one root. InvalidRequest for a root or a name that no broker would take."""

    root: str = DEFAULT_ROOT

    def __post_init__(self) -> None:
        levels = self.root.split("/")
        if not all(LEVEL.fullmatch(level) for level in levels):
            raise InvalidRequest(
                f"cannot use topics below {self.root!r}: levels have letters, digits, - and _",
                hint="such as stoker/1",
            )
        if self.root.count("/") + _DEEPEST > MAX_SLASHES or len(self.root) > MAX_BYTES // 4:
            raise InvalidRequest(f"cannot use topics below {self.root!r}: it is too deep or long")

    def device(self, device: str, *rest: str) -> str:
        """``R/d/<device>/…``: desired, cmd, result, state, status, telemetry, up."""
        return self._made("d", device, *rest)

    def group(self, group: str, *rest: str) -> str:
        """``R/g/<group>/…``: desired, cmd."""
        return self._made("g", group, *rest)

    def catalog(self) -> str:
        return self._made("catalog")

    def trust(self, version: int) -> str:
        return self._made("trust", str(version))

    def blob(self, sha256: str) -> str:
        return self._made("b", sha256)

    def every_device(self, leaf: str) -> str:
        """A filter for an operator's tool: ``R/d/+/<leaf>``. Devices never use one."""
        return f"{self.root}/d/+/{leaf}"

    def whose(self, topic: str) -> tuple[str, str]:
        """(device, rest) of a device's topic; ("", "") of any other, or of a name that no device
        has.
        """
        head = f"{self.root}/d/"
        if not topic.startswith(head):
            return "", ""
        device, _, rest = topic[len(head) :].partition("/")
        return (device, rest) if LEVEL.fullmatch(device) else ("", "")

    def _made(self, *levels: str) -> str:
        for level in levels:
            if not LEVEL.fullmatch(level):
                raise InvalidRequest(
                    f"cannot make a topic: {level[:70]!r} has not 1..64 letters, digits, - and _"
                )
        return "/".join((self.root, *levels))
