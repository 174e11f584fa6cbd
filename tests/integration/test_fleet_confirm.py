"""A fleet's word on updates that are under way: the one they wait for, and the one to stop."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.fakes.fleet_operator import FleetOperator
from tests.fakes.update_bundles import Operator
from tests.integration import broker_rig, update_rig
from tests.integration.fleet_rig import DEVICE, Rig, fleet
from tests.integration.stokerd_rig import until

from stoker.errors import NotFound
from stoker.tour.private_bus import PrivateBus

pytestmark = [pytest.mark.bus]
SIZE = 1 << 18


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> Operator:
    """Bundle 1 wants a confirmation, bundle 2 waits for an hour that is not now."""
    made = Operator.found(tmp_path_factory.mktemp("maker"))
    v1, v2, v3 = update_rig.three_versions(made.home, SIZE)
    made.bundle(1, v1, v2, '[health]\nconfirm = "dbus"\n')
    hour, far = (datetime.now().astimezone().hour + 12) % 24, datetime.now(UTC) + timedelta(days=9)
    made.bundle(
        2, v1, v3,
        f"[window]\nfrom_hour = {hour}\nto_hour = {(hour + 1) % 24}\n"
        f'deadline = "{far:%Y-%m-%dT%H:%M:%SZ}"\n',
    )  # fmt: skip
    return made


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "source"


@pytest.fixture
def rig(
    private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str], maker: Operator,
    source: Path,
) -> Iterator[Rig]:  # fmt: skip
    operator = FleetOperator.of_pki(maker.home / "pki")
    extra = f'[models.chat]\npath = "{maker.home / "v1"}"\n[models]\ndefault = "chat"\n'
    with (
        broker_rig.started(broker_rig.plain(tmp_path / "broker")) as broker,
        fleet(
            private_bus, tmp_path / "device", child_env, broker, operator=operator, extra=extra,
            updates=f'sources = ["{source}"]\nretry_s = 0.5\n',
        ) as running,
    ):  # fmt: skip
        yield running


def begun(rig: Rig, source: Path, bundle: Path) -> str:
    source.symlink_to(bundle)
    identity, payload = rig.operator.command(DEVICE, "update.install", {"deployment": "chat"})
    rig.ear.say("cmd", payload)
    return identity


def error(rig: Rig) -> str:
    job = update_rig.facts(rig.daemon)["Job"]
    with contextlib.suppress(NotFound):  # it is only about to appear on the bus
        return "" if job == "/" else str(update_rig.look(rig.daemon, job)["Error"][1])
    return ""


def test_a_set_that_waits_for_a_word_gets_it_from_the_fleet(
    rig: Rig, maker: Operator, source: Path
) -> None:
    installing = begun(rig, source, maker.home / "bundle-1")
    until(lambda: "confirm" in error(rig), "the wait", 60.0)
    assert "/ota/objects/" in update_rig.served_path(rig.daemon)
    assert rig.do("update.confirm", {"deployment": "chat"})["state"] == "succeeded"
    assert rig.ear.end(installing, 60.0)["state"] == "succeeded"
    assert update_rig.facts(rig.daemon)["Current"] == 1
    assert "/ota/objects/" in update_rig.served_path(rig.daemon)


def test_an_update_that_waits_for_its_hour_is_canceled_by_the_fleet(
    rig: Rig, maker: Operator, source: Path
) -> None:
    installing = begun(rig, source, maker.home / "bundle-2")
    until(lambda: "it waits for" in error(rig), "the wait", 60.0)
    assert rig.do("cancel", {"id": installing})["state"] == "succeeded"
    assert rig.ear.end(installing, 60.0)["state"] == "canceled"
    until(lambda: update_rig.facts(rig.daemon)["State"] == "idle", "the end")
    assert update_rig.facts(rig.daemon)["Current"] == 0
    assert update_rig.served_path(rig.daemon).endswith("/v1")
