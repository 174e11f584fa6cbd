"""Wiring of what is counted: the device's past, and the door for scrapers.

Loads prometheus-client only when a scraper is expected.
"""

from __future__ import annotations

import time
from pathlib import Path

from stoker.config.schema import Config
from stoker.drivers.device_facts import DeviceIdentity
from stoker.drivers.history_store import SqliteHistoryStore
from stoker.errors import Dependency
from stoker.ports.doors import AgentDoor, InferenceDoor, ThermalDoor
from stoker.ports.fleet import FleetDoor
from stoker.ports.system import Part
from stoker.ports.updates import UpdateDoor
from stoker.services.history import HistoryService
from stoker.services.measures import Measures


def build_history(
    config: Config,
    measures: Measures,
    inference: InferenceDoor,
    thermal: ThermalDoor,
    updates: UpdateDoor,
) -> HistoryService:
    """Listens from now on; opens its file when it is started."""
    store = SqliteHistoryStore(Path(config.daemon.state_dir) / "history.db")
    history = HistoryService(config.history, store, measures, time.time)
    history.listen_to(inference, thermal, updates)
    return history


def build_metrics(
    config: Config,
    measures: Measures,
    inference: InferenceDoor,
    thermal: ThermalDoor,
    updates: UpdateDoor,
    agent: AgentDoor,
    fleet: FleetDoor,
) -> tuple[Part, ...]:
    """The scraper's door, or nothing. Raises Unavailable, Dependency."""
    if not config.metrics.listen:
        return ()
    try:
        from stoker.api.metrics import Collector, Looks
        from stoker.api.metrics_server import MetricsServer
    except ImportError as error:
        raise Dependency(
            f"cannot serve metrics: {error}",
            hint='install python3-prometheus-client, or set [metrics] listen to ""',
        ) from error
    from stoker.config.addresses import parse_address

    looks = Looks(
        counted=measures.counted,
        inference=inference.snapshot,
        thermal=thermal.snapshot,
        updates=updates.snapshot,
        fleet=fleet.snapshot,
        cpu_share=agent.cpu_share,
        uptime_s=agent.uptime_s,
    )
    device = DeviceIdentity(lambda: config.device).device_id()
    labels = {"device": device, "region": config.device.region}
    return (MetricsServer(parse_address(config.metrics.listen), Collector(looks, labels)),)
