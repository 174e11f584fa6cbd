"""The device's own certificate: proven before it is used, mended after a cut."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from stoker.drivers.device_certificate import DeviceCertificate
from stoker.errors import BadChain, InvalidRequest, Unavailable
from stoker.events.broker import BrokerAddress, parse
from stoker_ota.services import authority, device_ca


class Proof:
    def __init__(self) -> None:
        self.refuses = False
        self.tried: list[tuple[str, str]] = []

    def __call__(self, certificate: str, key: str) -> None:
        self.tried.append((Path(certificate).name, Path(key).name))
        if self.refuses:
            raise Unavailable("cannot use the new certificate: refused")


def make(folder: Path, proof: Proof) -> DeviceCertificate:
    return DeviceCertificate(str(folder / "device.pem"), str(folder / "device.key"), "dev-1", proof)


@pytest.fixture(scope="module")
def ca() -> authority.Holder:
    key = ec.generate_private_key(ec.SECP256R1())
    return device_ca.found("operator", datetime.now(UTC), key)


def signed(ca: authority.Holder, request: str, device: str = "dev-1") -> bytes:
    return device_ca.sign(request.encode(), device, ca, datetime.now(UTC), 10)


def test_the_key_never_leaves_and_is_used_when_the_broker_has_agreed(
    tmp_path: Path, ca: authority.Holder
) -> None:
    proof = Proof()
    own = make(tmp_path, proof)
    request = own.request()
    assert "PRIVATE" not in request
    assert (tmp_path / "device.key.new").stat().st_mode & 0o777 == 0o600
    proof.refuses = True
    with pytest.raises(Unavailable):
        own.adopt(signed(ca, request))
    assert not (tmp_path / "device.pem").exists()
    assert not (tmp_path / "device.pem.new").exists()
    proof.refuses = False
    own.adopt(signed(ca, request))
    assert proof.tried[-1] == ("device.pem.new", "device.key.new")
    assert sorted(item.name for item in tmp_path.iterdir()) == ["device.key", "device.pem"]


def test_a_certificate_for_another_key_or_device_is_refused(
    tmp_path: Path, ca: authority.Holder
) -> None:
    proof = Proof()
    own = make(tmp_path, proof)
    first = own.request()
    own.request()
    with pytest.raises(BadChain, match="made last"):
        own.adopt(signed(ca, first))
    other = DeviceCertificate(str(tmp_path / "x"), str(tmp_path / "y"), "dev-2", proof).request()
    with pytest.raises(BadChain, match="dev-2"):
        own.adopt(signed(ca, other, "dev-2"))
    with pytest.raises(InvalidRequest):
        own.adopt(b"nonsense")
    assert proof.tried == []


def test_a_cut_between_the_renames_is_mended(tmp_path: Path, ca: authority.Holder) -> None:
    own = make(tmp_path, Proof())
    own.adopt(signed(ca, own.request()))
    old = (tmp_path / "device.pem").read_bytes()
    request = own.request()
    (tmp_path / "device.pem.new").write_bytes(signed(ca, request))
    own.mend()  # the key is still the old one: nothing to mend
    assert (tmp_path / "device.pem").read_bytes() == old
    (tmp_path / "device.key.new").replace(tmp_path / "device.key")
    own.mend()
    assert (tmp_path / "device.pem").read_bytes() != old
    assert not (tmp_path / "device.pem.new").exists()


def test_without_a_place_there_is_no_enrolling() -> None:
    with pytest.raises(InvalidRequest, match="no place"):
        DeviceCertificate("", "", "dev-1", Proof()).request()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("mqtts://host", BrokerAddress("host", 8883, tls=True)),
        ("mqtts://host:1", BrokerAddress("host", 1, tls=True)),
        ("mqtt://localhost", BrokerAddress("localhost", 1883)),
        ("mqtt://127.0.0.5:7", BrokerAddress("127.0.0.5", 7)),
        ("mqtt://[::1]", BrokerAddress("::1", 1883)),
        ("unix:/run/m", BrokerAddress(path="/run/m")),
    ],
)
def test_addresses_are_read(text: str, address: BrokerAddress) -> None:
    assert parse(text) == address


@pytest.mark.parametrize(
    "text",
    ["", "host", "http://host", "mqtt://host", "mqtt://10.0.0.1", "mqtts://u:p@host", "unix:m",
     "mqtts://host/path", "mqtts://host:99999", "mqtts://", "unix:/" + "x" * 200],
)  # fmt: skip
def test_addresses_that_would_leak_or_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse(text)
