"""All doors on one bus: ``publish`` wires rooms, callers and signals; ``close`` undoes it.

Objects are there before the name is, so that nobody meets half a service.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gi.repository import GLib

from stoker.api import contract
from stoker.api import fleet as fleet_room
from stoker.api import inference as inference_room
from stoker.api import thermal as thermal_room
from stoker.api import update as update_room
from stoker.api.agent import AgentRoom
from stoker.api.bus import Bus, after, post
from stoker.api.callers import Callers
from stoker.api.changes import Changes, Latest
from stoker.api.exports import Exports, Room, pack_properties
from stoker.api.fleet import FleetRoom
from stoker.api.history import HistoryRoom
from stoker.api.inference import InferenceRoom
from stoker.api.job import Jobs
from stoker.api.realtime import RealTimeRoom
from stoker.api.requests import Limits
from stoker.api.session import Sessions
from stoker.api.thermal import ThermalRoom
from stoker.api.update import UpdateRoom
from stoker.config.schema import Config
from stoker.events.fleet import FleetSnapshot
from stoker.events.operating import Calibration
from stoker.events.thermal import ThermalSnapshot
from stoker.events.updates import UpdateSnapshot
from stoker.ports.doors import (
    AgentDoor,
    InferenceDoor,
    InferenceListener,
    InferenceSnapshot,
    ThermalDoor,
    ThermalListener,
)
from stoker.ports.fleet import FleetDoor, FleetListener
from stoker.ports.history import HistoryDoor
from stoker.ports.operating import CalibrationDoor
from stoker.ports.sessions import SessionDoor
from stoker.ports.system import Authority
from stoker.ports.updates import UpdateDoor, UpdateListener

# Keys and the array's own bytes come on top of the text that max_request_bytes speaks of.
_ENVELOPE_BYTES = 4096


class Published:
    """What is on the bus; ``close`` before the services behind it stop."""

    def __init__(
        self, undo: list[Callable[[], None]], reconfigure: Callable[[Config], None]
    ) -> None:
        self._undo = undo
        self.reconfigure = reconfigure
        """Read requests against these limits and defaults from now on; any thread."""

    def close(self) -> None:
        """Give the name back; open calls get ``unavailable``. Safe to call twice."""
        while self._undo:
            self._undo.pop()()


@dataclass(frozen=True, slots=True)
class Services:
    """What stands behind the doors."""

    inference: InferenceDoor
    thermal: ThermalDoor
    calibration: CalibrationDoor
    agent: AgentDoor
    conversations: SessionDoor
    updates: UpdateDoor
    history: HistoryDoor
    fleet: FleetDoor


def publish(bus: Bus, services: Services, authority: Authority, config: Config) -> Published:
    """Register every object, listen to the services, then own the name.

    Runs in the main thread, before or in the main loop. Raises Unavailable or
    NotAuthorized (the name); then nothing stays published.
    """
    inference, heating = services.inference, (services.thermal, services.calibration)
    limits = Limits.of(config)
    callers = Callers(bus.con, _leavers(inference, services.calibration))
    exports = Exports(bus, callers, limits.max_request_bytes + _ENVELOPE_BYTES)
    jobs = Jobs(bus, exports, inference, authority)
    sessions = Sessions(exports, services.conversations, jobs, config)
    asking = InferenceRoom(inference, jobs, limits, sessions.methods(), authority)

    def reconfigure(fresh: Config) -> None:
        sessions.config = fresh
        asking.limits = Limits.of(fresh)
        exports.max_call_bytes = asking.limits.max_request_bytes + _ENVELOPE_BYTES

    updates = UpdateRoom(exports, services.updates, authority)
    published = Published([callers.close, exports.close, updates.close], reconfigure)
    try:
        for room in (asking, *_rooms(services, authority), updates):
            exports.add(contract.AGENT_PATH, room.door())
        published._undo += _listen(bus, inference, heating, jobs)
        published._undo += _listen_to_updates(bus, services.updates, updates)
        published._undo.append(_listen_to_fleet(bus, services.fleet))
        services.conversations.listen(lambda session: post(lambda: sessions.withdraw(session)))
        bus.own(contract.BUS_NAME)
    except BaseException:
        published.close()
        raise
    published._undo.append(bus.disown)
    return published


def _rooms(services: Services, authority: Authority) -> tuple[Room, ...]:
    """Those that need nothing but a service."""
    return (
        ThermalRoom(services.thermal, services.calibration, authority),
        AgentRoom(services.agent, services.inference, services.thermal, authority),
        RealTimeRoom(services.agent, services.inference),
        HistoryRoom(services.history),
        FleetRoom(services.fleet, authority),
    )


def _leavers(*doors: InferenceDoor | CalibrationDoor) -> Callable[[str], None]:
    """Who left the bus is told to all that do something for a caller."""

    def vanished(name: str) -> None:
        for door in doors:
            door.caller_vanished(name)

    return vanished


def _listen(
    bus: Bus, inference: InferenceDoor, heating: tuple[ThermalDoor, CalibrationDoor], jobs: Jobs
) -> list[Callable[[], None]]:
    """Services tell us from their threads; each word hops to the main loop in order."""
    thermal, calibration = heating

    def hot() -> dict[str, Any]:
        return thermal_room.properties(thermal.snapshot(), calibration.view())

    asked = _changes(bus, contract.INFERENCE, inference_room.properties(inference.snapshot()))
    heat = _changes(bus, contract.THERMAL, hot())

    def offer_inference(snapshot: InferenceSnapshot) -> None:
        asked.offer(inference_room.properties(snapshot))

    def crossed(values: tuple[float, bool, float]) -> None:
        body = GLib.Variant("(dbd)", values)
        bus.emit(contract.AGENT_PATH, contract.THERMAL, "HeadroomCrossed", body)

    headroom = thermal_room.HeadroomSignal(thermal.snapshot().headroom, crossed)

    def offer_heat(snapshot: ThermalSnapshot) -> None:
        headroom.offer(snapshot)
        heat.offer(hot())

    def offer_calibration(_view: Calibration) -> None:
        heat.offer(hot())

    inference.listen(
        InferenceListener(
            job_started=lambda view: post(lambda: jobs.started(view)),
            job_finished=lambda view: post(lambda: jobs.finished(view)),
            job_forgotten=lambda job: post(lambda: jobs.forgotten(job)),
            changed=Latest(post, offer_inference).put,
        )
    )
    thermal.listen(ThermalListener(changed=Latest(post, offer_heat).put))
    calibration.listen(Latest(post, offer_calibration).put)
    return [asked.close, heat.close]


def _listen_to_updates(bus: Bus, service: UpdateDoor, room: UpdateRoom) -> list[Callable[[], None]]:
    def now() -> dict[str, Any]:
        return update_room.properties(service.snapshot(), service.current_job)

    news = _changes(bus, contract.UPDATE, now())

    def offer(_snapshot: UpdateSnapshot) -> None:
        if service.current_job:
            room.publish(service.current_job)  # also one that a restart goes on with
        news.offer(now())

    service.listen(UpdateListener(changed=Latest(post, offer).put))
    if service.current_job:
        room.publish(service.current_job)
    return [news.close]


def _listen_to_fleet(bus: Bus, service: FleetDoor) -> Callable[[], None]:
    news = _changes(bus, contract.FLEET, fleet_room.properties(service.snapshot()))

    def offer(snapshot: FleetSnapshot) -> None:
        news.offer(fleet_room.properties(snapshot))

    service.listen(FleetListener(changed=Latest(post, offer).put))
    return news.close


def _changes(bus: Bus, interface: str, first: dict[str, Any]) -> Changes:
    def send(values: dict[str, Any]) -> None:
        news = pack_properties(interface, values)
        body = GLib.Variant("(sa{sv}as)", (interface, news, ()))
        bus.emit(contract.AGENT_PATH, contract.PROPERTIES, "PropertiesChanged", body)

    return Changes(first, send, time.monotonic, after)
