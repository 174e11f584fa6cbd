"""A campaign under way when the fleet's key is revoked: the tool and the devices go on."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fakes.update_bundles import Operator, ota
from tests.integration import broker_rig
from tests.integration.broker_rig import ROOT, peer
from tests.integration.campaign_rig import Doors, fleet, start
from tests.integration.stokerd_rig import until

from stoker_ota.core import campaign_share

COUNT = 6


@pytest.fixture
def maker(tmp_path: Path) -> Operator:
    return Operator.found(tmp_path / "maker")


def test_a_campaign_that_an_old_key_began_is_ended_with_the_new_one(
    maker: Operator, tmp_path: Path
) -> None:
    with broker_rig.started(broker_rig.plain(tmp_path / "broker")) as broker:
        doors = Doors.of(broker)
        with fleet(doors, maker, tmp_path, {}, COUNT) as made:
            made.ok("start", *start("--steps", "50,100"))
            first = {n for n in made.devices if campaign_share.reached("c-1", 50, n)}
            until(lambda: all(made.devices[n].engine.installed == 2 for n in first), "step 1")
            ota("trust", "rotate", "fleet", "--revoke", home=maker.home)
            trust = (maker.home / "pki/trust/2.json").read_bytes()
            with peer(broker) as other:
                assert other.publish(f"{ROOT}/trust/2", trust) == "Success"
            told = ota(
                "command", "trust.refresh", "--group", "blue", "--wait-s", "15", *doors.access,
                home=maker.home,
            )  # fmt: skip
            assert len(told["devices"]) == COUNT  # type: ignore[arg-type]
            assert made.ok("report", "c-1")["phase"] in ("running", "waiting")
            assert made.ok("pause", "c-1")["phase"] == "paused"
            assert made.ok("resume", "c-1")["phase"] == "running"
            done = made.tool("watch", "c-1")
            assert done.returncode == 0, done.stdout + done.stderr
            until(lambda: all(d.engine.installed == 2 for d in made.devices.values()), "all", 60)


def test_a_lost_ledger_under_a_new_key_is_told_with_what_to_do(
    maker: Operator, tmp_path: Path
) -> None:
    with (
        broker_rig.started(broker_rig.plain(tmp_path / "broker")) as broker,
        fleet(Doors.of(broker), maker, tmp_path, {}, 1) as made,
    ):
        made.ok("start", *start())
        ota("trust", "rotate", "fleet", "--revoke", home=maker.home)
        for file in tmp_path.glob("campaigns.db*"):
            file.unlink()
        lost = made.tool("watch")
        assert lost.returncode == 64, lost.stdout + lost.stderr
        assert f"cannot find the campaign: {ROOT}/g/blue/desired: " in lost.stderr
        assert "stoker-ota desired" in lost.stderr
