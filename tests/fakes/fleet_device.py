"""A device of a fleet without a model: the real fleet client, store, judge and MQTT, and an update
engine that only says it has done its work, or does not.

Many of them fit into one process: for campaigns of dozens of devices, and of a thousand.
"""

from __future__ import annotations

import contextlib
import random
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tests.fakes.doors import FakeInference, FakeThermal
from tests.fakes.update_door import FakeUpdates

from stoker.core.fleet_outbox import Caps
from stoker.core.fleet_session import Pace
from stoker.core.measures import Counted
from stoker.drivers.device_facts import DeviceClock
from stoker.drivers.fleet_store import SqliteFleetStore
from stoker.drivers.mqtt import PahoBroker
from stoker.drivers.mqtt_dial import BrokerAccess
from stoker.drivers.state_file import JsonStateFile
from stoker.events import broker as addresses
from stoker.events.updates import DONE, FAILED, Deployment, InstallOptions, UpdateJob
from stoker.ports.fleet import Addressee
from stoker.services.fleet import Fleet, FleetService
from stoker.services.fleet_deeds import CommandDeeds, Services
from stoker.services.fleet_desk import Desk, FleetDesk
from stoker.services.fleet_judge import FleetJudge
from stoker.services.fleet_link import FleetLink, Parts
from stoker.services.fleet_meter import Meter
from stoker.services.fleet_reports import Reporter, Sources, Ways
from stoker.units import Seconds
from stoker_ota.core.topics import Topics
from stoker_ota.drivers.disk import RealDisk
from stoker_ota.services.store import Store

FAULTS = ("drop", "crash", "bad-hash", "slow")
"""The line breaks in the middle; the power goes; the update is damaged; it takes long."""
SLOW = 10.0


class Engine(FakeUpdates):
    """What outlives a crash: which version is installed. ``begun`` hears of each installation."""

    def __init__(self, takes_s: float, fault: str, begun: Callable[[], None]) -> None:
        super().__init__()
        self.installed = 1
        self.listed = Deployment("chat", 2, "new")
        self.installs = 0
        self._takes_s = takes_s * (SLOW if fault == "slow" else 1.0)
        self._fault, self._begun = fault, begun
        self._end_s = 0.0

    def check(self) -> Future[Sequence[Deployment]]:
        state = "installed" if self.installed >= self.listed.version else "new"
        return _done((replace(self.listed, state=state),))

    def install_listed(self, options: InstallOptions) -> Future[UpdateJob]:
        self.installs += 1
        self._end_s = time.monotonic() + self._takes_s
        job = self._begin("install", options.deployment)
        self.current_job = job.id
        self._begun()
        return _done(job)

    def job(self, job: str) -> UpdateJob | None:
        found = self.jobs.get(job)
        if found is not None and not found.over and time.monotonic() >= self._end_s:
            if self._fault == "bad-hash":
                found = replace(found, state=FAILED, error_code="chunk-hash",
                                error_text="cannot install: a chunk is damaged")  # fmt: skip
            else:
                found = replace(found, state=DONE)
                self.installed = found.version
            self.jobs[job], self.current_job = found, ""
        return found

    def power_cut(self) -> None:
        self.jobs.clear()
        self.current_job = ""


@dataclass(frozen=True)
class Home:
    """Where a device lives and whom it believes."""

    broker: str
    folder: Path
    trust: Callable[[], bytes]
    tls: tuple[str, str, str] = ("", "", "")  # paths: authority, certificate, key
    root: str = "stoker/1"


class FleetDevice:
    """``start`` and ``stop`` it. ``fault`` is one of FAULTS, once."""

    def __init__(self, name: str, home: Home, takes_s: float = 0.2, fault: str = "") -> None:
        self.name, self.fault = name, fault
        self._home = home
        home.folder.mkdir(parents=True, exist_ok=True)
        self.engine = Engine(takes_s, fault, self._begun)
        self._inference, self._thermal = FakeInference(), FakeThermal()
        self.cut = False  # the power has gone; somebody must start it again
        self._client: PahoBroker | None = None
        self.service: FleetService

    def start(self) -> None:
        self.cut = False
        self.service = FleetService(self._build, self.name, self._home.broker)
        self.service.start()

    def stop(self) -> None:
        self.service.stop(Seconds(5.0))

    def lose_power(self) -> None:
        """No last word: the broker publishes the will."""
        self.break_line()
        self.service.stop(Seconds(5.0))
        self.engine.power_cut()

    def break_line(self) -> None:
        client = self._client._client if self._client is not None else None
        line: Any = client.socket() if client is not None else None
        if line is not None:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    @property
    def online(self) -> bool:
        return self.service.snapshot().state == "online"

    def _begun(self) -> None:
        """In the fleet thread."""
        if self.fault == "drop":
            self.break_line()
        elif self.fault == "crash" and self.engine.installs == 1:
            self.cut = True

    def _build(self, service: FleetService) -> Fleet:
        return _Wiring(self, self._home, service).fleet()


