"""The fleet client as the agent's wiring sees it: a service, or the door that says there is none.

Decides nothing. What it is made of is wired in ``fleet_wiring``, which is imported when a
broker is configured: paho and cryptography cost memory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stoker.api.bus import post
from stoker.api.managing import hand_on
from stoker.config.schema import Config
from stoker.core.measures import Counted
from stoker.drivers.device_facts import DeviceIdentity
from stoker.drivers.state_file import JsonStateFile
from stoker.errors import ConfigInvalid
from stoker.installed import Installed
from stoker.ports.updates import UpdateDoor
from stoker.services.inference import InferenceService
from stoker.services.no_fleet import NoFleet
from stoker.services.thermal import ThermalService

if TYPE_CHECKING:
    from stoker.services.fleet import FleetService

POLICY: Final = "fleet-policy.json"


def build_fleet(
    installed: Installed,
    inference: InferenceService,
    thermal: ThermalService,
    updates: UpdateDoor,
    reload: Callable[[], Future[tuple[str, ...]]],
    board: str,
    counted: Callable[[], Counted],
) -> FleetService | NoFleet:
    """``reload`` lives on the main loop. ConfigInvalid: the device's id cannot be in a topic."""
    config = installed.config
    if not config.fleet.broker:
        return NoFleet()
    from stoker import fleet_wiring
    from stoker.drivers.log_ring import LogRing
    from stoker.services.fleet import FleetService
    from stoker_ota.core.topics import LEVEL

    device = DeviceIdentity(lambda: installed.config.device).device_id()
    if not LEVEL.fullmatch(device):
        raise ConfigInvalid(
            f"cannot use {device!r} in topics: letters, digits, dashes and lines only",
            hint="set id in [device]",
            details={"path": "device.id"},
        )
    around = fleet_wiring.Surrounding(
        installed,
        inference,
        thermal,
        updates,
        hold=lambda held: inference.hold(held, "paused by its fleet", "fleet"),
        reload=partial(_on_main_loop, reload),
        board=board,
        counted=counted,
    )
    ring = LogRing()
    logging.getLogger().addHandler(ring)
    build = partial(fleet_wiring.build, around, device, ring)
    return FleetService(build, device, config.fleet.broker)


def policy_tables(config: Config) -> tuple[dict[str, object], dict[str, object]]:
    """What the fleet has set, as configuration files would have it: before those of the device,
    and after them.
    """
    from stoker.services import fleet_policy

    return fleet_policy.tables(JsonStateFile(Path(config.daemon.state_dir) / POLICY))


def _on_main_loop(act: Callable[[], Future[tuple[str, ...]]]) -> Future[tuple[str, ...]]:
    """For what lives there; any other thread."""
    outcome: Future[tuple[str, ...]] = Future()
    post(lambda: act().add_done_callback(lambda done: hand_on(done, outcome)))
    return outcome
