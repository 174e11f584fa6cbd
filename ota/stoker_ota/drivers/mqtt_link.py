"""One MQTT connection for bulk: what happens is put into a queue, nothing is done in callbacks.

MQTT 5 first, 3.1.1 where the broker knows no other. It never reconnects by itself: whoever
reads the queue decides. Traps of paho that this avoids: an exception in a callback ends
the network thread; reconnecting has no jitter; a denied publish is told by a reason code only.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import ssl
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, cast

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from stoker_ota.errors import FileUnreadable, InvalidRequest
from stoker_ota.values.chunks import MAX_CHUNK_BYTES
from stoker_ota.values.fetching import Broker

CONNECT_S: Final = 15.0
KEEPALIVE_S: Final = 60
MAX_PACKET_BYTES: Final = MAX_CHUNK_BYTES + (8 << 10)
MAX_PASSWORD_BYTES: Final = 4096
UNKNOWN_VERSION: Final = "Unsupported protocol version"
_NO_MORE: Final = (
    "Bad user name or password", "Not authorized", "Banned", "Client identifier not valid",
    "Server moved", "Use another server",
)  # fmt: skip
"""Refusals that trying again does not change."""


class Heard(Enum):
    CONNECTED = "connected"
    DENIED = "denied"
    MESSAGE = "message"
    PUBLISHED = "published"
    DOWN = "down"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class News:
    """``mid``: of the subscription or publication that it answers; ``index``: of its topic."""

    heard: Heard
    topic: str = ""
    payload: bytes = b""
    mid: int = 0
    index: int = 0
    reason: str = ""


class Link:
    """``suffix`` makes the client's id another one than that of the control connection."""

    def __init__(self, broker: Broker, suffix: str) -> None:
        self._broker, self._suffix = broker, suffix
        self.news: queue.Queue[News] = queue.Queue()
        self._client: Any = None
        self._old = False  # the broker speaks 3.1.1 only
        self._answered = threading.Event()
        self.most_bytes = MAX_CHUNK_BYTES  # that the broker takes in one message

    def connect(self) -> None:
        """News tell how it went. Errors of our own files are raised: FileUnreadable."""
        self.close()
        self._drain()
        client = self._make()
        self._client = client
        broker = self._broker
        try:
            if broker.path:
                self._begin(client, broker.path, 1)
            else:
                self._begin(client, broker.host, broker.port)
        except ssl.SSLCertVerificationError as error:
            reason = f"its certificate is not accepted: {error.verify_message}"
            self.news.put(News(Heard.REFUSED, reason=reason))
        except ssl.SSLError as error:
            self.news.put(News(Heard.DOWN, reason=f"TLS: {error.reason or error}"))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            self.news.put(News(Heard.DOWN, reason=str(reason)))

    def subscribe(self, topics: Sequence[str]) -> int:
        """The number that a refusal will name; 0 = there is no connection."""
        wanted: list[Any] = (
            [(topic, 0) for topic in topics]
            if self._old
            else [(topic, SubscribeOptions(qos=0)) for topic in topics]
        )
        code, mid = self._client.subscribe(wanted)
        return mid or 0 if code == mqtt.MQTT_ERR_SUCCESS else 0

    def unsubscribe(self, topics: Sequence[str]) -> None:
        self._client.unsubscribe(list(topics))

    def publish(self, topic: str, payload: bytes) -> int:
        """Retained, QoS 1; the number that PUBLISHED will name; 0 = there is no connection."""
        sent = self._client.publish(topic, payload, qos=1, retain=True)
        return sent.mid if sent.rc == mqtt.MQTT_ERR_SUCCESS else 0

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            for name in ("on_message", "on_disconnect", "on_connect", "on_subscribe"):
                setattr(client, name, None)
            with contextlib.suppress(OSError, ValueError):
                client.disconnect()
            client.loop_stop()

    def _begin(self, client: Any, host: str, port: int) -> None:
        if self._old:
            client.connect(host, port, KEEPALIVE_S)
        else:
            properties: Any = cast("Any", Properties)(PacketTypes.CONNECT)
            properties.MaximumPacketSize = MAX_PACKET_BYTES
            client.connect(host, port, KEEPALIVE_S, clean_start=True, properties=properties)
        client.loop_start()

    def _make(self) -> Any:
        name = f"{self._broker.client_id or 'stoker'}{self._suffix}"
        client = make_client(self._broker, name, old=self._old, reconnect_on_failure=False)
        client.connect_timeout = CONNECT_S
        client.max_inflight_messages_set(16)
        client.on_connect, client.on_disconnect = self._on_connect, self._on_disconnect
        client.on_message, client.on_subscribe = self._on_message, self._on_subscribe
        client.on_publish, client.on_socket_open = self._on_publish, _no_delay
        self._answered.clear()
        return client

    def _drain(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self.news.get_nowait()

    # callbacks: they only enqueue

    def _on_connect(self, _c: Any, _u: Any, _flags: Any, code: ReasonCode, properties: Any) -> None:
        self._answered.set()
        if not code.is_failure:
            most = getattr(properties, "MaximumPacketSize", None)
            if isinstance(most, int):
                self.most_bytes = min(MAX_CHUNK_BYTES, most - 512)
            self.news.put(News(Heard.CONNECTED))
        elif code.getName() == UNKNOWN_VERSION and not self._old:
            self._old = True
            self.news.put(News(Heard.DOWN, reason="it speaks MQTT 3.1.1 only"))
        else:
            final = code.getName() in _NO_MORE
            self.news.put(News(Heard.REFUSED if final else Heard.DOWN, reason=str(code)))

    def _on_disconnect(self, _c: Any, _u: Any, _flags: Any, code: Any, _properties: Any) -> None:
        if not self._answered.is_set():
            self._old = not self._old  # some old brokers close when they hear of version 5
            self.news.put(News(Heard.DOWN, reason="it closes the connection at once"))
            return
        self.news.put(News(Heard.DOWN, reason=str(code)))

    def _on_message(self, _client: Any, _userdata: Any, message: mqtt.MQTTMessage) -> None:
        self.news.put(News(Heard.MESSAGE, message.topic, bytes(message.payload)))

    def _on_subscribe(
        self, _client: Any, _userdata: Any, mid: int, codes: list[ReasonCode], _properties: Any
    ) -> None:
        for index, code in enumerate(codes):
            if code.is_failure:
                self.news.put(News(Heard.DENIED, mid=mid, index=index, reason=str(code)))

    def _on_publish(self, _c: Any, _u: Any, mid: int, code: ReasonCode, _properties: Any) -> None:
        self.news.put(News(Heard.PUBLISHED, mid=mid, reason=str(code) if code.is_failure else ""))


def make_client(broker: Broker, client_id: str, *, old: bool, **more: Any) -> Any:
    """With protocol, login and TLS; ``old``: MQTT 3.1.1. FileUnreadable."""
    client = mqtt.Client(
        CallbackAPIVersion.VERSION2, client_id,
        protocol=mqtt.MQTTv311 if old else mqtt.MQTTv5,
        transport="unix" if broker.path else "tcp",
        **({"clean_session": True} if old else {}), **more,
    )  # fmt: skip
    if broker.username:
        client.username_pw_set(broker.username, password(broker.password_file))
    if broker.tls is not None and not broker.path:
        client.tls_set_context(tls_context(broker))
    return client


def _no_delay(_client: Any, _userdata: Any, sock: Any) -> None:
    """Small packets must not wait for acknowledgements; a Unix socket knows nothing of that."""
    with contextlib.suppress(OSError, AttributeError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def tls_context(broker: Broker) -> ssl.SSLContext:
    """Of a broker with TLS. FileUnreadable."""
    assert broker.tls is not None
    try:
        context = ssl.create_default_context(cafile=broker.tls.ca or None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if broker.tls.certificate:
            context.load_cert_chain(broker.tls.certificate, broker.tls.key or None)
    except (OSError, ssl.SSLError) as error:
        raise FileUnreadable(
            f"cannot use the broker's certificates: {error.strerror or error}",
            hint="the authority, the certificate and the key of [fleet]",
        ) from error
    return context


def password(path: str) -> str | None:
    """The file's first line."""
    if not path:
        return None
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_PASSWORD_BYTES)
    except OSError as error:
        raise FileUnreadable(f"cannot read {path}: {error.strerror}") from error
    try:
        return data.split(b"\n")[0].decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"cannot use {path}: the password is no UTF-8") from error
