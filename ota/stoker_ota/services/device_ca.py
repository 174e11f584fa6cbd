"""Certificates of devices: an authority of their own, and what it signs. Keys stay where they are.

It has nothing to do with who signs updates and commands: a stolen device certificate
opens the broker's door and no more. The clock is given.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from stoker_ota.core import clock
from stoker_ota.core.topics import LEVEL
from stoker_ota.errors import BadDocument, InvalidRequest
from stoker_ota.services import authority
from stoker_ota.services.authority import Holder

NAME: Final = "devices"
AUTHORITY_DAYS: Final = 20 * 365


def found(operator: str, now: datetime, key: ec.EllipticCurvePrivateKey) -> Holder:
    """The devices' authority; it signs itself."""
    return authority.issue(NAME, operator, None, now, AUTHORITY_DAYS, key, ca=True)


def sign(request: bytes, device: str, holder: Holder, now: datetime, days: int) -> bytes:
    """PEM of a client certificate for the key of a CSR. BadDocument, InvalidRequest.

    Only the key is taken from the request: who the device is is the operator's word.
    """
    if not LEVEL.fullmatch(device):
        raise InvalidRequest(f"cannot enroll {device!r}: letters, digits, - and _ only")
    try:
        asked = x509.load_pem_x509_csr(request)
    except ValueError as error:
        raise BadDocument(
            "cannot read the request: it is no certificate request in PEM",
            hint="'stokerctl fleet enroll' prints one on the device",
        ) from error
    if not asked.is_signature_valid:
        raise BadDocument("cannot sign the request: it does not prove that it has its key")
    key = asked.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise BadDocument("cannot sign the request: its key is not on P-256")
    if not 1 <= days <= clock.MAX_DAYS:
        raise InvalidRequest(f"cannot enroll {device}: {days} days are outside 1..{clock.MAX_DAYS}")
    names = asked.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if [str(name.value) for name in names] != [device]:
        raise InvalidRequest(
            f"cannot enroll {device}: the request is for "
            f"{', '.join(str(name.value) for name in names) or 'nobody'}"
        )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, device)]))
        .issuer_name(holder.certificate.subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - authority.CLOCK_SKEW)
        .not_valid_after(clock.later(now, days))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(holder.key.public_key()),
            critical=False,
        )
        .sign(holder.key, hashes.SHA256())
    )
    return certificate.public_bytes(Encoding.PEM)
