"""The operator's tool and the device's own certificate, with a real broker and a real stokerd."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from gi.repository import GLib
from tests.fakes.fleet_operator import FleetOperator
from tests.fakes.tls_world import TlsWorld
from tests.fakes.update_bundles import Operator, environment, ota
from tests.integration import broker_rig
from tests.integration.broker_rig import Broker, access
from tests.integration.fleet_rig import DEVICE, Rig, fleet
from tests.integration.stokerd_rig import until

from stoker.api import contract
from stoker.errors import StokerError
from stoker.tour.private_bus import PrivateBus
from stoker_ota.core import fleet_orders
from stoker_ota.services import authority, device_ca

pytestmark = [pytest.mark.bus]


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> Operator:
    return Operator.found(tmp_path_factory.mktemp("maker"))


@pytest.fixture
def rig(
    private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str], secure: Broker,
    maker: Operator,
) -> Iterator[Rig]:  # fmt: skip
    operator = FleetOperator.of_pki(maker.home / "pki")
    with fleet(private_bus, tmp_path / "device", child_env, secure, operator=operator) as running:
        yield running


def tool(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stoker_ota.cli.main", *words]
    return subprocess.run(
        command,
        cwd=home,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def ctl(rig: Rig, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stoker.cli.main", "--bus", rig.daemon.bus.address, *words]
    return subprocess.run(
        command, env=rig.env, capture_output=True, text=True, check=False, timeout=60
    )


def signed(world: TlsWorld, request: bytes) -> bytes:
    """By the authority that the broker knows."""
    certificate = x509.load_pem_x509_certificates(world.ca.read_bytes())[0]
    holder = authority.Holder("ca", world._key, certificate)
    return device_ca.sign(request, DEVICE, holder, datetime.now(UTC), 1)


def test_a_command_line_reaches_the_device_and_brings_its_answer(rig: Rig, maker: Operator) -> None:
    done = tool(
        maker.home, "command", "config.get", 'keys=["thermal.wall_c"]', "--device", DEVICE,
        *access(rig.broker),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "succeeded" in done.stdout
    assert '"thermal.wall_c": 0.0' in done.stdout
    refused = tool(
        maker.home, "command", "cancel", "id=nobody", "--device", DEVICE, *access(rig.broker)
    )
    assert refused.returncode == 69
    assert "rejected" in refused.stdout
    shown = ctl(rig, "fleet", "commands")
    assert "config.get" in shown.stdout


def test_nobody_answers_for_a_device_that_is_not_there(maker: Operator, secure: Broker) -> None:
    done = tool(
        maker.home, "command", "report.state", "--device", "dev-9", "--wait-s", "1",
        *access(secure),
    )  # fmt: skip
    assert done.returncode == 69
    assert "nobody has answered" in done.stderr


def test_desired_states_count_on_from_what_the_broker_has(
    rig: Rig, maker: Operator, tmp_path: Path
) -> None:
    file = tmp_path / "state.toml"
    file.write_text(
        f'audience = "d:{DEVICE}"\ngroups = ["blue"]\n[policy]\n"inference.max_tokens" = 33\n'
    )
    for version in (1, 2):
        said = ota("desired", str(file), *access(rig.broker), home=maker.home)
        assert said["version"] == version
    until(lambda: rig.facts()["Desired"] == {f"d:{DEVICE}": 2}, "version 2")
    group = tmp_path / "group.toml"
    group.write_text('audience = "g:blue"\n[runtime]\npaused = true\n')
    ota("desired", str(group), *access(rig.broker), home=maker.home)
    until(lambda: rig.ear.last("state").get("paused") is True, "the pause")
    done = tool(
        maker.home, "command", "config.get", 'keys=["inference.max_tokens"]', "--group", "blue",
        "--wait-s", "5", "--json", *access(rig.broker),
    )  # fmt: skip
    found = json.loads(done.stdout)["devices"][DEVICE]["data"]["settings"]
    assert found["inference.max_tokens"] == 33
    group.write_text('audience = "g:blue"\nversion = 1\n')
    back = tool(maker.home, "desired", str(group), *access(rig.broker))
    assert "cannot go back to version 1" in back.stderr


def test_a_broker_and_a_folder_that_lost_their_memory_do_not_set_a_device_back(
    rig: Rig, maker: Operator, tmp_path: Path
) -> None:
    file = tmp_path / "state.toml"
    file.write_text(f'audience = "d:{DEVICE}"\n')

    def publish() -> int:
        said = ota("desired", str(file), *access(rig.broker), home=maker.home)
        version = int(str(said["version"]))
        until(lambda: rig.facts()["Desired"] == {f"d:{DEVICE}": version}, f"{version}")
        return version

    def lose_all() -> None:
        """What the broker retained is gone."""
        session = rig.facts()["Session"]
        rig.broker.restart_hard()
        until(lambda: rig.facts()["Session"] > session, "another session", 60.0)
        rig.online(60.0)

    first = publish()
    lose_all()
    assert publish() == first + 1  # the folder knows
    for path in (maker.home / "pki").glob("campaigns.db*"):
        path.unlink()
    lose_all()
    assert publish() == first + 2  # the device knows


def test_a_renewed_certificate_is_proven_before_it_is_used(rig: Rig, tmp_path: Path) -> None:
    broker = rig.broker
    assert broker.tls is not None
    before = broker.tls.folder / f"{DEVICE}.pem"  # the file in [fleet]
    old = before.read_bytes()
    asked = ctl(rig, "fleet", "enroll")
    assert asked.stdout.startswith("-----BEGIN CERTIFICATE REQUEST-----"), asked.stderr
    # one that nobody knows is refused, and the old one stays
    stranger = TlsWorld(tmp_path / "other").device(DEVICE)
    wrong = ctl(rig, "fleet", "adopt", str(stranger.certificate))
    assert wrong.returncode == 77, wrong.stderr
    assert before.read_bytes() == old
    good = tmp_path / "good.pem"
    good.write_bytes(signed(broker.tls, asked.stdout.encode()))
    done = ctl(rig, "fleet", "adopt", str(good))
    assert done.returncode == 0, done.stderr
    assert before.read_bytes() == good.read_bytes()
    rig.restart()
    assert rig.do("report.state")["state"] == "succeeded"


def test_enrolling_signs_only_what_was_asked_for(maker: Operator, rig: Rig, tmp_path: Path) -> None:
    request = tmp_path / "dev.csr"
    request.write_text(ctl(rig, "fleet", "enroll").stdout)
    made = tool(
        maker.home, "device", "enroll", str(request), "--device", DEVICE, "-o",
        str(tmp_path / "dev.pem"),
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    assert "pattern write stoker/1/d/%u/result" in made.stdout
    assert "${username}/#" in made.stdout
    other = tool(
        maker.home, "device", "enroll", str(request), "--device", "dev-2", "-o",
        str(tmp_path / "dev-2.pem"),
    )  # fmt: skip
    assert "the request is for dev-1" in other.stderr
    # proof before swap: this broker does not know that authority
    refused = ctl(rig, "fleet", "adopt", str(tmp_path / "dev.pem"))
    assert refused.returncode == 69, refused.stderr
    assert rig.do("report.state")["state"] == "succeeded"


def test_the_printed_rules_are_those_that_the_tests_use() -> None:
    printed = set(fleet_orders.mosquitto_rights("stoker/1").split("\n"))
    used = {line for line in broker_rig.ACL.split("\n") if line.startswith("pattern")}
    assert printed == used


def test_strangers_may_look_and_not_touch(rig: Rig) -> None:
    assert rig.facts()["State"] == "online"
    with pytest.raises(StokerError):
        rig.daemon.client.call(contract.FLEET, "Adopt", GLib.Variant("(s)", ("nonsense",)))
