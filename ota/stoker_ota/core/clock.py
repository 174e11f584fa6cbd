"""What time it is for a decision: a clock that may be wrong, held by a floor.

Effective now = max(clock, package build time, newest verified ``issued_at``, persisted
floor). The clock is never set. A board without a battery starts in 1970; that must not
stop an update, and a clock far in the future must not strand a device.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from stoker_ota.errors import BadDocument, InvalidRequest

FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"
EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
MAX_DAYS: Final = 100 * 365
"""Nothing is signed for longer."""


def later(now: datetime, days: int) -> datetime:
    """So many days after. InvalidRequest when the calendar ends before."""
    try:
        return now + timedelta(days=days)
    except OverflowError as error:
        raise InvalidRequest(f"cannot reckon with {days} days: the calendar ends") from error


@dataclass(frozen=True, slots=True)
class Now:
    """``moment`` is effective (UTC); ``trusted`` says that the system's clock may be believed."""

    moment: datetime
    trusted: bool


def effective(
    clock: datetime,
    *,
    synchronised: bool,
    floors: tuple[datetime, ...],
    told: datetime = EARLIEST,
) -> Now:
    """``synchronised``: what the system says of its clock. One behind a floor is not believed.
    ``told``: hearsay of documents, better than a clock that nobody vouches for and no more.
    """
    floor = max((EARLIEST, *floors))
    if synchronised and clock >= floor:
        return Now(clock, trusted=True)
    return Now(max(clock, floor, told), trusted=False)


def parse(text: str, what: str) -> datetime:
    """RFC 3339 in UTC with whole seconds, the one form that documents use. Raises BadDocument."""
    try:
        moment = datetime.strptime(text, FORMAT).replace(tzinfo=UTC)
    except ValueError as error:
        raise BadDocument(f"cannot read {what}: {text[:40]!r} is no UTC time") from error
    if write(moment) != text:  # strptime takes one digit where two belong
        raise BadDocument(f"cannot read {what}: {text[:40]!r} is no UTC time")
    return moment


def write(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime(FORMAT)
