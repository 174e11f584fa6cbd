"""A new device, from nothing: its key, a certificate by stoker-ota, and the broker lets it in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.fakes.tls_world import TlsWorld
from tests.fakes.update_bundles import Operator, ota
from tests.integration import broker_rig
from tests.integration.stokerd_rig import stokerd, until

from stoker.api import contract
from stoker.tour.private_bus import PrivateBus

pytestmark = [pytest.mark.bus]


def test_a_device_without_a_certificate_gets_one_and_is_let_in(
    private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str]
) -> None:
    maker = Operator.found(tmp_path / "maker")
    world = TlsWorld(tmp_path / "tls")
    broker = broker_rig.by_certificate(tmp_path / "broker", world)
    own = tmp_path / "state/fleet"
    config = (
        f'[device]\nid = "dev-7"\n[updates]\ntrust = "{maker.trust}"\n[fleet]\n'
        f'broker = "mqtts://localhost:{broker.port}"\nca = "{world.ca}"\n'
        f'certificate = "{own}/device.pem"\nkey = "{own}/device.key"\n'
    )
    with stokerd(private_bus, tmp_path, child_env, "--engine=echo", config=config) as daemon:

        def ctl(*words: str) -> str:
            command = [
                sys.executable,
                "-m",
                "stoker.cli.main",
                "--bus",
                private_bus.address,
                *words,
            ]
            done = subprocess.run(
                command, env=child_env, capture_output=True, text=True, check=False, timeout=60
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        (maker.home / "dev-7.csr").write_text(ctl("fleet", "enroll"))
        ota("device", "enroll", "dev-7.csr", "--device", "dev-7", "-o", "dev-7.pem",
            home=maker.home)  # fmt: skip
        # The broker's cafile; the test's broker has one file for both sides.
        devices = (maker.home / "pki/certificates/devices.pem").read_bytes()
        world.ca.write_bytes(world.ca.read_bytes() + devices)
        with broker_rig.started(broker):
            ctl("fleet", "adopt", str(maker.home / "dev-7.pem"))
            until(
                lambda: daemon.client.get(contract.FLEET, "State") == "online",
                f"the device to be there: {ctl('fleet')}", 15.0,
            )  # fmt: skip
    assert (own / "device.key").stat().st_mode & 0o077 == 0
