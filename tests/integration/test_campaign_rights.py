"""A campaign through Mosquitto as docs/fleet.md sets it up: TLS, a certificate and rights for each.

Every certificate, also the operator's, is one that ``stoker-ota device enroll`` has signed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from tests.fakes.mqtt_peer import Peer
from tests.fakes.tls_world import Pair, TlsWorld
from tests.fakes.update_bundles import Operator, ota
from tests.integration import broker_rig
from tests.integration.broker_rig import OPERATOR, Broker
from tests.integration.campaign_rig import Doors, Fleet, fleet, start
from tests.integration.stokerd_rig import until

from stoker_ota.core import campaign_share

COUNT = 8
STEP = 50.0


@dataclass
class Documented(Broker):
    """Its configuration is the page's, at other places."""

    page: str = ""

    def _config(self) -> str:
        rules, rights = re.findall(
            r"```conf\n(.*?)```", self.page.split("\n## Mosquitto\n")[1], re.S
        )
        (self.folder / "acl").write_text(rights)
        here = str(rules).replace("/etc/mosquitto/", f"{self.folder}/")
        return here.replace("listener 8883", f"user root\nlistener {self.port} 127.0.0.1")


@dataclass
class Enrolled:
    """The fleet's certificates: keys are made here, as devices do it."""

    maker: Operator

    @property
    def authority(self) -> Path:
        return self.maker.home / "pki/certificates/devices.pem"

    def pair(self, name: str) -> Pair:
        found = Pair(self.maker.home / f"{name}.pem", self.maker.home / f"{name}.key")
        if found.key.exists():
            return found
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        asked = x509.CertificateSigningRequestBuilder().subject_name(subject)
        request = self.maker.home / f"{name}.csr"
        request.write_bytes(asked.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))
        found.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        ota("device", "enroll", request.name, "--device", name, "-o", found.certificate.name,
            home=self.maker.home)  # fmt: skip
        return found


@pytest.fixture
def enrolled(tmp_path: Path) -> Enrolled:
    return Enrolled(Operator.found(tmp_path / "maker"))


@pytest.fixture
def doors(tmp_path: Path, root: Path, enrolled: Enrolled) -> Iterator[Doors]:
    mine = enrolled.pair(OPERATOR)
    broker = Documented(tmp_path / "broker", page=(root / "docs/fleet.md").read_text())
    world = TlsWorld(tmp_path / "tls")  # of the broker's own name: another authority
    server = world.server()
    for name, file in (("server.pem", server.certificate), ("server.key", server.key),
                       ("devices.pem", enrolled.authority)):  # fmt: skip
        (broker.folder / name).write_bytes(file.read_bytes())
    address, ca = f"mqtts://localhost:{broker.port}", str(world.ca)
    files = (ca, str(mine.certificate), str(mine.key))
    with broker_rig.started(broker):
        yield Doors(
            address, access(address, ca, mine),
            lambda: Peer(("localhost", broker.port), tls=files), ca, enrolled.pair,
        )  # fmt: skip


def access(address: str, ca: str, pair: Pair) -> tuple[str, ...]:
    return ("--broker", address, "--ca", ca, "--certificate", str(pair.certificate),
            "--key", str(pair.key))  # fmt: skip


def test_a_campaign_goes_from_start_to_done_where_everybody_has_only_its_own_rights(
    doors: Doors, enrolled: Enrolled, tmp_path: Path
) -> None:
    names = [f"dev-{number}" for number in range(COUNT)]
    late = [name for name in names if not campaign_share.reached("c-1", STEP, name)]
    bad = late[0]
    with fleet(doors, enrolled.maker, tmp_path, {bad: "bad-hash"}, COUNT) as made:
        made.ok("start", *start("--steps", "50,100", "--success", "75", "--abort", "25"))
        thief = Fleet(
            Doors(doors.address, access(doors.address, doors.ca, enrolled.pair(names[0])),
                  doors.peer), enrolled.maker, tmp_path / "thief",
        )  # fmt: skip
        refused = thief.tool("abort", "c-1")
        assert refused.returncode == 69, refused.stdout + refused.stderr
        assert "access rules" in refused.stderr
        done = made.tool("watch", "c-1")
        assert done.returncode == 0, done.stdout + done.stderr
        right = dict.fromkeys(names, "succeeded") | {bad: "failed"}
        until(lambda: made.standings() == right, f"every device's end: {made.standings()}", 60)
        report = made.ok("report", "c-1")
        assert (report["phase"], report["devices"][bad]["code"]) == ("succeeded", "chunk-hash")
        assert {name: device.engine.installed for name, device in made.devices.items()} == {
            name: 1 if name == bad else 2 for name in names
        }
