"""The words of keys, documents and bundles on stoker-ota's command line."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from stoker_ota.cli import given_parts
from stoker_ota.cli.command import Command
from stoker_ota.core.clock import MAX_DAYS
from stoker_ota.core.documents import ROLES


def _pki(parser: argparse.ArgumentParser) -> Any:
    """Every command that signs knows the folder of keys and where the passphrase is."""
    add = parser.add_argument
    add("--pki", metavar="DIR", type=Path, default=Path("pki"), help="keys (default: pki)")
    add("--passphrase-file", metavar="FILE", type=Path,
        help="its first line is the passphrase (else STOKER_OTA_PASSPHRASE)")  # fmt: skip
    return add


def _days(text: str) -> int:
    """A document that is over when it is signed, or in a thousand years, is a slip of the hand."""
    days = int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 0
    if not 1 <= days <= MAX_DAYS:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is outside 1..{MAX_DAYS}")
    return days


def _moment(parser: argparse.ArgumentParser, days: int) -> None:
    parser.add_argument("--now", metavar="TIME",
        help="issued at 2026-01-31T12:00:00Z instead of now: same inputs, same bytes")  # fmt: skip
    parser.add_argument("--days", metavar="N", type=_days, default=days,
        help=f"until it expires (default {days})")  # fmt: skip


def _fill_init(parser: argparse.ArgumentParser) -> None:
    add = _pki(parser)
    add("--operator", metavar="NAME", default="stoker", help="organisation in the certificates")
    add("--threshold", metavar="N", type=int, default=1,
        help="signers each role takes, up to 7: release, release-2, … (default 1)")  # fmt: skip
    _moment(parser, 365)


def _fill_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("document", metavar="FILE", type=Path, help="the trust document")


def _fill_trust_change(parser: argparse.ArgumentParser) -> None:
    _pki(parser)
    _moment(parser, 365)


def _fill_rotate(parser: argparse.ArgumentParser) -> None:
    add = _pki(parser)
    add("role", metavar="ROLE", choices=ROLES, help="whose signer gets a new key")
    add("--revoke", action="store_true", help="and the old key is worth nothing any more")
    add("--signer", metavar="N", type=int, choices=range(1, 8), default=1,
        help="which of the role's signers: 2 is release-2 (default 1)")  # fmt: skip
    _moment(parser, 365)


def _fill_revoke(parser: argparse.ArgumentParser) -> None:
    add = _pki(parser)
    add("certificate", metavar="CERT", type=Path, help="PEM of the certificate whose key is lost")
    _moment(parser, 365)


def _fill_sign(parser: argparse.ArgumentParser) -> None:
    add = _pki(parser)
    add("envelope", metavar="ENVELOPE", type=Path, help="a signed document")
    add("--role", metavar="ROLE", choices=ROLES, required=True, help="whose signature to add")
    add("-o", "--output", metavar="FILE", type=Path, required=True, help="the envelope to write")


def _fill_manifest(parser: argparse.ArgumentParser) -> None:
    add = _pki(parser)
    add("recipe", metavar="RECIPE", type=Path, help="TOML: see stoker-ota(1)")
    add("-o", "--output", metavar="FILE", type=Path, required=True, help="the manifest to write")
    given_parts.fill(parser)
    _moment(parser, 90)


def _fill_catalog(parser: argparse.ArgumentParser) -> None:
    add = _pki(parser)
    add("manifests", metavar="MANIFEST", type=Path, nargs="+", help="every live manifest")
    add("--after", metavar="FILE", type=Path, help="the catalog before: its version plus one")
    add("-o", "--output", metavar="FILE", type=Path, required=True, help="the catalog to write")
    _moment(parser, 7)


def _fill_bundle(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("catalog", metavar="CATALOG", type=Path, help="the signed catalog")
    add("manifests", metavar="MANIFEST", type=Path, nargs="+", help="manifests it lists")
    add("--blobs", metavar="FILE", type=Path, nargs="+", default=[],
        help="artifacts and deltas; those that no manifest names are refused")  # fmt: skip
    add("--trust", metavar="FILE", type=Path, nargs="*", default=[], help="trust documents")
    add("-o", "--output", metavar="DIR", type=Path, required=True, help="the folder to make")


def _fill_pack_bundle(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("bundle", metavar="BUNDLE", type=Path, help="the folder")
    add("-o", "--output", metavar="FILE", type=Path, required=True, help="the file to write")


def _fill_verify(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("bundle", metavar="BUNDLE", type=Path, help="the folder")
    add("--trust", metavar="FILE", type=Path, required=True, help="the trust document devices have")
    add("--now", metavar="TIME", help="judge as of this time")


def _fill_pack(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("folder", metavar="DIR", type=Path, help="libllama.so, libggml*.so and nothing else")
    add("-o", "--output", metavar="FILE", type=Path, required=True, help="the archive to write")


def _fill_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("archive", metavar="FILE", type=Path, help="the archive")


def _fill_probe(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("figures", metavar="FIGURES", type=Path, nargs="+",
        help='JSON lines {"text", "nats_per_token"} of one good variant each')  # fmt: skip
    add("--margin", metavar="R", type=float, default=0.1,
        help="how far beyond the measured range a device may be (default 0.1)")  # fmt: skip


_SIGNING = "Keys are never written in the clear and never overwritten."

GROUPS: Final = {
    "trust": "who may sign what; the root of everything",
    "manifest": "one deployment set",
    "runtime": "llama.cpp's libraries as one artifact",
    "catalog": "the list of live manifests",
    "bundle": "everything for a USB stick, a web server or a broker",
    "probe": "what a healthy model says",
}

COMMANDS: Final[tuple[Command, ...]] = (
    Command(
        ("init-pki",),
        "make keys, certificates and the first trust document",
        "Make two anchors, an intermediate under each, signers for each role, and trust version\n"
        f"1. {_SIGNING} Keep the anchors' keys off line.\n"
        "With --threshold 2 nothing is accepted that one signer has signed alone. Move release-2\n"
        "and so on to the folder of whoever is the second signer, who adds a signature with\n"
        "'stoker-ota sign'. What is signed where several keys of a role lie is signed by all.",
        (
            "stoker-ota init-pki --operator 'Example Ltd' --pki pki",
            "stoker-ota init-pki --threshold 2 --pki pki",
            "stoker-ota init-pki --passphrase-file secret --now 2026-01-31T12:00:00Z",
        ),
        _fill_init,
    ),
    Command(
        ("trust", "show"),
        "what a trust document says",
        "Version, expiry, anchors, roles and revoked keys of a trust document.",
        ("stoker-ota trust show pki/trust/1.json",),
        _fill_show,
    ),
    Command(
        ("trust", "renew"),
        "the next version, with a later expiry",
        "The next version of trust with everything as it is and a later expiry.",
        ("stoker-ota trust renew --days 365",),
        _fill_trust_change,
    ),
    Command(
        ("trust", "rotate"),
        "a new key for a role",
        "A new key and certificate for a role, and the next version of trust. With --revoke the\n"
        "old key is worth nothing any more; without, both may sign until the old one expires.",
        ("stoker-ota trust rotate release", "stoker-ota trust rotate catalog --revoke"),
        _fill_rotate,
    ),
    Command(
        ("trust", "revoke"),
        "declare a key worthless",
        "The next version of trust with the key of CERT revoked.",
        ("stoker-ota trust revoke stolen.pem",),
        _fill_revoke,
    ),
    Command(
        ("sign",),
        "add a signature",
        "Add the signatures of a role's keys in this folder to a signed document, for roles that\n"
        "take several signers.",
        ("stoker-ota sign manifest.json --role release --pki pki-of-bob -o manifest-2.json",),
        _fill_sign,
    ),
    Command(
        ("runtime", "pack"),
        "one archive of a folder of libraries",
        "An uncompressed tar in a strict form, for artifacts of the kind runtime: libllama.so and\n"
        "ggml with every CPU variant. The same files give the same bytes, so that deltas of it\n"
        "stay small.",
        ("stoker-ota runtime pack build/lib -o engine-1.tar",),
        _fill_pack,
    ),
    Command(
        ("runtime", "list"),
        "what a device would unpack",
        "The files of an archive, as a device reads it.",
        ("stoker-ota runtime list engine-1.tar",),
        _fill_list,
    ),
    Command(
        ("manifest", "make"),
        "make and sign a manifest from a recipe",
        "Measure the files that the recipe names, check that its deltas lead to them, write and\n"
        "sign the manifest. What a device would refuse is refused here. Artifacts without deltas\n"
        "may also be named by options. A policy takes the signature of the role policy, all other\n"
        "kinds that of release.",
        (
            "stoker-ota manifest make chat.toml -o chat.json",
            "stoker-ota manifest make site.toml --runtime build/lib -o site.json",
            "stoker-ota manifest make site.toml --adapter terse=t.gguf --base v2.gguf -o site.json",
        ),
        _fill_manifest,
    ),
    Command(
        ("catalog", "make"),
        "make and sign the catalog",
        "List manifests in a new catalog. A name that the catalog before had may not be missing.",
        (
            "stoker-ota catalog make chat.json -o catalog.json",
            "stoker-ota catalog make chat.json vision.json --after 1.json -o catalog.json",
        ),
        _fill_catalog,
    ),
    Command(
        ("bundle", "make"),
        "collect everything into one folder",
        "Put trust documents, catalog, manifests, artifacts and deltas into one folder, each blob\n"
        "under its hash, without copies where the file system allows.",
        ("stoker-ota bundle make catalog.json chat.json --blobs v2.gguf v1-v2.delta -o usb",),
        _fill_bundle,
    ),
    Command(
        ("bundle", "pack"),
        "a whole bundle in one file",
        "One file to mail or to download, which stokerctl installs as it does a folder. The same\n"
        "bundle gives the same bytes. A file of more than 8 GiB does not fit in.",
        ("stoker-ota bundle pack usb -o chat-2.bundle",),
        _fill_pack_bundle,
    ),
    Command(
        ("verify",),
        "judge a bundle as a device would",
        "Check every signature, version and hash of a bundle in the order devices use.",
        ("stoker-ota verify usb --trust pki/trust/1.json",),
        _fill_verify,
    ),
    Command(
        ("probe", "make"),
        "health probes from measured figures",
        "Bounds for a manifest's health probes from figures of variants that are known to be\n"
        "good, as TOML for a recipe. Figures come from 'stokerd --model FILE --score TEXTS'.",
        ("stoker-ota probe make q4.jsonl q8.jsonl >> chat.toml",),
        _fill_probe,
    ),
)
