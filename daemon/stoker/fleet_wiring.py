"""What the fleet client is made of. Part of the wiring; decides nothing.

Imported by ``fleet_parts`` when a broker is configured, and not before.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from stoker.config.changes import flatten
from stoker.core import fleet_outbox, redaction
from stoker.core.fleet_outbox import Caps
from stoker.core.fleet_session import Pace
from stoker.core.home_assistant import Places
from stoker.core.measures import Counted
from stoker.drivers.clock import MonotonicClock
from stoker.drivers.device_facts import DeviceClock, DeviceIdentity
from stoker.drivers.fleet_store import SqliteFleetStore
from stoker.drivers.log_ring import LogRing
from stoker.drivers.mqtt import PahoBroker
from stoker.drivers.mqtt_dial import BrokerAccess
from stoker.drivers.state_file import JsonStateFile
from stoker.events import broker as addresses
from stoker.installed import Installed
from stoker.ports.fleet import Addressee
from stoker.ports.updates import UpdateDoor
from stoker.services import fleet_bundle
from stoker.services.fleet import Fleet, FleetService
from stoker.services.fleet_deeds import CommandDeeds, Services
from stoker.services.fleet_desk import Desk, FleetDesk
from stoker.services.fleet_guest import HomeAssistant, House
from stoker.services.fleet_judge import FleetJudge
from stoker.services.fleet_link import FleetLink, Parts
from stoker.services.fleet_meter import Meter
from stoker.services.fleet_policy import PolicyKeeper
from stoker.services.fleet_reports import Reporter, Sources, Ways
from stoker.services.inference import InferenceService
from stoker.services.side_thread import SideThread
from stoker.services.thermal import ThermalService
from stoker.update_parts import first_trust
from stoker_ota.core.topics import Topics
from stoker_ota.drivers.disk import RealDisk
from stoker_ota.services.store import Store

POLICY: Final = "fleet-policy.json"
_PAGE_BYTES, _SPARE_PAGES = 4096, 2048


@dataclass(frozen=True, slots=True)
class Surrounding:
    """What the fleet client meets in the agent."""

    installed: Installed
    inference: InferenceService
    thermal: ThermalService
    updates: UpdateDoor
    hold: Callable[[bool], None]  # stop answering, until told otherwise
    reload: Callable[[], Future[tuple[str, ...]]]  # any thread
    board: str
    counted: Callable[[], Counted]


def build(around: Surrounding, device: str, ring: LogRing, service: FleetService) -> Fleet:
    """In the fleet thread."""
    return _Wiring(around, device, ring, service).fleet()


class _Wiring:
    def __init__(
        self, around: Surrounding, device: str, ring: LogRing, service: FleetService
    ) -> None:
        config = around.installed.config
        self._around, self._device, self._ring, self._service = around, device, ring, service
        self._config, self._state_dir = config.fleet, Path(config.daemon.state_dir)
        self._topics, self._clock = Topics(config.fleet.root), MonotonicClock().monotonic_s
        self._identity = DeviceIdentity(lambda: around.installed.config.device)
        self._caps = Caps(config.fleet.outbox_bytes, config.fleet.outbox_age_s)
        self._store = self._make_store()
        self._judge = self._make_judge()
        self._broker = self._make_broker()
        self._link = self._make_link()
        self._desk = self._make_desk()
        self._reporter = self._make_reporter()

    def fleet(self) -> Fleet:
        return Fleet(
            self._store, self._broker, self._link, self._desk, self._reporter,
            self._make_guest(), self._topics, self._device, self._config.broker,
            self._around.hold, self._clock,
        )  # fmt: skip

    def _topic(self, *rest: str) -> str:
        return self._topics.device(self._device, *rest)

    def _clock_word(self) -> str:
        return "ok" if self._judge.now().trusted else "uncertain"

    def _settings(self) -> Mapping[str, object]:
        return redaction.settings(flatten(self._around.installed.config))

    def _make_store(self) -> SqliteFleetStore:
        """Twice the outbox, since a deleted page comes back late."""
        pages = 2 * self._config.outbox_bytes // _PAGE_BYTES + _SPARE_PAGES
        twin = JsonStateFile(self._state_dir / "fleet-floors.json")
        return SqliteFleetStore(self._state_dir / "fleet.db", twin, max_pages=pages)

    def _make_judge(self) -> FleetJudge:
        installed = self._around.installed
        installed.root.mkdir(parents=True, exist_ok=True)

        def trust() -> bytes:
            return first_trust(Path(installed.config.updates.trust))

        return FleetJudge(Store(RealDisk(installed.root)), trust, DeviceClock())

    def _make_broker(self) -> PahoBroker:
        config = self._config
        access = BrokerAccess(
            addresses.parse(config.broker), config.ca, config.certificate, config.key,
            config.username, config.password_file, config.keepalive_s,
        )  # fmt: skip
        return PahoBroker(access, self._service.tell)

    def _make_link(self) -> FleetLink:
        parts = Parts(
            self._broker, self._store, self._clock, random.random, self._caps,
            wall_s=time.time, pace=Pace(cap_s=self._config.reconnect_cap_s),
            clock_word=self._clock_word,
        )  # fmt: skip
        return FleetLink(parts, self._device, self._topic("status"))

    def _make_desk(self) -> FleetDesk:
        self._deeds = CommandDeeds(self._make_services())
        return FleetDesk(
            Desk(
                self._store,
                self._judge,
                self._deeds,
                self._topics,
                me=lambda: Addressee(self._device, labels=self._identity.labels()),
                wall_s=time.time,
                monotonic_s=self._clock,
                posted=self._link.look_again,
                groups_changed=self._service.watch,
            )
        )

    def _make_services(self) -> Services:
        around, service = self._around, self._service
        policy = PolicyKeeper(JsonStateFile(self._state_dir / POLICY), around.reload)
        aside = SideThread("fleet-bundle")
        facts = self._facts()
        return Services(
            updates=around.updates,
            inference=around.inference,
            set_policy=policy.set,
            keep_model=policy.keep_model,
            pause=service.pause,
            report=self._report,
            diagnostics=lambda: aside.call(
                lambda: fleet_bundle.diagnostics(facts, self._ring.last, time.time())
            ),
            log=lambda lines: aside.call(lambda: fleet_bundle.log_file(self._ring.last(lines))),
            settings=self._settings,
            fetch=service.fetch,
            trust_topic=self._topics.trust,
            trust_version=self._judge.trust_version,
            cancel=self._cancel,
            upload_topic=lambda transfer, number: self._topic("up", transfer, str(number)),
            upload_room=lambda: fleet_outbox.upload_room(self._store.waiting(), self._caps),
            monotonic_s=self._clock,
        )

    def _report(self) -> None:
        self._reporter.now()

    def _cancel(self, identity: str) -> None:
        self._desk.cancel(identity)

    def _facts(self) -> dict[str, Callable[[], object]]:
        around = self._around
        return {
            "fleet": lambda: _plain(self._service.snapshot()),
            "settings": self._settings,
            "inference": lambda: _plain(around.inference.usage().result(20.0)),
            "thermal": lambda: _plain(around.thermal.snapshot()),
            "update": lambda: _plain(around.updates.snapshot()),
            "updates": lambda: around.updates.history(0, 100).result(20.0),
            "models": lambda: [_plain(it) for it in around.inference.list_models().result(20.0)],
        }

    def _make_guest(self) -> HomeAssistant:
        house = House(
            self._link.retain,
            self._around.updates,
            lambda: self._desk.pending,
            self._desk.consent,
            self._around.inference.restart_runner,
        )
        topic = self._topic
        places = Places(
            topic("status"), topic("state"), topic("telemetry"), topic("ha"), topic("ha", "set")
        )
        config = self._config
        return HomeAssistant(
            house, places, self._device, config.home_assistant, restart=config.restart_button
        )

    def _make_reporter(self) -> Reporter:
        around = self._around
        sources = Sources(
            around.inference,
            around.thermal,
            around.updates,
            self._store.recent,
            self._identity.labels,
            self._desk.snapshot,
            paused=lambda: bool(self._store.note("paused")),
            clock_word=self._clock_word,
            meter=Meter(around.inference, self._clock, around.counted).take,
            commands=self._deeds.names,
            board=around.board,
            device=self._device,
            storage=lambda: self._link.storage,
        )
        ways = Ways(
            partial(self._link.retain, self._topic("state")),
            partial(self._link.whisper, self._topic("telemetry")),
            self._link.post,
            self._topic("telemetry"),
        )
        return Reporter(
            sources,
            ways,
            telemetry_s=self._config.telemetry_s,
            monotonic_s=self._clock,
            wall_s=time.time,
        )


def _plain(value: Any) -> dict[str, object]:
    """A frozen value's fields."""
    return dataclasses.asdict(value)
