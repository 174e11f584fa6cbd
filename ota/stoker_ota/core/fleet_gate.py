"""Which commands and desired states are the fleet's own words, in the gate's order.

Cap bytes, envelope, chain, signature, threshold; then the payload, parsed once from the
same bytes; then the signers' time. Whether a command is for this device, whether it came
before and what it does is the agent's. Pure; raises what ``gate.open_signed`` raises.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from stoker_ota.core import chain, fleet_documents, gate, rules
from stoker_ota.core.clock import Now
from stoker_ota.core.documents import Trust
from stoker_ota.core.fleet_documents import Command, Desired

ROLE: Final = "fleet"


@dataclass(frozen=True, slots=True)
class SignedCommand:
    """``issuer`` tells keys apart (hex SHA-256 of the first signer's): sequences are theirs."""

    command: Command
    issuer: str
    refusal: str = ""  # expired | not-yet: to be answered, never to be done


def open_command(data: bytes, trust: Trust, now: Now) -> SignedCommand:
    """A command that the fleet has signed. Expired when its signers were not valid then."""
    limit = fleet_documents.MAX_COMMAND_BYTES
    signed = gate.open_signed(data, fleet_documents.COMMAND_TYPE, ROLE, trust, max_bytes=limit)
    command = fleet_documents.parse_command(signed.payload)
    _check(signed, trust, command.issued_at, now)
    issuer = min(signer.spki for signer in signed.signers)
    refusal = "expired" if now.moment > command.expires else ""
    if now.trusted and command.issued_at > now.moment + rules.SKEW:
        refusal = "not-yet"
    return SignedCommand(command, issuer, refusal)


def open_desired(data: bytes, trust: Trust, now: Now) -> Desired:
    """Expiry is not judged here: a stale state is reported, and stays."""
    limit = fleet_documents.MAX_DESIRED_BYTES
    signed = gate.open_signed(data, fleet_documents.DESIRED_TYPE, ROLE, trust, max_bytes=limit)
    desired = fleet_documents.parse_desired(signed.payload)
    _check(signed, trust, desired.issued_at, now)
    rules.not_from_the_future(desired.issued_at, now, f"desired state {desired.version}")
    return desired


def _check(signed: gate.Signed, trust: Trust, issued: datetime, now: Now) -> None:
    """As many signers as the role asks for were valid when they signed, and no clock that can
    be believed says that their time is over.
    """

    def judge(signer: chain.Signer) -> None:
        rules.signed_while_valid(issued, signer.valid_from, signer.valid_until, signer.subject)
        if now.trusted:
            rules.valid_now(signer.valid_from, signer.valid_until, now, signer.subject)

    gate.check_signers(signed, trust.roles[ROLE], judge)
