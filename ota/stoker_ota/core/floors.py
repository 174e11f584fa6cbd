"""What this device has accepted before, so that it never goes back: versions, counters, time.

Kept twice with a checksum (``floor.json`` and its twin); of two readable copies the
higher value of each key holds, so that a cut between two writes loses nothing. Counters
are raised only after a commit; versions of documents when they are accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from stoker_ota.core import clock, sealed
from stoker_ota.core.clock import Now
from stoker_ota.errors import Rollback, TooLarge

MAX_FLOOR_BYTES: Final = 4 << 20
_MAX: Final = (1 << 53) - 1


@dataclass(frozen=True, slots=True)
class Floors:
    documents: Mapping[str, int] = field(default_factory=dict)  # "trust", "manifest:chat" → version
    counters: Mapping[str, int] = field(default_factory=dict)  # artifact name → release counter
    time: datetime = clock.EARLIEST  # newest verified issued_at, none after a trusted clock's now
    told: datetime = clock.EARLIEST  # the same while no clock was trusted: it may be wrong

    def document(self, name: str) -> int:
        """0 = none was accepted yet."""
        return self.documents.get(name, 0)

    def accepted(self, name: str, version: int, issued: datetime, now: Now) -> Floors:
        """A signer whose clock runs ahead must not make a good clock look wrong for ever: only
        what a trusted clock has reached becomes the floor of time, the rest is hearsay.
        """
        raised = {**self.documents, name: max(version, self.document(name))}
        if not now.trusted:
            return replace(self, documents=raised, told=max(self.told, issued))
        time = max(self.time, min(issued, now.moment))
        return replace(self, documents=raised, time=time, told=clock.EARLIEST)

    def committed(self, counters: Mapping[str, int]) -> Floors:
        """After a commit, never at download: an update that failed raises nothing."""
        return replace(self, counters=_higher(self.counters, counters))

    def check_counter(self, name: str, counter: int) -> None:
        floor = self.counters.get(name, 0)
        if counter < floor:
            raise Rollback(
                f"cannot install {name}: its release counter {counter} is below {floor}",
                hint="to go back to older content, publish it anew with the same counter",
                details={"counter": counter, "floor": floor},
            )

    def without_catalog(self) -> Floors:
        """After a new trust document changed the catalog's keys: a thief's fast-forward
        must not lock the device out (TUF 5.3.11), neither by versions nor by time.
        """
        kept = {k: v for k, v in self.documents.items() if k == "trust"}
        return Floors(kept, self.counters)


def merge(left: Floors, right: Floors) -> Floors:
    return Floors(
        _higher(left.documents, right.documents),
        _higher(left.counters, right.counters),
        max(left.time, right.time),
        max(left.told, right.told),
    )


def encode(floors: Floors) -> bytes:
    """Raises TooLarge: what could not be read back is not written."""
    body: dict[str, object] = {
        "documents": dict(floors.documents),
        "counters": dict(floors.counters),
        "time": clock.write(floors.time),
    }
    if floors.told > clock.EARLIEST:
        body["told"] = clock.write(floors.told)
    data = sealed.seal("floors", body)
    if len(data) > MAX_FLOOR_BYTES:
        raise TooLarge(f"cannot keep floors: they have more than {MAX_FLOOR_BYTES} bytes")
    return data


def decode(data: bytes) -> Floors:
    """Raises BadDocument when a copy is damaged: then its twin holds."""
    inner = sealed.unseal("floors", data, MAX_FLOOR_BYTES)
    documents, counters = inner.table("documents"), inner.table("counters")
    out = Floors(
        {key: documents.whole(key, low=0, high=_MAX) for key in documents.keys()},  # noqa: SIM118
        {key: counters.whole(key, low=0, high=_MAX) for key in counters.keys()},  # noqa: SIM118
        clock.parse(inner.text("time"), "floors: time"),
        clock.parse(inner.text("told"), "floors: told") if inner.has("told") else clock.EARLIEST,
    )
    inner.finish()
    return out


def _higher(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    return {key: max(left.get(key, 0), right.get(key, 0)) for key in {**left, **right}}
