"""stoker-ota campaign: start, watch, pause, resume, abort and report one, over a broker.

There is no server of ours: steps are taken while ``watch`` runs. What it needs to know stands
in signed documents and in what devices say; the ledger only remembers.
"""

from __future__ import annotations

import contextlib
import time
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from stoker_ota.cli import broker_words, campaign_screen
from stoker_ota.cli.console import Console
from stoker_ota.cli.fleet_keys import Keys
from stoker_ota.cli.keyring import Keyring
from stoker_ota.core import campaign, campaign_section
from stoker_ota.core.campaign import Plan, State
from stoker_ota.core.topics import Topics
from stoker_ota.drivers.campaign_ledger import SqliteLedger
from stoker_ota.drivers.mqtt_operator import OperatorLink
from stoker_ota.errors import InvalidRequest, OtaError, Unavailable, Unhealthy
from stoker_ota.services.campaign_run import LEAVES, CampaignRun, Parts

QUIET_S: Final = 1.0
"""Retained messages have come when nothing more comes for so long."""
GATHER_S: Final = 60.0
LOOK_S: Final = 0.5
AGAIN_S: Final = 5.0


def run(args: Namespace, console: Console) -> None:
    """One verb. OtaError."""
    with _desk(args) as desk:
        match args.verb:
            case "start":
                _start(args, console, desk)
            case "watch":
                _watch(args, console, desk)
            case "report":
                _report(args, console, desk)
            case _:
                _order(args, console, desk)


@dataclass
class Desk:
    link: OperatorLink
    ledger: SqliteLedger
    keys: Keys
    topics: Topics

    def run(self, plan: Plan, state: State) -> CampaignRun:
        parts = Parts(self.link, self.keys, self.ledger, self.topics, lambda: datetime.now(UTC))
        return CampaignRun(plan, state, parts)

    def gather(self, run: CampaignRun) -> None:
        """What is retained: of the groups, then of the devices, one filter after the other (a
        broker queues only so many messages for one client).
        """
        filters = [*run.topics(), *(self.topics.every_device(leaf) for leaf in LEAVES)]
        limit = time.monotonic() + GATHER_S
        for item in filters:
            self.link.subscribe([item])
            if item.endswith("/result"):
                break  # nothing is retained there
            while time.monotonic() < limit:
                heard = self.link.hear(QUIET_S)
                if heard is None:
                    break
                run.hear(heard.topic, heard.payload)

    def find(self, wanted: str, groups: list[str]) -> tuple[Plan, State]:
        """From the ledger, or from what the broker keeps. InvalidRequest."""
        known = {plan.id: (plan, state) for plan, state in self.ledger.campaigns()}
        refused: list[str] = []
        if wanted not in known and (wanted or not _open(known)):
            theirs, refused = self._from_broker(groups)
            known |= theirs
        if wanted in known:
            return known[wanted]
        found = _open(known) or list(known.values())
        if wanted or len(found) != 1:
            what = f"campaign {wanted}" if wanted else "the campaign"
            names = ", ".join(plan.id for plan, _ in found[:8])
            if refused and not names:
                raise InvalidRequest(
                    f"cannot find {what}: {refused[0]}",
                    hint="if the fleet's key has changed and the ledger is lost: publish the "
                    "group's state with 'stoker-ota desired', and begin another campaign",
                )
            raise InvalidRequest(
                f"cannot find {what}", hint=f"there are: {names}" if names else "--group NAME"
            )
        return found[0]

    def _from_broker(self, groups: list[str]) -> tuple[dict[str, tuple[Plan, State]], list[str]]:
        """By id; and of what was not believed, why."""
        names = groups or ["+"]
        filters = [
            f"{self.topics.root}/g/+/desired" if name == "+" else self.topics.group(name, "desired")
            for name in names
        ]
        self.link.subscribe(filters)
        found: dict[str, tuple[Plan, State]] = {}
        refused: list[str] = []
        while (heard := self.link.hear(QUIET_S)) is not None:
            try:
                document = self.keys.read(heard.payload)
                parsed = campaign_section.parse(document.sections.get("campaign", {}))
            except OtaError as error:  # others' documents are none of ours
                refused.append(f"{heard.topic}: {error.message}")
                continue
            if parsed is not None:
                plan, state = parsed
                if plan.id not in found or found[plan.id][1].turn < state.turn:
                    found[plan.id] = parsed
        return found, refused


