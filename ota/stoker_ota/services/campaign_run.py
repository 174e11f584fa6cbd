"""One campaign at work: what is heard goes into counts, counts into steps, steps to the broker.

The truth is the campaign's section in the newest desired state that the fleet has signed; the
ledger is a memory of it. So whoever runs this may stop, and go on elsewhere. No clock, no I/O
of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from stoker_ota.core import (
    campaign,
    campaign_count,
    campaign_section,
    campaign_share,
    fleet_versions,
)
from stoker_ota.core.campaign import Counts, Plan, State
from stoker_ota.core.campaign_count import Seen
from stoker_ota.core.fleet_documents import Desired
from stoker_ota.core.topics import Topics
from stoker_ota.errors import BadDocument, InvalidRequest, OtaError
from stoker_ota.ports.campaign import Ledger, Pen, Post

LIFE: Final = timedelta(days=90)
MAX_DEVICES: Final = 1_000_000
_RANK: Final = {campaign.ABORTED: 2, campaign.PAUSED: 1}
"""Of two hands that moved at once, the more careful one wins."""
LEAVES: Final = ("state", "status", "result")
OURS: Final = ("update", "campaign")
"""Sections that a campaign writes itself."""
MOST_SHOWN: Final = 300


@dataclass(frozen=True, slots=True)
class Parts:
    post: Post
    pen: Pen
    ledger: Ledger
    topics: Topics
    now: Callable[[], datetime]
    life: timedelta = LIFE


class CampaignRun:
    def __init__(self, plan: Plan, state: State, parts: Parts) -> None:
        self.plan, self.state = campaign.checked(plan), state
        self._with = parts
        self._digest = campaign_share.wish(plan.update)
        self.devices: dict[str, Seen] = dict(parts.ledger.devices(plan.id))
        self._changed: dict[str, Seen] = {}
        self._documents: dict[str, Desired] = {}  # by group
        self._behind: set[str] = set()  # groups whose broker has gone back
        self._strange: dict[str, OtaError] = {}
        self._unproven: dict[str, tuple[bytes, OtaError]] = {}  # the ledger's, by an old key
        self._ours: set[str] = set()  # groups that follow this campaign
        self._beginning = False
        self._said = ""  # to be told by the next turn
        for group in plan.groups:
            data = parts.ledger.document(f"g:{group}")
            if data:
                self._recall(group, data)

    # what is heard

    def topics(self) -> tuple[str, ...]:
        return tuple(self._with.topics.group(group, "desired") for group in self.plan.groups)

    def hear(self, topic: str, payload: bytes) -> str:
        """The device of which there is news; "" = none."""
        for group in self.plan.groups:
            if topic == self._with.topics.group(group, "desired"):
                self._document(group, payload)
                return ""
        device, leaf = self._with.topics.whose(topic)
        if leaf not in LEAVES or len(self.devices) >= MAX_DEVICES:
            return ""
        old = self.devices.get(device, Seen())
        new = campaign_count.heard(old, leaf, payload, self._digest, self._now_s())
        if new == old:
            return ""
        self.devices[device] = self._changed[device] = new
        return device

    def counts(self) -> Counts:
        percent = campaign.percent(self.plan, self.state)
        return campaign_count.counts(self.plan, percent, self.devices, self._now_s())

    def standings(self) -> dict[str, tuple[str, Seen]]:
        """Of all devices of the groups, by name."""
        percent, now_s = campaign.percent(self.plan, self.state), self._now_s()
        return {
            name: (campaign_count.standing(self.plan, percent, name, seen, now_s), seen)
            for name, seen in sorted(campaign_count.members(self.plan, self.devices))
        }

    # what is done

    def begin(self) -> None:
        """Of a new campaign. InvalidRequest when a group is in another that is not over."""
        for group, document in self._documents.items():
            found = campaign_section.parse(document.sections.get("campaign", {}))
            if found is not None and found[0].id != self.plan.id and not found[1].over:
                raise InvalidRequest(
                    f"cannot begin campaign {self.plan.id}: {group} is in {found[0].id}, which is "
                    f"{found[1].phase}",
                    hint=f"stoker-ota campaign abort {found[0].id}",
                )
            if found is not None and found[0].id == self.plan.id:
                raise InvalidRequest(f"cannot begin campaign {self.plan.id}: there was one")
        for group in self.plan.groups:
            self._sections(group)  # what cannot be signed is said before anything is on record
        self._move(self.state, "started")
        self._beginning = True
        self.settle()
        self._beginning = False

    def turn(self) -> str:
        """Judge and go on; what happened, in words. Unavailable: try again later. InvalidRequest
        when a group follows something else.
        """
        self.settle()
        event = campaign.judged(self.plan, self.state, self.counts(), self._with.now())
        text, self._said = self._said, ""
        return "; ".join(filter(None, (text, self.order(event))))

    def order(self, event: str) -> str:
        """``pause``, ``resume``, ``abort`` or a judgement. An abort leaves groups alone that follow
        something else.
        """
        before, group = self.state, self.taken_over
        if group and not before.over and event != "abort":
            raise InvalidRequest(
                f"cannot go on with campaign {self.plan.id}: version "
                f"{self._documents[group].version} of g:{group} follows something else",
                hint=f"stoker-ota campaign abort {self.plan.id}",
            )
        after, _ = campaign.step(self.plan, before, event, self._now_s())
        if after == before:
            return ""
        text = "" if after.turn == before.turn else _words(self.plan, after, event, self.counts())
        self._move(after, text)
        self.settle()
        return text

    def settle(self) -> None:
        """Every group has the document that says how the campaign stands; devices are kept."""
        self.remember()
        for group in self.plan.groups:
            if self._lags(group):
                self._publish(group)

    def remember(self) -> None:
        """In the ledger, what devices said."""
        if self._changed:
            self._with.ledger.keep_devices(self.plan.id, self._changed)
            self._changed = {}

    @property
    def taken_over(self) -> str:
        """A group that somebody has given something else since; "" = none."""
        others = (g for g in self.plan.groups if g in self._documents and g not in self._ours)
        return next((group for group in others if not self._lags(group)), "")

    def _move(self, state: State, text: str) -> None:
        self.state = state
        self._with.ledger.keep(self.plan, state, self._now_s(), text)

    def _now_s(self) -> float:
        return self._with.now().timestamp()

    # documents

    def _recall(self, group: str, data: bytes) -> None:
        """The ledger's own copy. By a key that counts no more it is only a memory, and is signed
        anew with the next word to this group.
        """
        try:
            self._take(group, self._with.pen.read(data))
        except OtaError as error:
            self._take(group, self._with.pen.recall(data))
            self._behind.add(group)
            self._unproven[group] = data, error

    def _document(self, group: str, payload: bytes) -> None:
        if not payload or payload == self._unproven.get(group, (b"",))[0]:
            return
        try:
            found = self._with.pen.read(payload)
            if found.audience != f"g:{group}":
                raise BadDocument(f"cannot use it: it is for {found.audience}")
        except OtaError as error:
            self._strange[group] = error
            return
        self._strange.pop(group, None)
        known = self._documents.get(group)
        if known is not None and found.version <= known.version:
            self._not_newer(group, known, found)
            return
        self._with.ledger.keep_document(found.audience, found.version, payload)
        self._take(group, found)

    def _take(self, group: str, document: Desired) -> None:
        """Of this campaign's documents the newest turn counts."""
        self._documents[group] = document
        self._behind.discard(group)
        self._unproven.pop(group, None)
        found = campaign_section.parse(document.sections.get("campaign", {}))
        if found is None or found[0].id != self.plan.id:
            self._ours.discard(group)
            return
        self._ours.add(group)
        if found[1].turn > self.state.turn:
            self._adopt(found[1])

    def _not_newer(self, group: str, known: Desired, found: Desired) -> None:
        """The broker was set back, or two hands moved at once: then the same number has two
        meanings, and a newer one must have one.
        """
        if found.version < known.version:
            self._behind.add(group)
            return
        theirs = campaign_section.parse(found.sections.get("campaign", {}))
        if group not in self._ours or theirs is None or theirs[0].id != self.plan.id:
            return
        if _order(theirs[1]) > _order(self.state):
            self._adopt(replace(theirs[1], turn=max(theirs[1].turn, self.state.turn) + 1))
        elif _order(theirs[1]) < _order(self.state):
            self._behind.add(group)

    def _adopt(self, state: State) -> None:
        """Somebody else has moved it; with the same ledger that is on record already."""
        kept = {plan.id: state for plan, state in self._with.ledger.campaigns()}
        self._said = f"{state.phase} by another hand"
        on_record = self.plan.id in kept and kept[self.plan.id].turn >= state.turn
        self._move(state, "" if on_record else self._said)

    def _lags(self, group: str) -> bool:
        """Whether its document is older than this campaign's last word. One that follows something
        else is so only when a start was cut off before it came to this group.
        """
        if group in self._ours:
            return group in self._behind or self._turn_of(group) < self.state.turn
        if self.state.over:
            return False
        ours = max((self._documents[g].issued_at for g in self._ours), default=None)
        known = self._documents.get(group)
        return self._beginning or (ours is not None and (known is None or known.issued_at < ours))

    def _turn_of(self, group: str) -> int:
        found = campaign_section.parse(self._documents[group].sections["campaign"])
        return found[1].turn if found is not None else 0

    def _publish(self, group: str) -> None:
        """What else the group should be stays as it is."""
        known, sections = self._documents.get(group), self._sections(group)
        audience, now = f"g:{group}", self._with.now().replace(microsecond=0)
        sections["update"] = self.plan.update
        sections["campaign"] = campaign_section.section(self.plan, self.state)
        version = self._newest(audience, known.version if known else 0) + 1
        made = Desired(audience, version, now, now + self._with.life, sections)
        data = self._with.pen.sign(made)
        self._with.post.publish(self._with.topics.group(group, "desired"), data, retain=True)
        self._with.ledger.keep_document(audience, version, data)
        self._take(group, made)

    def _sections(self, group: str) -> dict[str, Mapping[str, object]]:
        """What the group is now. BadDocument when nobody whom we trust has said so."""
        known = self._documents.get(group)
        if known is None and group in self._strange:
            error = self._strange[group]
            raise BadDocument(
                f"cannot change g:{group}: what the broker keeps is not of this fleet: "
                f"{error.message}",
                hint="publish one with 'stoker-ota desired' first",
            )
        sections = dict(known.sections) if known else {}
        others = {name: dict(sections[name]) for name in sections if name not in OURS}
        if others and group in self._unproven:
            raise BadDocument(
                f"cannot sign g:{group} anew: {self._unproven[group][1].message}; besides the "
                f"update it said {json.dumps(others)[:MOST_SHOWN]}",
                hint="publish what is right of that with 'stoker-ota desired'; then another "
                "campaign may begin",
            )
        return sections

    def _newest(self, audience: str, known: int) -> int:
        told = (seen.desired.get(audience, 0) for seen in self.devices.values() if seen.desired)
        return fleet_versions.newest(known, told)


def _order(state: State) -> tuple[int, int, int]:
    return _RANK.get(state.phase, 0), state.turn, state.at


def _words(plan: Plan, state: State, event: str, counts: Counts) -> str:
    tally = f"{counts.succeeded} of {counts.reached} succeeded, {counts.failed} failed"
    if event == "due":
        return f"step {state.at + 1} of {len(plan.steps)}: {campaign.percent(plan, state):g} %"
    if event == "failing":
        return f"aborted: {tally}"
    if event == "done":
        return f"succeeded: {tally}"
    return {"pause": "paused", "resume": "resumed", "abort": "aborted by hand"}.get(event, event)
