"""The fleet's keys at work: they sign desired states, and believe only what they have signed."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

from stoker_ota.cli.keyring import Keyring
from stoker_ota.core import envelope, fleet_documents, fleet_gate
from stoker_ota.core.clock import EARLIEST, Now
from stoker_ota.core.fleet_documents import Desired
from stoker_ota.errors import BadDocument, OtaError
from stoker_ota.services import authority

ROLE: Final = "fleet"


class Keys:
    """Port ``Pen``."""

    def __init__(self, ring: Keyring) -> None:
        self._ring = ring

    def ready(self) -> None:
        """OtaError when its own trust cannot be read: else everything would seem to be forged."""
        _ = self._trust

    @cached_property
    def _signers(self) -> tuple[authority.Holder, ...]:
        return self._ring.signers(ROLE)

    @cached_property
    def _trust(self) -> Any:
        return self._ring.trust()

    def sign(self, desired: Desired) -> bytes:
        payload = fleet_documents.desired_payload(desired)
        fleet_documents.parse_desired(payload)  # what a device would refuse is refused here
        data = authority.sign(fleet_documents.DESIRED_TYPE, payload, self._signers)
        self.read(data)  # what too few have signed would be asked of devices in vain
        return data

    def read(self, data: bytes) -> Desired:
        """Time is no reason: an old one is ours as well."""
        return fleet_gate.open_desired(data, self._trust, Now(EARLIEST, trusted=False))

    def recall(self, data: bytes) -> Desired:
        try:
            payload = envelope.parse(data, max_bytes=len(data)).payload
            return fleet_documents.parse_desired(payload)
        except OtaError as error:
            raise BadDocument(
                f"cannot use the ledger's copy of a desired state: {error.message}",
                hint="move campaigns.db away: the broker and the devices say it again",
            ) from error
