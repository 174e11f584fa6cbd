"""An operator's folder of keys: where they lie, and where their passphrase comes from.

pki/keys/NAME.pem         PKCS #8, encrypted, mode 0600
pki/certificates/NAME.pem the certificate and those above it
pki/trust/N.json          every version of trust there was
"""

from __future__ import annotations

import getpass
import os
import sys
from argparse import Namespace
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from stoker_ota.core import chain, clock, documents, envelope, gate
from stoker_ota.core.documents import Trust
from stoker_ota.drivers import folders
from stoker_ota.errors import BadChain, BadDocument, FileUnreadable, InvalidRequest, OtaError
from stoker_ota.services import authority
from stoker_ota.services.authority import Holder

VARIABLE: Final = "STOKER_OTA_PASSPHRASE"

FIRST_YEAR, LAST_YEAR = 1970, 9000
"""Certificates begin in 1950 and moments end in 9999; what is signed lasts up to a century."""


class Keyring:
    """One folder; the passphrase is asked for once."""

    def __init__(self, args: Namespace) -> None:
        self.folder: Path = args.pki
        self._file: Path | None = args.passphrase_file
        self._passphrase = b""

    def passphrase(self, *, new: bool = False) -> bytes:
        """From the file, the environment or the terminal. InvalidRequest when there is none."""
        if self._passphrase:
            return self._passphrase
        if self._file is not None:
            text = folders.read(self._file, 4096).split(b"\n")[0].decode("utf-8", "replace")
        elif VARIABLE in os.environ:
            text = os.environ[VARIABLE]
        elif sys.stdin.isatty():
            text = getpass.getpass("Passphrase of the keys: ")
            if new and getpass.getpass("Once more: ") != text:
                raise InvalidRequest("cannot make keys: the two passphrases differ")
        else:
            raise InvalidRequest(
                "cannot open the keys: there is no passphrase",
                hint=f"use --passphrase-file or {VARIABLE}",
            )
        if len(text) < 8:
            raise InvalidRequest("cannot use the passphrase: it has fewer than 8 characters")
        self._passphrase = text.encode()
        return self._passphrase

    def add(self, holder: Holder) -> None:
        """InvalidRequest when a holder of this name is there: keys are not overwritten."""
        key = authority.key_pem(holder, self.passphrase(new=True))
        folders.write_new(self._key(holder.name), key, 0o600)
        folders.write_new(self._certificate(holder.name), authority.chain_pem(holder))

    def put_aside(self, name: str) -> None:
        """An old key makes room for a new one under the same name; it is kept."""
        stamp = 1
        while self._key(f"{name}.old-{stamp}").exists():
            stamp += 1
        for place in (self._key, self._certificate):
            if place(name).exists():
                place(name).rename(place(f"{name}.old-{stamp}"))

    def holder(self, name: str) -> Holder:
        key, chain = folders.read(self._key(name)), folders.read(self._certificate(name))
        return authority.load(name, key, chain, self.passphrase())

    def signers(self, role: str) -> tuple[Holder, ...]:
        """Everybody of this role whose key is here. FileUnreadable when nobody's is."""
        return self.here(role) or (self.holder(role),)

    def here(self, role: str) -> tuple[Holder, ...]:
        """As ``signers``; nobody is no error."""
        names = authority.signer_names(role)
        return tuple(self.holder(name) for name in names if self._key(name).exists())

    def certificate(self, name: str) -> x509.Certificate:
        """Of somebody whose key may be elsewhere. FileUnreadable, BadChain."""
        path = self._certificate(name)
        try:
            return x509.load_pem_x509_certificates(folders.read(path))[0]
        except ValueError as error:
            raise BadChain(f"cannot read {path}: it is no certificate in PEM") from error

    def signer_of(self, role: str, spki: str) -> int:
        """Which of the role's signers has this key; 0: none has it any more, or yet."""
        for number, name in enumerate(authority.signer_names(role), 1):
            here = self._certificate(name).exists()
            if here and chain.spki_hash(self.certificate(name)) == spki:
                return number
        return 0

    @property
    def has_trust(self) -> bool:
        return bool(folders.versions(self.folder / "trust"))

    def trust(self) -> Trust:
        """The newest version. FileUnreadable when there is none."""
        numbers = folders.versions(self.folder / "trust")
        if not numbers:
            raise FileUnreadable(
                f"cannot read {self.folder}/trust: there is no trust document",
                hint="make one with 'stoker-ota init-pki', or copy that of whoever did",
            )
        return read_trust(self._trust(numbers[-1]))

    def settled_trust(self) -> Trust:
        """The newest version, which everybody has signed who must: what follows one that devices
        refuse is refused, too. BadDocument and what ``trust`` raises."""
        trust = self.trust()
        if trust.version > 1 and self._trust(trust.version - 1).exists():
            path = self._trust(trust.version)
            try:
                gate.accept_trust(folders.read(path), read_trust(self._trust(trust.version - 1)))
            except OtaError as error:
                raise BadDocument(
                    f"cannot go on from {path}: {error.message}",
                    hint="the others add theirs with 'stoker-ota sign', and the result takes its "
                    "place",
                ) from error
        return trust

    def save_trust(
        self, trust: Trust, signers: tuple[Holder, ...], before: Trust | None = None
    ) -> Path:
        """After ``before``. What devices would refuse is not written: no later one would get by it.
        BadDocument, BadChain, BadSignature.
        """
        path = self._trust(trust.version)
        payload = documents.trust_payload(trust)
        documents.parse_trust(payload)
        data = authority.sign(documents.TRUST_TYPE, payload, signers)
        people = {holder.name for holder in signers}
        _judge(data, trust, before, len(people))
        folders.write_new(path, data)
        return path

    def _trust(self, version: int) -> Path:
        return self.folder / "trust" / f"{version}.json"

    def _key(self, name: str) -> Path:
        return self.folder / "keys" / f"{name}.pem"

    def _certificate(self, name: str) -> Path:
        return self.folder / "certificates" / f"{name}.pem"


def _judge(data: bytes, trust: Trust, before: Trust | None, signers: int) -> None:
    """As a device does; while others have still to sign it, ours must count in it at least."""
    if before is None:
        return
    if signers >= max(item.roles["trust"].threshold for item in (trust, before)):
        gate.accept_trust(data, before)
        return
    for known in (before, trust):
        ours = replace(known.roles["trust"], threshold=signers)
        asked = replace(known, roles={**known.roles, "trust": ours})
        limit = documents.MAX_TRUST_BYTES
        gate.open_signed(data, documents.TRUST_TYPE, "trust", asked, max_bytes=limit)


def read_trust(path: Path) -> Trust:
    """A trust document taken as it is: an operator's own file, or what a device was born with."""
    data = folders.read(path, documents.MAX_TRUST_BYTES * 2)
    try:
        found = envelope.parse(data, max_bytes=documents.MAX_TRUST_BYTES * 2)
        return documents.parse_trust(found.payload)
    except OtaError as error:
        raise BadDocument(f"cannot use {path}: {error.message}") from error


def moment(args: Namespace) -> datetime:
    """``--now`` or the clock, in whole seconds."""
    if args.now:
        found = clock.parse(args.now, "--now")
        if not FIRST_YEAR <= found.year <= LAST_YEAR:
            raise InvalidRequest(
                f"cannot sign as of {args.now}: before {FIRST_YEAR} or after {LAST_YEAR}"
            )
        return found
    return datetime.now(UTC).replace(microsecond=0)


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())
