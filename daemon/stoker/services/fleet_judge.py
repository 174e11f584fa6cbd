"""``stoker_ota``'s trust as the fleet client's judge: signed bytes in, records out.

It loads cryptography, so it is imported when a broker is configured and not before. It
reads the trust that updates keep; only the update thread writes it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime

from stoker.core.fleet_desired import Kept
from stoker.events.fleet import Record
from stoker.ports.fleet import Addressee, Moment
from stoker.services.update_engine import typed
from stoker.services.update_surroundings import WallClock
from stoker_ota.core import clock, fleet_gate, listing
from stoker_ota.core.clock import Now
from stoker_ota.core.documents import Trust
from stoker_ota.core.floors import Floors
from stoker_ota.errors import OtaError
from stoker_ota.services.intake import Intake
from stoker_ota.services.store import Store


class FleetJudge:
    """Port ``Judge``. ``first_trust``: the operator's document, read anew each time."""

    def __init__(self, store: Store, first_trust: Callable[[], bytes], wall: WallClock) -> None:
        self._store, self._first_trust, self._wall = store, first_trust, wall
        self._told = clock.EARLIEST
        self._kept = Floors()

    def now(self) -> Moment:
        found = self._now()
        return Moment(found.moment.timestamp(), found.trusted)

    def remember(self, proven_s: float) -> None:
        self._told = max(self._told, datetime.fromtimestamp(proven_s, UTC))

    def command(self, data: bytes) -> tuple[Record, str, Callable[[Addressee], bool]]:
        with typed():
            found = fleet_gate.open_command(data, self._trust(), self._now())
        said = found.command
        record = Record(
            said.id, said.command, dict(said.args), found.issuer, said.sequence,
            said.issued_at.timestamp(), said.expires.timestamp(),
        )  # fmt: skip

        def meant(me: Addressee) -> bool:
            return said.target.meets(me.device, me.groups, me.labels)

        return record, found.refusal, meant

    def desired(self, data: bytes) -> Kept:
        with typed():
            found = fleet_gate.open_desired(data, self._trust(), self._now())
        self.remember(found.issued_at.timestamp())
        return Kept(
            found.audience, found.version, found.expires.timestamp(),
            {name: dict(values) for name, values in found.sections.items()}, found.groups,
        )  # fmt: skip

    def trust_version(self) -> int:
        """To renew from: also where the newest was damaged."""
        with typed():
            return listing.version_of(Intake(self._store, self._first_trust()).known())

    def _trust(self) -> Trust:
        return Intake(self._store, self._first_trust()).trust()

    def _now(self) -> Now:
        """What an issuer says of its time is hearsay, as in ``floors.Floors.accepted``: one whose
        clock runs ahead must not make this device's good clock look wrong.
        """
        with contextlib.suppress(OtaError):  # a disk that stumbles: what was known before holds
            self._kept = self._store.floors()
        return clock.effective(
            self._wall.now(),
            synchronised=self._wall.synchronised(),
            floors=(self._wall.built(), self._kept.time),
            told=max(self._kept.told, self._told),
        )
