"""How to get into a broker: a client of paho's made, dialled, and what its failures mean.

Files are read at each connection, so that renewed ones are used. paho is loaded here.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from stoker.drivers.regular_file import read_regular
from stoker.events.broker import BrokerAddress
from stoker.events.fleet import Login

_log = logging.getLogger(__name__)
V5: Final = 5
SESSION_S: Final = 86_400  # the broker keeps what comes while we are away
RECEIVE_MAXIMUM: Final = 16
MAXIMUM_PACKET: Final = 256 << 10  # what we take; larger messages stay with the broker
HARD_LIMIT: Final = 1 << 20  # whatever a broker does that does not keep to that
INFLIGHT: Final = 16
CONNECT_TIMEOUT_S: Final = 10.0
MAX_PASSWORD_BYTES: Final = 4096
_properties: Any = Properties  # it has no types


@dataclass(frozen=True, slots=True)
class BrokerAccess:
    """How to get in. Files are read at each connection, so that renewed ones are used."""

    address: BrokerAddress
    ca: str = ""  # "" = the system's authorities
    certificate: str = ""
    key: str = ""
    username: str = ""
    password_file: str = ""
    keepalive_s: int = 60


class Client(paho.Client):
    """A fault inside the library, or a packet of any size, ends a connection and not the agent."""

    broken: Callable[[Exception], None] = staticmethod(lambda _error: None)

    def _sock_recv(self, bufsize: int) -> bytes:
        """The library asks for as many bytes as a packet says that it has, up to 256 MiB."""
        if bufsize > HARD_LIMIT:
            raise ConnectionError(f"a packet of {bufsize} bytes is not taken")
        return super()._sock_recv(bufsize)

    def _thread_main(self) -> None:
        try:
            super()._thread_main()
        except Exception as error:
            _log.exception("fault in the MQTT library")
            self.broken(error)


def make_client(access: BrokerAccess, login: Login, *, clean: bool = False) -> Client:
    """Not connected yet. OSError, ssl.SSLError, ValueError for files that cannot be used."""
    options: dict[str, Any] = {} if login.protocol == V5 else {"clean_session": clean}
    client = Client(
        CallbackAPIVersion.VERSION2,
        client_id=login.client_id,
        protocol=paho.MQTTv5 if login.protocol == V5 else paho.MQTTv311,
        transport="unix" if access.address.path else "tcp",
        reconnect_on_failure=False,
        manual_ack=True,
        **options,
    )
    client.connect_timeout = CONNECT_TIMEOUT_S
    client.max_inflight_messages_set(INFLIGHT)
    client.max_queued_messages_set(4 * INFLIGHT)
    if access.address.tls:
        client.tls_set_context(tls_context(access))
    if access.username:
        client.username_pw_set(access.username, _password(access.password_file))
    return client


def dial(client: paho.Client, access: BrokerAccess, login: Login, *, clean: bool = False) -> None:
    """Blocks for name, connection and TLS; the broker's answer comes by the loop."""
    where = (access.address.path or access.address.host, access.address.port or 1)
    if login.protocol != V5:
        client.connect(*where, keepalive=access.keepalive_s)
        return
    properties: Any = _properties(PacketTypes.CONNECT)
    properties.SessionExpiryInterval = 0 if clean else SESSION_S
    properties.ReceiveMaximum = RECEIVE_MAXIMUM
    properties.MaximumPacketSize = MAXIMUM_PACKET
    client.connect(*where, keepalive=access.keepalive_s, clean_start=clean, properties=properties)


def tls_context(access: BrokerAccess) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=access.ca or None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if access.certificate:
            context.load_cert_chain(access.certificate, access.key or None)
    except ssl.SSLError:
        raise
    except OSError as error:
        files = ", ".join(filter(None, (access.ca, access.certificate, access.key)))
        raise ValueError(f"a file of {files}: {error.strerror}") from error
    return context


def certificate_end(path: str) -> float:
    """Seconds since 1970 of the first certificate in a PEM file; 0 when it cannot be read."""
    if not path:
        return 0.0
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificates(read_regular(Path(path), 64 << 10))
    except (OSError, ValueError):
        return 0.0
    return found[0].not_valid_after_utc.timestamp()


def cause_of(error: Exception) -> tuple[str, str]:
    """(cause, text) of what kept a connection from coming about."""
    match error:
        case socket.gaierror():
            return "dns", f"the name is not known: {error.strerror}"
        case ssl.SSLCertVerificationError():
            # OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED
            cause = "clock" if error.verify_code in (9, 10) else "tls"
            return cause, f"the broker's certificate: {error.verify_message}"
        case ssl.SSLError():
            return "tls", f"TLS: {getattr(error, 'reason', None) or error}"
        case OSError():
            return "network", str(error.strerror or error)
        case ValueError():  # a file of ours
            return "tls", str(error)
    return "fault", f"{type(error).__name__}: {error}"


def _password(path: str) -> str:
    """The file's first line."""
    if not path:
        return ""
    try:
        data = read_regular(Path(path), MAX_PASSWORD_BYTES)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from error
    return data.split(b"\n")[0].decode("utf-8", "replace")
