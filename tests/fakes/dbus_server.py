"""The real doors over fake services, as a process: ``python -m tests.fakes.dbus_server ADDRESS``.

Says "ready" on stdout once the name is owned; SIGTERM ends it in order; exits with the
error's status if the bus goes away. ``--thermal-step MS`` lets the temperature move.
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import sys
import time

from gi.repository import GLib
from tests.fakes.calibration import FakeCalibration
from tests.fakes.doors import FakeAgent, FakeAuthority, FakeInference, FakeThermal
from tests.fakes.history import FakeHistory
from tests.fakes.sessions import MemorySessionStore
from tests.fakes.update_door import FakeUpdates

from stoker.api import errormap
from stoker.api.bus import Bus
from stoker.api.doors import Services, publish
from stoker.config.schema import Config, InferenceConfig
from stoker.drivers.clock import MonotonicClock
from stoker.errors import StokerError
from stoker.services.no_fleet import NoFleet
from stoker.services.sessions import SessionService
from stoker.units import Bytes, Celsius, Fraction

# What Reload changes to: a request may ask for one token at most.
SMALL = Config(inference=InferenceConfig(max_request_bytes=Bytes(100), max_tokens_limit=1))


def conversations(inference: FakeInference, authority: FakeAuthority) -> SessionService:
    """The real service over a store in memory."""
    sessions = SessionService(
        Config(),
        store=MemorySessionStore(),
        inference=inference,
        authority=authority,
        clock=MonotonicClock(),
        wall_s=time.time,
        new_id=lambda: secrets.token_hex(16),
    )
    sessions.start()
    return sessions


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--keep", type=float, default=60.0)
    parser.add_argument("--thermal-step", type=int, default=0)
    parser.add_argument("--gateway", type=int, default=-1, help="a user that speaks for others")
    return parser.parse_args()


def main() -> int:
    options = _options()
    loop = GLib.MainLoop()
    failed: list[StokerError] = []

    def lost(error: StokerError) -> None:
        failed.append(error)
        loop.quit()

    try:
        bus = Bus.connect(options.address)
        bus.on_lost(lost)
        inference, thermal = FakeInference(options.keep), FakeThermal()
        authority = FakeAuthority(frozenset({0, os.geteuid()}), options.gateway)
        agent = FakeAgent()
        sessions = conversations(inference, authority)
        services = Services(
            inference, thermal, FakeCalibration(), agent, sessions, FakeUpdates(), FakeHistory(),
            NoFleet(),
        )  # fmt: skip
        published = publish(bus, services, authority, Config())
        agent.on_reload = lambda: published.reconfigure(SMALL)
    except StokerError as error:
        sys.stderr.write(f"{error}\n")
        return errormap.exit_status(error)

    def warm() -> bool:
        celsius = thermal.snapshot().temperature_c or 0.0
        left = Fraction(max(0.0, thermal.snapshot().headroom - 0.01))
        thermal.set(temperature_c=Celsius(celsius + 0.1), headroom=left)
        return True

    if options.thermal_step:
        GLib.timeout_add(options.thermal_step, warm)
    GLib.unix_signal_add(GLib.PRIORITY_DEFAULT, signal.SIGTERM, loop.quit)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    loop.run()
    published.close()
    bus.close()
    for fault in failed:
        sys.stderr.write(f"{fault}\n")
    return errormap.exit_status(failed[0]) if failed else 0


if __name__ == "__main__":
    # Forgetting timers of jobs may still run: they hold nothing worth waiting for.
    status = main()
    sys.stdout.flush()
    os._exit(status)
