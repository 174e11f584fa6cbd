"""A fleet updates a device: by command, by desired state, over cuts; and takes it back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.fleet_operator import FleetOperator
from tests.fakes.update_bundles import Operator
from tests.integration import broker_rig, update_rig
from tests.integration.fleet_rig import DEVICE, Rig, fleet
from tests.integration.stokerd_rig import until

from stoker.tour.private_bus import PrivateBus

pytestmark = [pytest.mark.bus]
SIZE = 1 << 20


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> Operator:
    """Bundle 1 leads from v1 to v2, bundle 2 to v3."""
    made = Operator.found(tmp_path_factory.mktemp("maker"))
    v1, v2, v3 = update_rig.three_versions(made.home, SIZE)
    made.bundle(1, v1, v2)
    made.bundle(2, v2, v3)
    return made


@pytest.fixture
def rig(
    private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str], maker: Operator
) -> Iterator[Rig]:
    operator = FleetOperator.of_pki(maker.home / "pki")
    extra = f'[models.chat]\npath = "{maker.home / "v1"}"\n[models]\ndefault = "chat"\n'
    source = tmp_path / "source"
    source.symlink_to(maker.home / "bundle-1")
    with (
        broker_rig.started(broker_rig.plain(tmp_path / "broker")) as broker,
        fleet(
            private_bus, tmp_path / "device", child_env, broker, operator=operator, extra=extra,
            updates=f'sources = ["{source}"]\nretry_s = 0.5\n',
        ) as running,
    ):  # fmt: skip
        yield running


def test_an_update_is_found_installed_and_taken_back(rig: Rig) -> None:
    found = rig.do("update.check")
    assert [item["state"] for item in found["data"]["deployments"]] == ["new"]
    end = rig.do("update.install", {"deployment": "chat"})
    assert end["state"] == "succeeded", end
    assert end["data"] == {"deployment": "chat", "version": 1}
    assert "/ota/objects/" in update_rig.served_path(rig.daemon)
    again = rig.do("update.install", {"deployment": "chat", "version": 1})
    assert again["state"] == "succeeded"
    back = rig.do("update.rollback")
    assert back["data"] == {"current": 0}
    assert update_rig.served_path(rig.daemon).endswith("/v1")


def test_an_update_that_no_source_has_is_rejected(rig: Rig) -> None:
    end = rig.do("update.install", {"deployment": "chat", "version": 7})
    assert (end["state"], end["code"]) == ("rejected", "not-found")


def test_a_desired_deployment_is_installed_once(rig: Rig) -> None:
    wish = rig.operator.desired(f"d:{DEVICE}", {"update": {"deployment": "chat", "version": 1}})
    rig.ear.say("desired", wish, retain=True)
    until(lambda: update_rig.facts(rig.daemon)["Current"] == 1, "the update", 60.0)
    done = until(lambda: [r for r in rig.ear.results() if r["state"] == "succeeded"], "a result")
    assert done[0]["command"] == "update.install"
    again = rig.operator.desired(f"d:{DEVICE}", {"update": {"deployment": "chat", "version": 1}})
    rig.ear.say("desired", again, retain=True)
    assert rig.quiet() == []
    assert rig.ear.last("state")["desired"] == {f"d:{DEVICE}": 2}


def test_a_cut_in_the_middle_of_an_installation_ends_it_once(rig: Rig) -> None:
    identity, payload = rig.operator.command(DEVICE, "update.install", {"deployment": "chat"})
    rig.ear.say("cmd", payload)
    until(lambda: update_rig.facts(rig.daemon)["State"] != "idle", "the work")
    rig.kill()
    end = rig.ear.end(identity, 60.0)
    assert end["state"] == "succeeded", end
    assert update_rig.facts(rig.daemon)["Current"] == 1
    what = [item["what"] for item in update_rig.history(rig.daemon)]
    assert what.count("committed") == 1
    rig.ear.say("cmd", payload)
    until(lambda: rig.ear.results(identity)[-1]["number"] == end["number"], "the same answer")


def test_a_return_is_not_undone_by_a_cut(rig: Rig) -> None:
    rig.do("update.install", {"deployment": "chat"})
    identity, payload = rig.operator.command(DEVICE, "update.rollback")
    rig.ear.say("cmd", payload)
    until(lambda: rig.ear.results(identity), "the begin")
    rig.kill()
    assert rig.ear.end(identity, 60.0)["state"] == "succeeded"
    assert update_rig.facts(rig.daemon)["Current"] == 0