class _Wiring:
    """As ``stoker.fleet_wiring`` does it, with the fakes."""

    def __init__(self, device: FleetDevice, home: Home, service: FleetService) -> None:
        self._device, self._home, self._service = device, home, service
        self._topics = Topics(home.root)
        twin = JsonStateFile(home.folder / "floors.json")
        self._store = SqliteFleetStore(home.folder / "fleet.db", twin, max_pages=10_000)
        root = home.folder / "updates"
        root.mkdir(exist_ok=True)
        self._judge = FleetJudge(Store(RealDisk(root)), home.trust, DeviceClock())
        self._broker = PahoBroker(
            BrokerAccess(addresses.parse(home.broker), *home.tls), service.tell
        )
        device._client = self._broker
        parts = Parts(
            self._broker, self._store, time.monotonic, random.random, Caps(1 << 20, 86_400.0),
            wall_s=time.time, pace=Pace(cap_s=2.0), clock_word=lambda: "ok",
        )  # fmt: skip
        self._link = FleetLink(parts, device.name, self._topic("status"))
        self._deeds = CommandDeeds(self._services())
        self._desk = FleetDesk(
            Desk(
                self._store, self._judge, self._deeds, self._topics,
                me=lambda: Addressee(device.name), wall_s=time.time, monotonic_s=time.monotonic,
                posted=self._link.look_again, groups_changed=service.watch,
            )
        )  # fmt: skip
        self._reporter = self._make_reporter()

    def fleet(self) -> Fleet:
        quiet: Any = _NoGuest()
        return Fleet(
            self._store, self._broker, self._link, self._desk, self._reporter, quiet,
            self._topics, self._device.name, self._home.broker, lambda _held: None, time.monotonic,
        )  # fmt: skip

    def _topic(self, *rest: str) -> str:
        return self._topics.device(self._device.name, *rest)

    def _services(self) -> Services:
        device = self._device
        return Services(
            updates=device.engine,
            inference=device._inference,
            set_policy=lambda _values: _done(()),
            keep_model=lambda _name: None,
            pause=self._service.pause,
            report=self._report,
            diagnostics=lambda: _done(b""),
            log=lambda _lines: _done(b""),
            settings=dict,
            fetch=self._service.fetch,
            trust_topic=self._topics.trust,
            trust_version=self._judge.trust_version,
            cancel=self._cancel,
            upload_topic=lambda transfer, number: self._topic("up", transfer, str(number)),
            upload_room=lambda: 4 << 20,
            monotonic_s=time.monotonic,
        )

    def _report(self) -> None:
        self._reporter.now()

    def _cancel(self, identity: str) -> None:
        self._desk.cancel(identity)

    def _make_reporter(self) -> Reporter:
        device = self._device
        no_labels: Mapping[str, str] = {}
        sources = Sources(
            device._inference, device._thermal, device.engine, self._store.recent,
            labels=lambda: no_labels, fleet=self._desk.snapshot, paused=lambda: False,
            clock_word=lambda: "ok", meter=Meter(device._inference, time.monotonic, Counted).take,
            commands=self._deeds.names, board="simulated", device=device.name,
        )  # fmt: skip
        ways = Ways(
            partial(self._link.retain, self._topic("state")),
            partial(self._link.whisper, self._topic("telemetry")),
            self._link.post, self._topic("telemetry"),
        )  # fmt: skip
        return Reporter(sources, ways, telemetry_s=0.0, monotonic_s=time.monotonic,
                        wall_s=time.time)  # fmt: skip


class _NoGuest:
    """No Home Assistant."""

    connected = turn = lambda _self: None

    def heard(self, _message: object) -> bool:
        return False

    def subscriptions(self) -> tuple[str, ...]:
        return ()


def _done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future
