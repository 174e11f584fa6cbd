"""The fleet client: one thread that hears the broker, does what the fleet says, and reports.

Sense (the queue), decide (desk and link, by their cores), act (deeds, the broker), report.
Without a configured broker there is no such service. A fault here never stops inference.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Final

from stoker.core.fleet_words import WRITTEN
from stoker.errors import StokerError, StorageFailed, Unavailable
from stoker.events.fleet import (
    BrokerEvent,
    Connected,
    FleetSnapshot,
    Lost,
    Message,
    ProbeStep,
    Published,
    Record,
    Subscribed,
)
from stoker.ports.fleet import Broker, FleetListener, FleetStore
from stoker.services.fleet_certificate import OwnCertificate
from stoker.services.fleet_desk import FleetDesk
from stoker.services.fleet_guest import HomeAssistant
from stoker.services.fleet_inbox import Inbox
from stoker.services.fleet_link import FleetLink
from stoker.services.fleet_reports import Reporter
from stoker.services.futures import failed
from stoker.services.side_thread import SideThread
from stoker.units import Seconds
from stoker_ota.core.topics import Topics

_log = logging.getLogger(__name__)
BUSY_TURN_S: Final = 0.25  # while something is done, to see its end
FETCH_S: Final = 5.0
START_S: Final = 10.0
TIDY_S: Final = 3600.0
TROUBLE_S: Final = 5.0  # before a store that failed is tried again
PAUSED: Final = "paused"
RECENT: Final = 50


@dataclass(frozen=True, slots=True)
class Fleet:
    """What the service is made of; ``fleet_parts`` wires it."""

    store: FleetStore
    broker: Broker
    link: FleetLink
    desk: FleetDesk
    reporter: Reporter
    guest: HomeAssistant
    topics: Topics
    device: str
    address: str
    hold: Callable[[bool], None]  # stop answering, until it is told otherwise
    monotonic_s: Callable[[], float]


class FleetService:
    """See ``ports.fleet.FleetDoor``. ``build`` makes the rest, in the service's thread."""

    def __init__(self, build: Callable[[FleetService], Fleet], device: str, address: str) -> None:
        self._build = build
        self._inbox = Inbox()
        self._listeners: list[FleetListener] = []
        self._snapshot = FleetSnapshot(state="waiting", device=device, broker=address)
        self._aside = SideThread("fleet-look")
        self._stop, self._begun = threading.Event(), threading.Event()
        self._fetches: dict[str, tuple[Future[bytes], float]] = {}
        self._made: Fleet | None = None
        self._fleet: Fleet | None = None  # once it has begun
        self._tidy_s = 0.0
        self._trouble_s = 0.0
        self._full_s = 0.0  # no work before this
        self._certificate = OwnCertificate(time.time)
        self._thread = threading.Thread(target=self._run, name="fleet", daemon=True)

    # the door

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: Seconds) -> None:
        """Says why before it leaves. Safe without a start."""
        self._stop.set()
        self._inbox.put(lambda: None)
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def listen(self, listener: FleetListener) -> None:
        self._listeners.append(listener)

    def snapshot(self) -> FleetSnapshot:
        return self._snapshot

    def test(self) -> Future[Sequence[ProbeStep]]:
        def look() -> Sequence[ProbeStep]:
            fleet = self._ready()
            topics = (*fleet.desk.subscriptions(), *fleet.guest.subscriptions())
            writes = [fleet.topics.device(fleet.device, *leaf) for leaf in WRITTEN]
            return fleet.broker.test(fleet.device, topics, writes)

        return self._aside.call(look)

    def enroll(self) -> Future[str]:
        return self._aside.call(lambda: self._ready().broker.enroll(self._ready().device))

    def adopt(self, pem: str) -> Future[None]:
        def act() -> None:
            fleet = self._ready()
            fleet.broker.adopt(fleet.device, pem.encode())
            self._inbox.put(lambda: self._adopted(fleet))

        return self._aside.call(act)

    def _ready(self) -> Fleet:
        """Aside: it may wait."""
        self._begun.wait(START_S)
        if self._fleet is None:
            raise Unavailable("cannot reach the broker: the fleet client is starting")
        return self._fleet

    def recent(self) -> Future[Sequence[Record]]:
        asked: Future[Sequence[Record]] = Future()

        def look() -> None:
            try:
                fleet = self._fleet
                asked.set_result(() if fleet is None else fleet.store.recent(RECENT))
            except Exception as error:
                asked.set_exception(error)

        self._inbox.put(look)
        return asked

    # what its parts ask of it

    def tell(self, event: BrokerEvent) -> None:
        """Any thread: what a broker reports."""
        self._inbox.put(event)

    def wake(self) -> None:
        """Any thread: something changed that a turn should see."""
        self._inbox.put(lambda: None)

    def fetch(self, topic: str) -> Future[bytes]:
        """A retained message; b"" when none comes in time. Fleet thread."""
        found: Future[bytes] = Future()
        fleet = self._fleet
        if fleet is None or not fleet.link.online:
            return failed(Unavailable(f"cannot fetch {topic}: there is no connection"))
        self._fetches[topic] = (found, fleet.monotonic_s() + FETCH_S)
        self._watch()
        return found

    def watch(self) -> None:
        """The groups changed. Fleet thread."""
        self._watch()

    def pause(self, held: bool) -> None:
        """Kept over restarts. Fleet thread."""
        if self._fleet is not None:
            self._fleet.store.write_note(PAUSED, "1" if held else "")
            self._fleet.hold(held)

    # the thread

    def _run(self) -> None:
        while not self._stop.is_set():
            self._round()
        fleet = self._fleet
        if fleet is not None:
            fleet.link.stop("stop")
            fleet.store.close()

    def _round(self) -> None:
        try:
            self._begin()
            self._turn()
        except StokerError as error:
            self._troubled(error)
        except Exception as error:
            _log.exception("fault in the fleet client")
            self._troubled(error)

    def _begin(self) -> None:
        """Safe to be tried again after a disk has failed in the middle."""
        if self._fleet is not None:
            return
        if self._made is None:
            self._made = self._build(self)
        fleet = self._made
        fleet.store.open()
        if fleet.store.note(PAUSED):
            fleet.hold(True)
        fleet.desk.begin()
        self._fleet = fleet
        self._begun.set()
        self._watch()

    def _turn(self) -> None:
        fleet = self._fleet
        assert fleet is not None
        self._tidy(fleet)
        event = self._inbox.get(self._wait_s(fleet))
        while event is not None:
            self._heard(fleet, event)
            event = self._inbox.get(0.0)
        if self._stop.is_set():
            return
        self._give_up_fetches(fleet)
        if fleet.monotonic_s() >= self._full_s:
            self._kept(fleet, fleet.desk.turn)
        fleet.reporter.turn(fleet.link.online)
        fleet.guest.turn()
        fleet.link.turn()
        self._publish(fleet)

    def _tidy(self, fleet: Fleet) -> None:
        """Before all else: a store that is full gets room."""
        now = fleet.monotonic_s()
        if now >= self._tidy_s:
            self._tidy_s = now + TIDY_S
            self._kept(fleet, fleet.desk.tidy)
            if fleet.link.storage:
                self._kept(fleet, lambda: self._try_store(fleet))
            self._look_at_certificate(fleet)

    def _try_store(self, fleet: Fleet) -> None:
        fleet.store.write_note("tried", "")
        fleet.link.storage_failed("")

    def _kept(self, fleet: Fleet, act: Callable[[], None]) -> None:
        """A full disk stops no other part: somebody must hear of it."""
        try:
            act()
        except StorageFailed as error:
            self._full_s = fleet.monotonic_s() + TROUBLE_S
            self._tidy_s = min(self._tidy_s, self._full_s + TROUBLE_S)
            fleet.link.storage_failed(error.message)

    def _wait_s(self, fleet: Fleet) -> float:
        waits = [fleet.link.wake_s(), fleet.reporter.wake_s()]
        if fleet.desk.busy or self._fetches:
            waits.append(BUSY_TURN_S)
        return max(0.0, min(waits))

    def _heard(self, fleet: Fleet, event: BrokerEvent | Callable[[], None]) -> None:
        match event:
            case Message():
                self._received(fleet, event)
            case Connected():
                self._look_at_certificate(fleet)
                fleet.link.connected(event)
                fleet.reporter.connected()
                fleet.guest.connected()
            case Lost():
                fleet.link.lost(event)
            case Published():
                fleet.link.published(event)
            case Subscribed():
                fleet.link.subscribed(event)
            case _:
                event()

    def _received(self, fleet: Fleet, message: Message) -> None:
        """What cannot be kept is not acknowledged: hanging up brings it once more."""
        if message.topic in self._fetches:
            found, _until = self._fetches.pop(message.topic)
            found.set_result(message.payload)
        elif not fleet.guest.heard(message):
            self._understood(fleet, message)
        fleet.broker.acknowledge(message)

    def _understood(self, fleet: Fleet, message: Message) -> None:
        """A message that finds a fault of ours must not come again and again."""
        try:
            fleet.desk.receive(message)
        except StokerError:
            raise  # it could not be kept
        except Exception:
            fleet.desk.forged += 1
            _log.exception("fault while a message was read")

    def _give_up_fetches(self, fleet: Fleet) -> None:
        now = fleet.monotonic_s()
        over = [topic for topic, (_found, until) in self._fetches.items() if now >= until]
        for topic in over:
            self._fetches.pop(topic)[0].set_result(b"")
        if over:
            self._watch()

    def _watch(self) -> None:
        fleet = self._fleet
        if fleet is not None:
            static = (*fleet.desk.subscriptions(), *fleet.guest.subscriptions())
            fleet.link.watch((*static, *self._fetches))

    def _troubled(self, error: Exception) -> None:
        """A disk that fails, or a fault of ours: hang up, so that nothing is acknowledged by
        mistake, and try again in a while.
        """
        text = getattr(error, "message", "") or f"{type(error).__name__}: {error}"
        fleet = self._fleet
        if fleet is not None:
            fleet.broker.drop()
            fleet.link.troubled(text)
        now = fleet.monotonic_s() if fleet is not None else 0.0
        if fleet is None or now - self._trouble_s > TIDY_S / 60:
            self._trouble_s = now
            _log.error("the fleet client is in trouble: %s", text)
        self._tell(replace(self._snapshot, state="waiting", problem_code="storage",
                           problem_text=text))  # fmt: skip
        self._stop.wait(TROUBLE_S)

    def _publish(self, fleet: Fleet) -> None:
        end = self._certificate.expires
        base = FleetSnapshot(device=fleet.device, broker=fleet.address, certificate_expires=end)
        found = fleet.link.snapshot(fleet.desk.snapshot(base))
        found = replace(found, warnings=(*found.warnings, *self._certificate.warnings()))
        if found != self._snapshot:
            self._tell(found)

    def _adopted(self, fleet: Fleet) -> None:
        self._look_at_certificate(fleet)
        fleet.link.hurry()

    def _look_at_certificate(self, fleet: Fleet) -> None:
        self._certificate.end_s = fleet.broker.certificate_expires()

    def _tell(self, found: FleetSnapshot) -> None:
        self._snapshot = found
        for listener in self._listeners:
            listener.changed(found)
