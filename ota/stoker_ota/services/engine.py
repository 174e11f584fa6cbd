"""Carries out what the machine decides: fetch, apply, verify, stage, activate, test, commit.

One thread. The journal is on the disk before each action begins; every action may be
begun again. Everything from outside is a port, every error becomes an event.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from stoker_ota.core import fields, machine, manifest, routes, targeting
from stoker_ota.core.manifest import Manifest
from stoker_ota.core.routes import Route
from stoker_ota.errors import BadDocument, FileUnreadable, OtaError, ResultHash, Unavailable
from stoker_ota.ports.disk import Disk
from stoker_ota.ports.files import Progress, no_progress
from stoker_ota.ports.updates import Health, Patcher, Sources, Surroundings
from stoker_ota.services import arrivals, failures, preflight
from stoker_ota.services.store import OFFER, Store
from stoker_ota.values.deployment import Journal, Member, Offer, Phase
from stoker_ota.values.moves import Do, Event, What


@dataclass(frozen=True, slots=True)
class Ports:
    disk: Disk
    sources: Sources
    patcher: Patcher
    health: Health
    around: Surroundings


class Engine:
    """``report`` hears each new journal; ``progress`` how far a phase is, in bytes."""

    def __init__(
        self,
        store: Store,
        ports: Ports,
        *,
        report: Callable[[Journal], None] = lambda _journal: None,
        progress: Progress = no_progress,
    ) -> None:
        self._store, self._ports = store, ports
        self._report, self._progress = report, progress
        self._todo: deque[Do] = deque()
        self.journal = store.journal()
        self.waiting = False  # for time, room or a confirmation

    def start(self) -> None:
        """After every start: goes on where the last process stopped."""
        self.take(Event(What.RESTARTED, generation=self._store.current()))

    def offer(self, document: bytes, offer: Offer) -> None:
        """A manifest that the gate accepted; ``document`` are its signed bytes. Unavailable
        while another one cannot give way.
        """
        phase = self.journal.phase
        if (phase, What.OFFERED) not in machine.TABLE:
            raise Unavailable(f"cannot take {offer.deployment}: an update is {phase.value}")
        self._store.save_document(_offered(offer.manifest), document)
        self.take(Event(What.OFFERED, offer))

    def go_back(self) -> None:
        """To the set before, because an administrator wants it."""
        left = self._store.manifest(self._store.current())
        name = hashlib.sha256(left).hexdigest() if left is not None else ""
        self.take(Event(What.GO_BACK, manifest=name))

    def take(self, event: Event) -> None:
        """Moves the machine; the journal is on the disk when this returns."""
        before = self.journal
        after, todo = machine.step(before, event)
        if after != before:
            self._store.save_journal(after)
            self.journal = after
            self._report(after)
        self._todo.extend(todo)
        self.waiting = False

    def run(self) -> None:
        """Until nothing is left to do now."""
        while self.step():
            pass

    def step(self) -> bool:
        """One action; False = nothing is left to do now."""
        if not self._todo or self.waiting:
            return False
        event = self._carry_out(self._todo.popleft())
        if event is not None:
            self.take(event)
        return True

    def cancel(self) -> bool:
        """Give up what is under way. False where that makes no sense (any more, or yet)."""
        if (self.journal.phase, What.CANCELLED) not in machine.TABLE:
            return False
        self._todo.clear()
        self.take(Event(What.CANCELLED, reason="an administrator ended it"))
        return True

    def go_on(self) -> None:
        """The time of a wait is over: repeats what the phase does."""
        again = machine.REPEATS.get(self.journal.phase)
        if self.waiting and again is not None:
            self.waiting = False
            self._todo.appendleft(again)

    def _carry_out(self, do: Do) -> Event | None:
        try:
            return _ACTIONS[do](self)
        except OtaError as error:
            return failures.event(error, self.journal.phase)

    def _evaluate(self) -> Event:
        found = self._manifest()
        around = self._ports.around
        targeting.check(found, around.device())
        targeting.check_bases(found, around.package_files)
        reason = around.inhibited()
        forced = self.journal.offer is not None and self.journal.offer.forced
        if not reason and not forced:
            reason = (
                targeting.outside_window(found, around.now(), around.local_hour())
                if self.journal.phase is Phase.STAGED
                else targeting.not_drawn(found, around.device(), around.now())
            )
        if reason:
            return Event(What.NOT_YET, code="waiting", reason=reason)
        return Event(What.ALLOWED)

    def _preflight(self) -> Event:
        self._ports.health.room(self._manifest())
        preflight.check(
            self._routes(),
            self._manifest().targets.min_free_bytes,
            self._ports.disk,
            self._staging(),
            self._ports.around.free_memory_bytes(),
        )
        return Event(What.DONE)

    def _fetch(self) -> Event:
        folder, found = self._staging(), self._manifest()
        disk, sources = self._ports.disk, self._ports.sources
        for route in self._routes():
            if route.fetch:
                wanted = route.wanted(found)
                part = f"{folder}/{wanted.sha256}.{'part' if route.delta is None else 'delta'}"
                arrivals.bring(disk, sources, wanted, part, self._progress)
        disk.sync_folder(folder)  # a name that no cut takes away again
        return Event(What.DONE)

    def _apply(self) -> Event:
        folder = self._staging()
        for route in self._routes():
            if route.delta is None:
                continue
            part = f"{folder}/{route.artifact.sha256}.part"
            delta = f"{folder}/{route.delta.sha256}.delta"
            source = self._source(route.delta.from_sha256)
            self._ports.patcher.apply(
                delta, route.delta.index_sha256, source, part, route.artifact.size, self._progress
            )
        self._ports.disk.sync_folder(folder)
        return Event(What.DONE)

    def _verify(self) -> Event:
        """Every result is hashed as it stands on the disk; then the set is made, not active."""
        folder = self._staging()
        package = self._ports.around.package_files()
        members = []
        for route in self._routes():
            item = route.artifact
            if route.fetch and not self._store.has(item.sha256):
                part = f"{folder}/{item.sha256}.part"
                if self._ports.disk.size(part) is None:
                    raise ResultHash(f"cannot keep {item.name}: what was made of it is gone")
                self._store.adopt(part, item.sha256)
            where = package.get(item.sha256, "") if not self._store.has(item.sha256) else ""
            base = item.base_sha256
            members.append(Member(item.kind, item.name, item.version, item.sha256, where, base))
        offer = self.journal.offer
        document = self._document(offer)
        number = self._store.make_generation(document, members)
        return Event(
            What.DONE,
            generation=number,
            previous=self._store.current(),
            earlier=self._store.previous(),
        )

    def _activate(self) -> Event:
        number = self.journal.generation
        self._store.members(number)  # whole, or it is not activated
        self._store.mark_trial(number)
        self._store.activate(number, previous=self.journal.previous)
        return Event(What.DONE)

    def _test(self) -> Event:
        number = self.journal.generation
        self._ports.health.test(self._manifest(), number, self._store.members(number))
        return Event(What.HEALTHY)

    def _commit(self) -> Event:
        """Floors rise only here: an update that failed leaves no trace in them."""
        found, offer = self._manifest(), self.journal.offer
        floors = self._store.floors().committed(found.counters)
        if offer is not None:
            name = f"manifest:{offer.deployment}"
            now = self._ports.around.now()
            floors = floors.accepted(name, offer.version, found.issued_at, now)
        self._store.save_floors(floors)
        self._store.end_trial(self.journal.generation)
        self._record("committed")
        return Event(What.DONE)

    def _roll_back(self) -> Event:
        """Only to what was committed before; and it is shown that it works."""
        target = self.journal.previous
        members: tuple[Member, ...] = ()
        if target:
            try:
                members = self._members_surely(target)
            except (BadDocument, FileUnreadable):
                target = 0  # damaged: the package's own set is always there
        self._store.activate(target, previous=0 if target == 0 else self.journal.earlier)
        fault = self._ports.health.switch(target, members)
        self._record("returned")
        return Event(What.DONE, code="unhealthy" if fault else "", reason=fault)

    def _members_surely(self, generation: int) -> tuple[Member, ...]:
        """A disk that stumbled once must not cost the way back."""
        with contextlib.suppress(FileUnreadable):
            return self._store.members(generation)
        return self._store.members(generation)

    def _clean(self) -> Event | None:
        """What could not be cleaned up now is at the next start; no update waits for it."""
        journal = self.journal
        if journal.phase in (Phase.IDLE, Phase.FAILED):
            journal = replace(journal, offer=None, generation=0)
        with contextlib.suppress(OtaError):
            self._store.collect(journal)
        return Event(What.DONE) if self.journal.phase is Phase.FAILED else None

    def _tell(self) -> None:
        """A report that fails never changes what is installed."""
        if self.journal.phase is not Phase.IDLE:  # a commit has its own line
            with contextlib.suppress(OtaError):
                self._record(self.journal.phase.value)
        self._report(self.journal)

    def _wait(self) -> None:
        self.waiting = True

    def _record(self, what: str) -> None:
        offer = self.journal.offer
        moment = self._ports.around.now()
        self._store.record(
            {
                "what": what,
                "deployment": offer.deployment if offer else "",
                "version": offer.version if offer else 0,
                "generation": self._store.current(),
                "code": self.journal.code,
                "reason": fields.plain(self.journal.reason, 500),
                "time": moment.moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
        )

    def _manifest(self) -> Manifest:
        """Parsed again from the bytes that were verified: nothing else is believed."""
        offer = self.journal.offer
        return manifest.of_envelope(self._document(offer), offer.manifest if offer else "")

    def _document(self, offer: Offer | None) -> bytes:
        if offer is None:
            raise BadDocument("cannot go on: no deployment is under way")
        data = self._store.document(_offered(offer.manifest))
        if data is None:  # as versions before 0.2 have called it
            data = self._store.document(_offered(offer.deployment))
        if data is None:
            raise BadDocument(f"cannot go on: the manifest of {offer.deployment} is gone")
        return data

    def _routes(self) -> tuple[Route, ...]:
        found = self._manifest()
        here = set(self._ports.around.package_files())
        wanted = {item.sha256 for item in found.artifacts}
        wanted |= {delta.from_sha256 for item in found.artifacts for delta in item.deltas}
        here |= {sha for sha in wanted if self._store.has(sha)}
        return routes.choose(found, here, whole=self.journal.whole)

    def _source(self, sha256: str) -> str:
        if self._store.has(sha256):
            return self._store.object_path(sha256)
        return self._ports.around.package_files()[sha256]

    def _staging(self) -> str:
        offer = self.journal.offer
        folder = f"staging/{offer.manifest if offer else 'none'}"
        self._ports.disk.make_folder(folder)
        return folder


def _offered(name: str) -> str:
    """By the manifest's hash: no later offer changes what is under way."""
    return f"{OFFER}{name}"


_ACTIONS: dict[Do, Callable[[Engine], Event | None]] = {
    Do.EVALUATE: Engine._evaluate,
    Do.PREFLIGHT: Engine._preflight,
    Do.FETCH: Engine._fetch,
    Do.APPLY: Engine._apply,
    Do.VERIFY: Engine._verify,
    Do.ACTIVATE: Engine._activate,
    Do.TEST: Engine._test,
    Do.COMMIT: Engine._commit,
    Do.ROLL_BACK: Engine._roll_back,
    Do.CLEAN: Engine._clean,
    Do.REPORT: Engine._tell,
    Do.REFUSE: Engine._tell,
    Do.WAIT: Engine._wait,
}
