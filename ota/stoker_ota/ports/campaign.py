"""What a campaign is run with: a broker to publish at, keys to sign with, a ledger to keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from stoker_ota.core.campaign import Plan, State
from stoker_ota.core.campaign_count import Seen
from stoker_ota.core.fleet_documents import Desired


class Post(Protocol):
    def publish(self, topic: str, payload: bytes, *, retain: bool) -> None:
        """Returns when the broker has it. Unavailable."""


class Pen(Protocol):
    """The fleet's signature."""

    def sign(self, desired: Desired) -> bytes:
        """InvalidRequest, FileUnreadable: without keys."""

    def read(self, data: bytes) -> Desired:
        """One that the fleet has signed. OtaError for any other."""

    def recall(self, data: bytes) -> Desired:
        """One of the operator's own ledger, where only what was read or signed is kept: whoever
        signed it may have another key by now. Never for what a broker says. BadDocument.
        """


class Ledger(Protocol):
    """Durable when a method returns. StorageFailed."""

    def campaigns(self) -> Sequence[tuple[Plan, State]]:
        """The newest first."""

    def keep(self, plan: Plan, state: State, at_s: float, text: str = "") -> None:
        """``text``: a line of its story."""

    def devices(self, campaign: str) -> Mapping[str, Seen]: ...

    def keep_devices(self, campaign: str, devices: Mapping[str, Seen]) -> None: ...

    def story(self, campaign: str) -> Sequence[tuple[float, str]]: ...

    def document(self, audience: str) -> bytes:
        """The newest that is known; b"" = none."""

    def keep_document(self, audience: str, version: int, data: bytes) -> None: ...
