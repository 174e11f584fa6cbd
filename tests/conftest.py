"""Fixtures for every kind of test: where the repository is, and a private D-Bus."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from stoker.tour.private_bus import PrivateBus

# A shell starts what it puts in the background with these ignored, and children inherit that: no
# test of Ctrl-C or of a reload could pass.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Speed is a matter of benchmarks: a busy machine must not fail a property.
settings.register_profile("stoker", deadline=None)
settings.load_profile("stoker")

ROOT = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--broker", choices=("mosquitto", "aedes"), default="mosquitto",
        help="the broker of the fleet's tests (aedes: make second-broker)",
    )  # fmt: skip


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--broker") != "aedes":
        return
    from tests.integration import broker_rig
    from tests.second_broker import aedes_broker  # neither is needed by other runs

    broker_rig.make = aedes_broker.Aedes
    for item in items:
        reason = aedes_broker.CANNOT.get(getattr(item, "originalname", item.name))
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=f"aedes: {reason}"))


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def child_env() -> dict[str, str]:
    """Environment in which a child process finds the packages and the fakes."""
    paths = os.pathsep.join(str(ROOT / part) for part in ("daemon", "ota", "."))
    return {**os.environ, "PYTHONPATH": paths, "PYTHONUNBUFFERED": "1"}


@pytest.fixture(scope="session")
def session_bus() -> Iterator[PrivateBus]:
    """One open private bus for the whole run; give your test's own objects their own bus
    (``private_bus``) if it stops, floods or fills it."""
    yield from _bus()


@pytest.fixture
def private_bus() -> Iterator[PrivateBus]:
    """An open private bus of the test's own."""
    yield from _bus()


def _bus() -> Iterator[PrivateBus]:
    if shutil.which("dbus-daemon") is None:
        pytest.skip("dbus-daemon is not installed")
    with PrivateBus() as bus:
        yield bus