@contextlib.contextmanager
def _desk(args: Namespace) -> Iterator[Desk]:
    ring = Keyring(args)
    keys, topics = Keys(ring), Topics(args.root)
    keys.ready()
    path: Path = args.ledger or ring.folder / "campaigns.db"
    place = broker_words.broker(args)
    with contextlib.closing(SqliteLedger(path)) as ledger, OperatorLink(place) as link:
        yield Desk(link, ledger, keys, topics)


def _open(known: dict[str, tuple[Plan, State]]) -> list[tuple[Plan, State]]:
    return [item for item in known.values() if not item[1].over]


def _start(args: Namespace, console: Console, desk: Desk) -> None:
    identity = args.id or f"c-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    plan = campaign.checked(
        Plan(identity, tuple(args.groups), args.deployment, args.number, args.steps,
             args.success, args.abort, args.soak_s, args.window, args.lost_s)
    )  # fmt: skip
    if any(known.id == plan.id for known, _ in desk.ledger.campaigns()):
        raise InvalidRequest(f"cannot begin campaign {plan.id}: there was one")
    made = desk.run(plan, State())
    desk.gather(made)
    with _kept(identity):
        made.begin()
    _say(console, made)


def _order(args: Namespace, console: Console, desk: Desk) -> None:
    made = _known(args, desk)
    made.settle()
    with _kept(made.plan.id):
        made.order(args.verb)
    _say(console, made)


@contextlib.contextmanager
def _kept(identity: str) -> Iterator[None]:
    """An order is on record before it is published: one that the broker did not take goes out
    with the next look, and whoever gave it must know that.
    """
    try:
        yield
    except Unavailable as error:
        hint = f"it is on record, and 'stoker-ota campaign watch {identity}' will publish it"
        raise Unavailable(
            error.message, hint="; ".join(filter(None, (error.hint, hint)))
        ) from error


def _report(args: Namespace, console: Console, desk: Desk) -> None:
    made = _known(args, desk)
    story = desk.ledger.story(made.plan.id)
    if console.as_json:
        told = [{"time": _moment(at_s), "text": text} for at_s, text in story]
        found = {**campaign_screen.facts(made), "story": told}
        console.json({**found, "devices": campaign_screen.devices(made)})
        return
    console.line(campaign_screen.headline(made))
    for at_s, text in story:
        console.line(f"  {_moment(at_s)}  {text}")
    for name, (standing, seen) in made.standings().items():
        away = " (away)" if seen.away_s else ""
        why = f"{seen.code} {seen.detail}{away}".strip()
        console.line(f"{name:<24}{standing:<12}{why}".rstrip())


def _watch(args: Namespace, console: Console, desk: Desk) -> None:
    made = _known(args, desk)
    with campaign_screen.opened(console) as screen:
        again_s = 0.0
        while True:
            said = ""
            if time.monotonic() >= again_s:
                try:
                    said = made.turn()
                except Unavailable as error:  # a broker that is away comes back
                    again_s = time.monotonic() + AGAIN_S
                    said = error.message
            screen.show(made, said)
            if made.state.over or args.once:
                break
            _hear(made, desk)
    if made.state.phase == campaign.ABORTED:
        counts = made.counts()
        raise Unhealthy(
            f"campaign {made.plan.id} was aborted: {counts.failed} of {counts.reached} failed",
            hint=f"stoker-ota campaign report {made.plan.id}",
        )


def _hear(made: CampaignRun, desk: Desk) -> None:
    """All that comes within one look."""
    until = time.monotonic() + LOOK_S
    while (left := until - time.monotonic()) > 0:
        heard = desk.link.hear(left)
        if heard is not None:
            made.hear(heard.topic, heard.payload)


def _known(args: Namespace, desk: Desk) -> CampaignRun:
    plan, state = desk.find(args.id, args.groups)
    made = desk.run(plan, state)
    desk.gather(made)
    made.remember()
    return made


def _say(console: Console, made: CampaignRun) -> None:
    if console.as_json:
        console.json(campaign_screen.facts(made))
    else:
        console.line(campaign_screen.headline(made))


def _moment(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%dT%H:%M:%SZ}"
