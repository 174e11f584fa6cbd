"""How every command of the command line says where its broker is, and who the operator is there."""

from __future__ import annotations

import argparse
from argparse import Namespace
from pathlib import Path

from stoker_ota.core import broker_address
from stoker_ota.core.topics import DEFAULT_ROOT
from stoker_ota.drivers import folders
from stoker_ota.errors import InvalidRequest
from stoker_ota.values.fetching import Broker, Tls


def add_broker(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    add = parser.add_argument
    add("--broker", metavar="ADDRESS", required=required, default="",
        help="mqtts://HOST[:PORT], mqtt://localhost[:PORT] or unix:/PATH")  # fmt: skip
    add("--root", metavar="TOPIC", default=DEFAULT_ROOT, help="of all topics (default: stoker/1)")
    add("--ca", metavar="FILE", type=Path, help="PEM: whom to believe (default: the system's)")
    add("--certificate", metavar="FILE", type=Path, help="PEM: the operator's certificate")
    add("--key", metavar="FILE", type=Path, help="PEM: its key")
    add("--username", metavar="NAME", default="", help="at the broker")
    add("--password-file", metavar="FILE", type=Path, help="its first line is the password")


def broker(args: Namespace) -> Broker:
    """InvalidRequest."""
    if not args.broker:
        raise InvalidRequest("cannot send it: which broker?", hint="--broker, or --output FILE")
    tls = Tls(*(str(path or "") for path in (args.ca, args.certificate, args.key)))
    return broker_address.broker(
        args.broker, root=args.root, tls=tls, client_id=f"stoker-ota-{folders.unique()}",
        username=args.username, password_file=str(args.password_file or ""),
    )  # fmt: skip
