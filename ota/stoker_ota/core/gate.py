"""Which signed documents this device accepts, in one order that never changes.

Cap bytes, strict envelope, chain, signature over the received bytes, threshold; only then
is the payload parsed, once, from the same bytes; then schema, rollback and expiry. Pure:
bytes, trust, floors and a ``clock.Now`` go in, a value comes out or a typed error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from stoker_ota.core import chain, documents, envelope, manifest, rules, signature
from stoker_ota.core.clock import Now
from stoker_ota.core.documents import Catalog, Role, Trust
from stoker_ota.core.floors import Floors
from stoker_ota.core.manifest import Manifest
from stoker_ota.errors import BadChain, BadDocument, BadSignature, MixAndMatch, OtaError

_MANIFEST = manifest.MAX_MANIFEST_BYTES
ENVELOPE_SHARE = 2
"""An envelope may be so many times its payload's limit: base64 and certificates."""


@dataclass(frozen=True, slots=True)
class Signed:
    """A payload whose role's threshold is met, and by whom; not parsed yet."""

    payload: bytes
    signers: tuple[chain.Signer, ...]  # distinct keys


@dataclass(frozen=True, slots=True)
class AcceptedCatalog:
    catalog: Catalog
    degraded: bool  # accepted by version alone, since the clock is not trusted


def open_signed(data: bytes, kind: str, role_name: str, trust: Trust, *, max_bytes: int) -> Signed:
    """Raises TooLarge, BadDocument, BadChain, Revoked, BadSignature."""
    found = envelope.parse(data, max_bytes=ENVELOPE_SHARE * max_bytes + (64 << 10))
    if found.payload_type != kind:
        raise BadDocument(f"cannot accept {role_name}: it is of type {found.payload_type!r}")
    if len(found.payload) > max_bytes:
        raise BadDocument(f"cannot accept {role_name}: its payload has more than {max_bytes} bytes")
    role = trust.roles.get(role_name)
    if role is None:
        raise BadSignature(f"cannot accept {role_name}: nobody is trusted with this role")
    signers, reason = _valid_signers(found, role, trust)
    try:
        enough(signers.values(), role.threshold, role_name)
    except BadSignature as error:
        if reason is None:
            raise
        if not signers:
            raise reason from None  # says more than a count of none
        raise BadSignature(f"{error.message}; {reason.message}", details=error.details) from None
    return Signed(found.payload, tuple(signers.values()))


def enough(signers: Collection[chain.Signer], threshold: int, role_name: str) -> None:
    """As many keys and as many people: whoever has an old key and the one that followed it is
    still one person, and so is a key with certificates of two names. BadSignature."""
    rules.enough({signer.spki for signer in signers}, threshold, role_name)
    rules.enough({signer.subject for signer in signers}, threshold, role_name)


def accept_trust(data: bytes, current: Trust) -> Trust:
    """The document after ``current``, signed by the thresholds of both.

    Judges no time: a device that slept through every expiry must be able to walk to the
    newest document. Raises Rollback and what ``open_signed`` raises.
    """
    limit = documents.MAX_TRUST_BYTES
    signed = open_signed(data, documents.TRUST_TYPE, "trust", current, max_bytes=limit)
    following = documents.parse_trust(signed.payload)
    rules.follows(following.version, current.version)
    open_signed(data, documents.TRUST_TYPE, "trust", following, max_bytes=limit)
    return following


def walk_trust(steps: Iterable[bytes], current: Trust) -> tuple[Trust, bytes]:
    """Every document after ``current`` in turn, each judged before the next one is read: the newest
    trust and its signed bytes (empty = no step was made). Its expiry is the caller's to check."""
    last = b""
    for count, last in enumerate(steps, start=1):
        if count > rules.MAX_TRUST_STEPS:
            raise BadDocument(f"cannot walk trust: more than {rules.MAX_TRUST_STEPS} steps at once")
        current = accept_trust(last, current)
    return current, last


def keys_changed(old: Trust, new: Trust, role: str) -> bool:
    """Whether ``role`` is in other hands: then its versions start anew (TUF 5.3.11)."""
    return (
        old.roles.get(role) != new.roles.get(role)
        or set(old.anchors) != set(new.anchors)
        or old.revoked != new.revoked
    )


