"""The fleet against a broker that is not mosquitto: an update over it. ``make second-broker``.

The same run puts the hostile list of tests/integration to it (``--broker aedes``).
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.fleet_operator import FleetOperator
from tests.fakes.update_bundles import Operator, ota
from tests.integration import broker_rig, update_rig
from tests.integration.fleet_rig import DEVICE, Rig, fleet
from tests.integration.stokerd_rig import until
from tests.second_broker.aedes_broker import Aedes

from stoker.tour.private_bus import PrivateBus

SIZE = 1 << 18


@pytest.fixture
def maker(tmp_path: Path) -> Operator:
    made = Operator.found(tmp_path / "maker")
    content = random.Random(1).randbytes(SIZE)
    (made.home / "v1").write_bytes(content)
    (made.home / "v2").write_bytes(content[: SIZE // 2] + random.Random(2).randbytes(SIZE // 2))
    made.bundle(1, made.home / "v1", made.home / "v2")
    return made


@pytest.fixture
def rig(
    private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str], maker: Operator
) -> Iterator[Rig]:
    extra = f'[models.chat]\npath = "{maker.home / "v1"}"\n[models]\ndefault = "chat"\n'
    with (
        broker_rig.started(Aedes(tmp_path / "broker")) as broker,
        fleet(
            private_bus, tmp_path / "device", child_env, broker, extra=extra,
            operator=FleetOperator.of_pki(maker.home / "pki"),
            updates='sources = ["mqtt:"]\nretry_s = 0.5\n',
        ) as running,
    ):  # fmt: skip
        yield running


def test_an_update_comes_over_another_broker(rig: Rig, maker: Operator) -> None:
    assert rig.facts()["Protocol"] == 4
    assert rig.do("report.diagnostics")["state"] == "succeeded"
    wish = rig.operator.desired(f"d:{DEVICE}", {"policy": {"inference.max_tokens": 33}})
    rig.ear.say("desired", wish, retain=True)
    until(lambda: rig.facts()["Desired"] == {f"d:{DEVICE}": 1}, "the desired state")
    where = ("--broker", f"mqtt://127.0.0.1:{rig.broker.port}")
    said = ota("publish", "bundle-1", *where, home=maker.home)
    assert said["documents"] == 2, json.dumps(said)
    end = rig.do("update.install", {"deployment": "chat"})
    assert end["state"] == "succeeded", end
    served = Path(update_rig.served_path(rig.daemon)).read_bytes()
    assert served == (maker.home / "v2").read_bytes()
