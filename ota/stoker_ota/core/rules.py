"""TUF's rules on plain values: successors, thresholds, rollback, freeze, mix-and-match.

Knows no encoding: a shim can feed it TUF metadata as well as our three documents. Times
are ``clock.Now``; who signed is a set of names that tell keys apart.
Source: TUF specification 1.0, sections 5.3 to 5.6.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from stoker_ota.core.clock import Now
from stoker_ota.errors import BadSignature, Expired, Freeze, MixAndMatch, Rollback

MAX_TRUST_STEPS: Final = 1024
SKEW: Final = timedelta(minutes=5)
"""How far ahead of a trusted clock an issuer's clock may be."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What one document says of another one."""

    version: int
    sha256: str
    length: int


def enough(signers: Set[str], threshold: int, role: str) -> None:
    """Distinct valid signers against the threshold; none is never enough."""
    if len(signers) < max(1, threshold):
        raise BadSignature(
            f"cannot accept {role}: {len(signers)} of {max(1, threshold)} valid signers",
            details={"have": len(signers), "need": max(1, threshold)},
        )


def follows(version: int, current: int, what: str = "trust") -> None:
    """A trust document comes right after the one before: every version between is walked."""
    if version != current + 1:
        raise Rollback(
            f"cannot accept {what} {version}: {current + 1} comes after {current}",
            details={"version": version, "current": current},
        )


def not_older(version: int, floor: int, what: str, *, strictly: bool = False) -> None:
    """``strictly``: the same version again is no news either (an untrusted clock)."""
    if version < floor or (strictly and version == floor):
        raise Rollback(
            f"cannot accept {what} {version}: this device has accepted {floor}",
            details={"version": version, "floor": floor},
        )


def names_kept(old: Mapping[str, Entry], new: Mapping[str, Entry], what: str = "catalog") -> None:
    """A name once listed may not vanish, and its version may not go back (TUF 5.5.5)."""
    for name, entry in old.items():
        if name not in new:
            raise Rollback(f"cannot accept {what}: {name} is no longer listed")
        not_older(new[name].version, entry.version, f"{what}'s {name}")


def listed(
    name: str,
    entries: Mapping[str, Entry],
    document: bytes,
    version: int,
    what: str = "manifest",
    by: str = "the catalog",
) -> None:
    """The bytes are those that ``by`` lists, in the version it lists."""
    entry, refused = entries.get(name), f"cannot accept {what} {name}"
    if entry is None:
        raise MixAndMatch(f"{refused}: {by} does not list it")
    if len(document) != entry.length or hashlib.sha256(document).hexdigest() != entry.sha256:
        raise MixAndMatch(f"{refused}: {by} lists other bytes")
    if version != entry.version:
        raise MixAndMatch(f"{refused}: it says version {version}, {by} says {entry.version}")


def fresh(expires: datetime, now: Now, what: str) -> None:
    """Not past its expiry. Raises Freeze: somebody may be keeping newer ones from us."""
    if now.moment > expires:
        raise Freeze(f"cannot use {what}: it expired on {expires:%Y-%m-%d}")


def not_from_the_future(issued: datetime, now: Now, what: str) -> None:
    """Only a trusted clock can say so; a 1970 clock must not stop an update."""
    if now.trusted and issued > now.moment + SKEW:
        raise Expired(f"cannot accept {what}: it was issued after now ({issued:%Y-%m-%d %H:%M})")


def signed_while_valid(
    issued: datetime, valid_from: datetime, valid_until: datetime, signer: str
) -> None:
    """The certificate was valid when the document says it was issued.

    A certificate that expired since is no reason to refuse: rauc #581 and #781 stranded
    devices so. What an attacker with a stolen expired key could do is stopped by the
    catalog, which is signed by a certificate valid now, and by revocation.
    """
    if not valid_from <= issued <= valid_until:
        raise Expired(f"cannot accept signature of {signer}: not valid on {issued:%Y-%m-%d}")


def valid_now(valid_from: datetime, valid_until: datetime, now: Now, signer: str) -> None:
    """For the catalog, whose freshness everything else leans on."""
    if now.moment > valid_until or (now.trusted and now.moment + SKEW < valid_from):
        raise Expired(f"cannot accept signature of {signer}: not valid on {now.moment:%Y-%m-%d}")
