"""What is no certificate or request is told in our words, without a library's advice."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from stoker_ota.errors import BadChain, BadDocument
from stoker_ota.services import authority, device_ca

NOW = datetime(2026, 1, 31, tzinfo=UTC)


@pytest.mark.parametrize("data", [b"", b"schema = 1", b"-----BEGIN CERTIFICATE REQUEST-----\n"])
def test_what_is_no_request_and_no_certificate_is_named_so(data: bytes) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    with pytest.raises(BadDocument) as request:
        device_ca.sign(data, "dev-1", device_ca.found("operator", NOW, key), NOW, 10)
    assert str(request.value) == "cannot read the request: it is no certificate request in PEM"
    assert "fleet enroll" in request.value.hint
    pem = authority.key_pem(device_ca.found("operator", NOW, key), b"long enough")
    with pytest.raises(BadChain, match="certificate of release: it is no certificate in PEM"):
        authority.load("release", pem, data, b"long enough")
