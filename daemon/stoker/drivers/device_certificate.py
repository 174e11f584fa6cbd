"""This device's own key and certificate: asked for, tried, and only then taken into use.

The key is made here and never leaves. The new pair lies beside the old one as ``.new`` until
a connection with it has been let in; a cut between the two renames is mended at the next
look. cryptography is loaded when it is used.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from stoker.drivers.regular_file import read_regular
from stoker.errors import BadChain, InvalidRequest, StorageFailed
from stoker_ota.drivers.folder_sync import sync_folder

MAX_BYTES: Final = 64 << 10
NEW: Final = ".new"


class DeviceCertificate:
    """``prove`` raises unless the broker lets us in with these files (certificate, key)."""

    def __init__(
        self, certificate: str, key: str, device: str, prove: Callable[[str, str], None]
    ) -> None:
        self._certificate, self._key = Path(certificate), Path(key)
        self._device, self._prove = device, prove

    def request(self) -> str:
        """A new key, and the PEM of a request for its certificate."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        self._need_places()
        key = ec.generate_private_key(ec.SECP256R1())
        self._write(
            _beside(self._key),
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
        )
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, self._device)])
        asked = x509.CertificateSigningRequestBuilder().subject_name(name)
        return asked.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()

    def adopt(self, pem: bytes) -> None:
        """InvalidRequest, BadChain: not for the key that was made last. What ``prove`` raises."""
        self._need_places()
        found = _load(pem)
        names = found.subject.rfc4514_string()
        if names != f"CN={self._device}":
            raise BadChain(f"cannot use the certificate: it is for {names}, not {self._device}")
        key = _beside(self._key)
        if not key.exists() or _public(_private(key)) != _public(found):
            raise BadChain(
                "cannot use the certificate: it is not for the key that was made last",
                hint="stokerctl fleet enroll makes a new key and its request",
            )
        certificate = _beside(self._certificate)
        self._write(certificate, pem)
        try:
            self._prove(str(certificate), str(key))
        except BaseException:
            certificate.unlink(missing_ok=True)
            raise
        self._swap()

    def mend(self) -> None:
        """After a cut between the renames the key is new and the certificate still beside."""
        certificate = _beside(self._certificate)
        if not self._certificate.name or not certificate.exists():
            return
        with contextlib.suppress(Exception):  # then it is no pair, and nothing is to be mended
            if _public(_private(self._key)) == _public(_load(certificate.read_bytes())):
                self._swap()

    def _swap(self) -> None:
        try:
            if _beside(self._key).exists():
                _beside(self._key).replace(self._key)
            _beside(self._certificate).replace(self._certificate)
            sync_folder(self._certificate.parent)
        except OSError as error:
            raise StorageFailed(f"cannot take the certificate into use: {error}") from error

    def _need_places(self) -> None:
        if not self._certificate.name or not self._key.name:
            raise InvalidRequest(
                "cannot enroll: there is no place for a certificate",
                hint="set certificate and key in [fleet], in a folder that stokerd may write",
            )

    def _write(self, path: Path, data: bytes) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.unlink(missing_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            fd = os.open(path, flags, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StorageFailed(
                f"cannot write {path}: {error.strerror}",
                hint="the packaged service may write below /var/lib/stoker",
            ) from error


def _beside(path: Path) -> Path:
    return path.with_name(path.name + NEW)


def _load(pem: bytes) -> Any:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificates(pem[:MAX_BYTES])[0]
    except ValueError as error:
        raise InvalidRequest(f"cannot read the certificate: {error}") from error


def _private(path: Path) -> Any:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        return load_pem_private_key(read_regular(path, MAX_BYTES), None)
    except (OSError, ValueError, TypeError) as error:
        raise BadChain(f"cannot read the key: {error}") from error


def _public(owner: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    found: bytes = owner.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return found
