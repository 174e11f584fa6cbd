"""What failures on the way to a broker are called, and what an odd file does."""

from __future__ import annotations

import logging
import socket
import ssl
from pathlib import Path

import pytest

from stoker.drivers import mqtt_dial
from stoker.drivers.log_ring import LogRing
from stoker.drivers.mqtt_dial import BrokerAccess, cause_of
from stoker.events.broker import BrokerAddress
from stoker.events.fleet import Login

TLS = BrokerAddress("localhost", 8883, tls=True)
LOGIN = Login("dev-1", 5, ("t", b""))


def verification(code: int) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError("no")
    error.verify_code, error.verify_message = code, "no"
    return error


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (socket.gaierror(-2, "unknown"), "dns"),
        (ConnectionRefusedError(111, "refused"), "network"),
        (TimeoutError("timed out"), "network"),
        (FileNotFoundError(2, "no such file"), "network"),
        (verification(9), "clock"),
        (verification(10), "clock"),
        (verification(20), "tls"),
        (ssl.SSLError(1, "alert"), "tls"),
        (ValueError("a file"), "tls"),
        (RuntimeError("ours"), "fault"),
    ],
)
def test_each_failure_has_its_name(error: Exception, cause: str) -> None:
    found, text = cause_of(error)
    assert found == cause
    assert text


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nothing\.pem"):
        mqtt_dial.tls_context(BrokerAccess(TLS, certificate=str(tmp_path / "nothing.pem")))
    access = BrokerAccess(BrokerAddress("h", 1), username="u", password_file=str(tmp_path / "no"))
    with pytest.raises(ValueError, match="/no"):
        mqtt_dial.make_client(access, LOGIN)
    assert mqtt_dial.certificate_end(str(tmp_path / "nothing.pem")) == 0.0
    (tmp_path / "odd.pem").write_bytes(b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----")
    assert mqtt_dial.certificate_end(str(tmp_path / "odd.pem")) == 0.0


def test_a_fault_in_the_library_is_told_and_ends_no_thread_of_ours() -> None:
    client = mqtt_dial.make_client(BrokerAccess(BrokerAddress("h", 1)), LOGIN)
    told: list[Exception] = []
    client.broken = told.append

    def explode(*_: object, **__: object) -> None:
        raise RuntimeError("in the library")

    client.loop_forever = explode  # type: ignore[method-assign,assignment]
    client._thread_main()
    assert [str(error) for error in told] == ["in the library"]


def test_the_log_ring_keeps_the_last_lines_within_its_bytes() -> None:
    ring = LogRing(max_bytes=500)
    for number in range(100):
        ring.emit(logging.makeLogRecord({"msg": f"line {number}", "levelname": "INFO"}))
    lines = ring.last(3).splitlines()
    assert [line.rsplit(" ", 1)[1] for line in lines] == ["97", "98", "99"]
    assert len(ring.last(1000)) <= 600
