"""The desired state: which documents count, and what the device should be by all of them.

Versions rise for each audience; a lower or equal one is a replay. The device's own document
overrides its groups' section by section, and it alone says which groups those are. A
device with an [update] of its own is outside its groups' campaigns. Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

Sections = Mapping[str, Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class Kept:
    """The document accepted last for one audience."""

    audience: str
    version: int
    expires_s: float
    sections: Sections = field(default_factory=dict)
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wish:
    """A command that the state asks for. It is tried when ``digest`` differs from that of the wish
    that was tried last in its slot: a document that only grows a campaign tries nothing again.
    """

    id: str
    slot: str
    digest: str
    command: str
    args: Mapping[str, object]
    consent: bool = False  # it waits for somebody at the device


def is_news(known: Mapping[str, Kept], audience: str, version: int) -> bool:
    kept = known.get(audience)
    return kept is None or version > kept.version


def groups(known: Mapping[str, Kept], device: str) -> tuple[str, ...]:
    own = known.get(f"d:{device}")
    return own.groups if own is not None else ()


def merged(known: Mapping[str, Kept], device: str) -> dict[str, tuple[Kept, Mapping[str, object]]]:
    """Each section with the document it comes from: groups as they are listed, then our own."""
    found: dict[str, tuple[Kept, Mapping[str, object]]] = {}
    audiences = [f"g:{name}" for name in groups(known, device)] + [f"d:{device}"]
    for audience in audiences:
        kept = known.get(audience)
        if kept is not None:
            found |= {name: (kept, values) for name, values in kept.sections.items()}
    return found


def has_own_update(known: Mapping[str, Kept], device: str) -> bool:
    """Then it is outside its groups' campaigns."""
    own = known.get(f"d:{device}")
    return own is not None and "update" in own.sections


def stale(known: Mapping[str, Kept], device: str, now_s: float) -> bool:
    """One that counts is past its expiry: somebody may be keeping newer ones from us."""
    counting = {kept.audience: kept for kept, _ in merged(known, device).values()}
    return any(now_s > kept.expires_s for kept in counting.values())


def takes_part(campaign: Mapping[str, object], device: str) -> bool:
    """Whether the campaign has reached this device. The same device always draws the same number,
    and who takes part at 5 % also does at 10 %.
    """
    percent = campaign.get("percent", 100)
    strange = isinstance(percent, bool) or not isinstance(percent, int | float)
    if campaign.get("paused", False) is not False or strange:
        return False
    seed = f"{campaign.get('id', '')}\0{device}".encode()
    draw = int.from_bytes(hashlib.sha256(seed).digest()[:8], "big") / 2**64
    return draw < float(str(percent)) / 100


def wishes(known: Mapping[str, Kept], device: str) -> tuple[Wish, ...]:
    """What the state asks for, in the order in which it is to be done."""
    sections = merged(known, device)
    found: list[Wish] = []
    if "policy" in sections:
        kept, policy = sections["policy"]
        found.append(_wish(kept, "policy", "policy.set", {"values": dict(policy)}))
    if "runtime" in sections:
        found += _runtime(*sections["runtime"])
    campaign = sections["campaign"][1] if "campaign" in sections else {}
    if has_own_update(known, device):  # a group's campaign is not about it
        campaign = known[f"d:{device}"].sections.get("campaign", {})
    if "update" in sections and takes_part(campaign, device):
        kept, values = sections["update"]
        if values.get("deployment"):
            args = {key: value for key, value in values.items() if key != "consent"}
            wish = _wish(kept, "update", "update.install", args)
            found.append(replace(wish, consent=values.get("consent") is True))
    return tuple(found)


def _runtime(kept: Kept, values: Mapping[str, object]) -> list[Wish]:
    found = []
    if "paused" in values:
        word = "runtime.pause" if values["paused"] is True else "runtime.resume"
        found.append(_wish(kept, "paused", word, {}))
    if values.get("model"):
        found.append(_wish(kept, "model", "model.activate", {"model": values["model"]}))
    return found


def _wish(kept: Kept, slot: str, command: str, args: Mapping[str, object]) -> Wish:
    text = json.dumps([command, args], sort_keys=True, ensure_ascii=False)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return Wish(f"desired-{kept.version}-{digest}", slot, digest, command, dict(args))