def accept_catalog(
    data: bytes, trust: Trust, floors: Floors, previous: Catalog | None, now: Now
) -> AcceptedCatalog:
    """Raises Rollback, Freeze, Expired and what ``open_signed`` raises."""
    limit = documents.MAX_CATALOG_BYTES
    signed = open_signed(data, documents.CATALOG_TYPE, "catalog", trust, max_bytes=limit)
    catalog = documents.parse_catalog(signed.payload)
    # without a clock only what is strictly newer is surely no replay
    strictly = not now.trusted and catalog != previous
    rules.not_older(catalog.version, floors.document("catalog"), "catalog", strictly=strictly)
    if previous is not None and floors.document("catalog"):
        rules.names_kept(previous.manifests, catalog.manifests)
    check_signers(signed, trust.roles["catalog"], lambda s: _catalog_signer(s, catalog, now))
    rules.not_from_the_future(catalog.issued_at, now, "catalog")
    if now.trusted:
        rules.fresh(catalog.expires, now, "catalog")
    return AcceptedCatalog(catalog, degraded=not now.trusted)


def accept_manifest(
    name: str, data: bytes, trust: Trust, catalog: Catalog, floors: Floors, now: Now
) -> Manifest:
    """Raises MixAndMatch, Rollback, Expired, Freeze and what ``open_signed`` raises."""
    signed = _open_manifest(data, trust)
    found = manifest.parse_manifest(next(iter(signed.values())).payload)
    for role in found.roles:
        if role not in signed:  # says why
            open_signed(data, manifest.MANIFEST_TYPE, role, trust, max_bytes=_MANIFEST)
    if found.deployment_id != name:
        raise MixAndMatch(f"cannot accept manifest {name}: it is {found.deployment_id}'s")
    rules.listed(name, catalog.manifests, data, found.version)
    rules.not_older(found.version, floors.document(f"manifest:{name}"), f"manifest {name}")
    for item in found.artifacts:
        floors.check_counter(item.name, item.release_counter)
    for role in found.roles:
        check_signers(
            signed[role],
            trust.roles[role],
            lambda s: rules.signed_while_valid(
                found.issued_at, s.valid_from, s.valid_until, s.subject
            ),
        )
    rules.not_from_the_future(found.issued_at, now, f"manifest {name}")
    if now.trusted:
        rules.fresh(found.expires, now, f"manifest {name}")
    return found


def _open_manifest(data: bytes, trust: Trust) -> dict[str, Signed]:
    """By each of the roles that may sign one whose threshold is met; at least one is. Which
    ones it needs is known when it is parsed, and it is parsed when somebody trusted signed it.
    """
    met: dict[str, Signed] = {}
    reason: OtaError | None = None
    for role in manifest.SIGNERS:
        try:
            met[role] = open_signed(data, manifest.MANIFEST_TYPE, role, trust, max_bytes=_MANIFEST)
        except (BadSignature, BadChain) as error:
            reason = reason or error  # of the first, who signs most of them
    if not met:
        assert reason is not None, "there are roles"
        raise reason
    return met


def _valid_signers(
    found: envelope.Envelope, role: Role, trust: Trust
) -> tuple[dict[str, chain.Signer], OtaError | None]:
    """Distinct keys whose signature holds, and why the last of the others does not."""
    signers: dict[str, chain.Signer] = {}
    reason: OtaError | None = None
    for item in found.signatures:
        try:
            signer = chain.verify(item.chain, trust.anchors, trust.revoked)
        except BadChain as error:  # somebody else's signature beside ours is no harm
            reason = error
            continue
        if not role.admits(signer):
            reason = BadChain(f"cannot accept {signer.subject}: it does not have this role")
        elif not signature.holds(signer.key, item.value, found.message):
            reason = BadSignature(f"cannot accept the signature of {signer.subject}: it is wrong")
        else:
            signers[signer.spki] = signer
    return signers, reason


def check_signers(signed: Signed, role: Role, check: Callable[[chain.Signer], None]) -> None:
    """As many signers as the role asks for must pass ``check``; says why one did not."""
    passed: list[chain.Signer] = []
    reason: OtaError | None = None
    for signer in signed.signers:
        try:
            check(signer)
        except OtaError as error:
            reason = error
        else:
            passed.append(signer)
    try:
        enough(passed, role.threshold, "signers")
    except BadSignature as error:
        raise (reason or error) from None


def _catalog_signer(signer: chain.Signer, catalog: Catalog, now: Now) -> None:
    if now.trusted:
        rules.valid_now(signer.valid_from, signer.valid_until, now, signer.subject)
    else:
        rules.signed_while_valid(
            catalog.issued_at, signer.valid_from, signer.valid_until, signer.subject
        )
