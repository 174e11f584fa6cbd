"""Commands and desired states: judged, put on record, done once, answered.

The record is on the disk before the broker hears an acknowledgement, and the effect begins
after that. What nobody trusted has signed is counted and changes nothing. Fleet thread only.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from stoker.core import fleet_command, fleet_desired, fleet_words
from stoker.core.fleet_desired import Kept, Wish
from stoker.core.fleet_words import moment
from stoker.errors import Cancelled, InvalidRequest, NotFound, StokerError, StorageFailed
from stoker.events.fleet import RESULT, FleetSnapshot, Message, Record
from stoker.ports.fleet import Addressee, FleetStore, Judge, Letter
from stoker.services.fleet_outcome import ADOPTED, Deed, Deeds, Outcome, ending
from stoker_ota.core.topics import MAX_PAYLOAD_BYTES, Topics

_log = logging.getLogger(__name__)
KEEP_RECORDS: Final = 256
MOST_RECORDS: Final = 2048
EXPIRY_MARGIN_S: Final = 3600.0
ANSWER_AGAIN_S: Final = 5.0  # the same command's answer, to one that asks again
MAX_REFUSED: Final = 256
TOLD_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Desk:
    """What the desk works with."""

    store: FleetStore
    judge: Judge
    deeds: Deeds
    topics: Topics
    me: Callable[[], Addressee]  # without groups: those stand in the desired state
    wall_s: Callable[[], float]
    monotonic_s: Callable[[], float]
    posted: Callable[[], None]  # the outbox has news
    groups_changed: Callable[[], None]


class FleetDesk:
    def __init__(self, desk: Desk) -> None:
        self._with = desk
        self._open: dict[str, Record] = {}  # accepted or running, in their order
        self._deeds: dict[str, Deed] = {}
        self._ended: dict[str, Outcome] = {}  # until their end is on the disk
        self._wishes: dict[str, str] = {}  # slot → record that works on it
        self._known: dict[str, Kept] = {}
        self._answered: OrderedDict[str, float] = OrderedDict()
        self._untrusting, self._said_s = "", -TOLD_S
        self.answered, self.forged, self._last = 0, 0, ("", "", "")
        self.pending: Mapping[str, object] | None = None  # an update that waits for consent

    # life

    def begin(self) -> None:
        """What is on record is gone on with."""
        store = self._with.store
        self._known = dict(store.desired())
        for record in store.recent(KEEP_RECORDS):
            if record.issuer:
                self._with.judge.remember(record.issued_s)
        for record in store.unfinished():
            self._open[record.id] = record
        self._look_at_trust()
        with contextlib.suppress(StorageFailed):  # ``tidy`` makes room and tries again
            self._follow_desired()

    @property
    def groups(self) -> tuple[str, ...]:
        return fleet_desired.groups(self._known, self._with.me().device)

    @property
    def busy(self) -> bool:
        return bool(self._deeds or self._ended)

    def subscriptions(self) -> tuple[str, ...]:
        topics, device = self._with.topics, self._with.me().device
        found = [topics.device(device, "desired"), topics.device(device, "cmd")]
        for group in self.groups:
            found += [topics.group(group, "desired"), topics.group(group, "cmd")]
        return tuple(found)

    def snapshot(self, base: FleetSnapshot) -> FleetSnapshot:
        now, me = self._with.judge.now(), self._with.me().device
        return replace(
            base,
            groups=self.groups,
            desired={name: kept.version for name, kept in self._known.items()},
            stale=now.trusted and fleet_desired.stale(self._known, me, now.at_s),
            own_update=fleet_desired.has_own_update(self._known, me),
            commands=self.answered,
            forged=self.forged,
            last_command=self._last,
            warnings=(*base.warnings, *self._warnings(trusted=now.trusted)),
        )

    def _warnings(self, *, trusted: bool) -> list[str]:
        if self._untrusting:
            self._look_at_trust()  # the keys may have come since
        found = [self._untrusting] if self._untrusting else []
        if not trusted:
            found.append("nobody keeps this device's clock: expiry is judged by what is known")
        return found

    def _look_at_trust(self) -> None:
        """Without it nothing is believed, and somebody should know why."""
        self._untrusting = ""
        try:
            self._with.judge.trust_version()
        except StokerError as error:
            self._untrusting = error.message

    # messages

    def receive(self, message: Message) -> None:
        """When it returns, all that had to be kept is kept. StorageFailed: do not acknowledge."""
        if not message.payload:
            return  # cleared by somebody: no news from anyone we know
        if len(message.payload) > MAX_PAYLOAD_BYTES:
            self._forged(message.topic, "too large")
            return
        try:
            if message.topic.endswith("/cmd"):
                self._command(message)
            elif message.topic.endswith("/desired"):
                self._desired(message)
        except _Unbelievable as error:
            self._forged(message.topic, str(error))

    def _command(self, message: Message) -> None:
        if message.retained:
            raise _Unbelievable("a command was retained")
        try:
            record, refusal, meant = self._with.judge.command(message.payload)
        except StokerError as error:
            raise _Unbelievable(error.message) from error
        known = self._with.store.command(record.id)
        if known is not None:
            self._answer_again(known)
            return
        me = replace(self._with.me(), groups=self.groups)
        if refusal == "expired":
            self._refuse(record, "late", "expired", f"it expired at {moment(record.expires_s)}")
        elif refusal:
            self._refuse(record, "refused", refusal, f"issued at {moment(record.issued_s)}")
        elif not meant(me):
            self._refuse(record, "refused", "wrong-target", "it is for somebody else")
        elif self._with.store.replayed(record.issuer, record.sequence):
            self._refuse(record, "refused", "rollback", "its sequence number was passed before")
        else:
            self._with.judge.remember(record.issued_s)
            self._accept(record)

    def _accept(self, record: Record, wish: Wish | None = None) -> None:
        taken = fleet_command.step(record, "accepted")
        slot = (wish.slot, wish.digest) if wish is not None else None
        self._with.store.add(taken, [self._letter(taken)], slot)
        self._open[taken.id] = taken
        self._said(taken)

    def _refuse(self, record: Record, what: str, code: str, text: str) -> None:
        """Answered once, nothing is kept: whoever sends it again learns nothing new."""
        if record.id in self._answered:
            return
        self._remember(record.id)
        refused = fleet_command.step(record, what, code, text)
        self._with.store.put([self._letter(refused)])
        self._said(refused)

    def _answer_again(self, record: Record) -> None:
        now = self._with.monotonic_s()
        if now - self._answered.get(record.id, -ANSWER_AGAIN_S) >= ANSWER_AGAIN_S:
            self._remember(record.id)
            self._with.store.put([self._letter(record)])
            self._with.posted()

    def _remember(self, identity: str) -> None:
        self._answered[identity] = self._with.monotonic_s()
        self._answered.move_to_end(identity)
        while len(self._answered) > MAX_REFUSED:
            self._answered.popitem(last=False)

    def _desired(self, message: Message) -> None:
        try:
            kept = self._with.judge.desired(message.payload)
        except StokerError as error:
            raise _Unbelievable(error.message) from error
        kind, _, name = kept.audience.partition(":")
        topics = self._with.topics
        place = topics.device(name, "desired") if kind == "d" else topics.group(name, "desired")
        mine = name == self._with.me().device if kind == "d" else name in self.groups
        if place != message.topic or not mine:
            raise _Unbelievable(f"the desired state of {kept.audience} is not ours")
        if not fleet_desired.is_news(self._known, kept.audience, kept.version):
            return
        before = self.groups
        self._with.store.keep_desired(kept)
        self._known[kept.audience] = kept
        _log.info("desired state %d of %s accepted", kept.version, kept.audience)
        if self.groups != before:
            self._with.groups_changed()
        self._follow_desired()

    def consent(self) -> None:
        """Somebody at the device agrees to what the signed state waits with."""
        self._follow_desired(consented=True)

    def _follow_desired(self, *, consented: bool = False) -> None:
        """Each wish once; a newer one takes the place of what works on an older."""
        self.pending = None
        for wish in fleet_desired.wishes(self._known, self._with.me().device):
            if self._with.store.wished(wish.slot) == wish.digest:
                continue
            if wish.consent and not consented:
                self.pending = wish.args
                continue
            old = self._wishes.get(wish.slot, "")
            if old in self._open:
                with contextlib.suppress(InvalidRequest):  # too late: the new one waits for its end
                    self.cancel(old)
            number, identity = 0, wish.id
            while self._with.store.command(identity) is not None:
                number += 1
                identity = f"{wish.id}-{number}"
            self._accept(Record(identity, wish.command, wish.args), wish)
            self._wishes[wish.slot] = identity

    # deeds

    def turn(self) -> None:
        """Begin what may begin, end what has ended."""
        for identity in list(self._open):
            record = self._open.get(identity)  # one that was begun may have canceled another
            if record is None:
                continue
            if identity in self._ended:
                self._finish(record, self._ended[identity])
            elif identity not in self._deeds and self._free(record):
                self._begin(record)
        for identity, deed in list(self._deeds.items()):
            outcome = _polled(deed)
            if outcome is not None:
                self._finish(self._open[identity], outcome)

    def tidy(self) -> None:
        """What has expired is forgotten, and what is too much: closed sequences bar replays."""
        self._look_at_trust()
        now = self._with.judge.now()
        if now.trusted:
            self._with.store.forget(now.at_s - EXPIRY_MARGIN_S, KEEP_RECORDS)
        self._with.store.forget(math.inf, MOST_RECORDS if now.trusted else KEEP_RECORDS)
        self._follow_desired()

    def cancel(self, identity: str) -> None:
        """NotFound, or Cancelled's opposite: InvalidRequest when it is too late."""
        record = self._open.get(identity)
        if record is None:
            raise NotFound(f"cannot cancel {identity}: it is not under way")
        deed = self._deeds.get(identity)
        if deed is None:
            self._finish(record, Outcome("canceled", Cancelled.code))
        elif not deed.cancel():
            raise InvalidRequest(f"cannot cancel {identity}: it can no longer be stopped")

    def _free(self, record: Record) -> bool:
        return fleet_command.free(record.command, (self._open[at].command for at in self._deeds))

    def _begin(self, record: Record) -> None:
        commanded = record.state == "accepted" and record.issuer
        if commanded and self._with.judge.now().at_s > record.expires_s:
            self._move(fleet_command.step(record, "late", "expired", "it had to wait too long"))
            return
        running = fleet_command.step(record, "begun")
        self._move(running, quiet=record.state == "running" and not running.over)
        if running.over:
            return

        def note(values: Mapping[str, object]) -> None:
            known = self._open[running.id]
            noted = replace(known, notes={**known.notes, **values})
            if ADOPTED in values:  # it goes on without us: that we ended was no try of it
                noted = replace(noted, attempts=max(1, noted.attempts - 1))
            self._open[running.id] = noted
            self._with.store.move(noted, ())

        try:
            self._deeds[running.id] = self._with.deeds.begin(running, note)
        except Exception as error:
            if not isinstance(error, StokerError):
                _log.exception("fault in %s", running.command)
            self._finish(self._open[running.id], ending(error))

    def _finish(self, record: Record, outcome: Outcome) -> None:
        """A disk that fails now must not let it be done once more."""
        self._ended[record.id] = outcome
        self._deeds.pop(record.id, None)
        over = fleet_command.step(record, outcome.what, outcome.code, outcome.text)
        self._move(replace(over, data=outcome.data), letters=outcome.letters)
        del self._ended[record.id]

    def _move(self, record: Record, *, quiet: bool = False, letters: Sequence[Letter] = ()) -> None:
        """To the disk with its result, then here."""
        told = [*letters] if quiet else [*letters, self._letter(record)]
        self._with.store.move(record, told)
        if record.over:
            self._open.pop(record.id, None)
            self.answered += 1
            _log.info("%s %s: %s %s", record.command, record.id, record.state, record.text)
        else:
            self._open[record.id] = record
        self._said(record)

    def _said(self, record: Record) -> None:
        self._last = (record.id, record.command, record.state)
        self._with.posted()

    def _letter(self, record: Record) -> Letter:
        topic = self._with.topics.device(self._with.me().device, "result")
        return Letter(RESULT, topic, fleet_words.result(record, self._with.wall_s()))

    def _forged(self, topic: str, why: str) -> None:
        self.forged += 1
        now = self._with.monotonic_s()
        if now - self._said_s >= TOLD_S:
            self._said_s = now
            self._look_at_trust()  # it may have gone since
            text = "".join(char if char.isprintable() else "?" for char in f"{topic}: {why}"[:300])
            _log.warning("a message is not believed: %s (%d so far)", text, self.forged)


class _Unbelievable(Exception):
    """Not signed by the fleet, or not where it belongs."""


def _polled(deed: Deed) -> Outcome | None:
    try:
        return deed.poll()
    except Exception as error:  # a fault of ours ends the command, not the client
        _log.exception("fault in a command")
        return ending(error)
