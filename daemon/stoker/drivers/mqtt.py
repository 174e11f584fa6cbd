"""MQTT by paho: one connection at a time, 5 or 3.1.1; callbacks hand over and do nothing else.

Each connection is a client of its own, so that nothing of a lost one is sent again behind
our back; reconnecting is the fleet link's decision. Received QoS 1 messages are only
acknowledged when ``acknowledge`` is called. It must not be imported before a broker is
configured.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import paho.mqtt.client as paho

from stoker.drivers import mqtt_dial
from stoker.drivers.device_certificate import DeviceCertificate
from stoker.drivers.mqtt_dial import BrokerAccess, Client
from stoker.errors import Unavailable
from stoker.events.fleet import (
    BrokerEvent,
    Connected,
    Login,
    Lost,
    Message,
    ProbeStep,
    Published,
    Subscribed,
)

_log = logging.getLogger(__name__)
_TAKEN_OVER: Final = 0x8E
_PROTOCOL: Final = (0x84,)
_AUTH: Final = (0x85, 0x86, 0x87, 0x8A, 0x8C)


class PahoBroker:
    """Port ``Broker``."""

    def __init__(self, access: BrokerAccess, tell: Callable[[BrokerEvent], None]) -> None:
        self._access, self._tell = access, tell
        self._connection = 0
        self._client: Client | None = None
        self._lock = threading.Lock()
        self._topics: dict[int, tuple[str, ...]] = {}

    def connect(self, login: Login, connection: int) -> None:
        self.drop()
        with self._lock:
            self._connection = connection
        run = threading.Thread(
            target=self._connect, args=(login, connection), name="fleet-connect", daemon=True
        )
        run.start()

    def publish(self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False) -> int:
        client = self._client
        if client is None or not client.is_connected():
            return 0
        with contextlib.suppress(ValueError, RuntimeError):
            sent = client.publish(topic, payload, qos=qos, retain=retain)
            if sent.rc == paho.MQTT_ERR_SUCCESS:
                return int(sent.mid)
        return 0

    def subscribe(self, topics: Sequence[str]) -> int:
        client = self._client
        if client is None or not topics:
            return 0
        with self._lock:  # the answer must not come before the topics are noted
            code, mid = client.subscribe([(topic, 1) for topic in topics])
            if code != paho.MQTT_ERR_SUCCESS or mid is None:
                return 0
            self._topics[mid] = tuple(topics)
        return int(mid)

    def unsubscribe(self, topics: Sequence[str]) -> None:
        client = self._client
        if client is not None and topics:
            client.unsubscribe(list(topics))

    def acknowledge(self, message: Message) -> None:
        client = self._client
        if client is not None and message.connection == self._connection and message.token:
            client.ack(message.token, 1)

    def drop(self) -> None:
        with self._lock:
            client, self._client = self._client, None
            self._connection = -1
            self._topics.clear()
        if client is not None:
            _hang_up(client)

    def disconnect(self, farewell: tuple[str, bytes] | None, timeout_s: float) -> None:
        with self._lock:
            client, self._client = self._client, None
            self._connection = -1
        if client is None:
            return
        with contextlib.suppress(ValueError, RuntimeError):
            if farewell is not None and client.is_connected():
                last = client.publish(farewell[0], farewell[1], qos=1, retain=True)
                last.wait_for_publish(timeout_s)
            client.disconnect()
        _stop(client, timeout_s)

    def certificate_expires(self) -> float:
        return mqtt_dial.certificate_end(self._access.certificate)

    def enroll(self, device: str) -> str:
        return self._own(device).request()

    def adopt(self, device: str, pem: bytes) -> None:
        self._own(device).adopt(pem)

    def _own(self, device: str) -> DeviceCertificate:
        from stoker.drivers import mqtt_probe

        def prove(certificate: str, key: str) -> None:
            tried = replace(self._access, certificate=certificate, key=key)
            try:
                mqtt_probe.prove(tried, device)
            except OSError as error:
                cause, text = mqtt_dial.cause_of(error)
                raise Unavailable(
                    f"cannot use the new certificate: {text}", details={"cause": cause}
                ) from error

        return DeviceCertificate(self._access.certificate, self._access.key, device, prove)

    def test(
        self, device: str, topics: Sequence[str], writes: Sequence[str]
    ) -> Sequence[ProbeStep]:
        from stoker.drivers import mqtt_probe

        return mqtt_probe.run(self._access, device, topics, writes)

    # the connecting thread

    def _connect(self, login: Login, connection: int) -> None:
        try:
            if self._access.certificate:
                self._own(login.client_id).mend()
            client = mqtt_dial.make_client(self._access, login)
            client.will_set(*login.will, qos=1, retain=True)
            self._listen(client, connection)
            with self._lock:
                if connection != self._connection:
                    return
                self._client = client
            mqtt_dial.dial(client, self._access, login)
            if connection != self._connection:  # given up meanwhile: it must not live on
                _hang_up(client)
                return
            client.loop_start()
        except Exception as error:  # told, whatever it is: this thread has nobody above it
            cause, text = mqtt_dial.cause_of(error)
            if cause == "fault":
                _log.exception("cannot connect")
            self._tell(Lost(connection, cause, text))

    # callbacks, in the library's thread: hand over, nothing else

    def _listen(self, client: Client, connection: int) -> None:
        answered = False

        def on_connect(_c: Any, _u: Any, flags: Any, code: Any, properties: Any) -> None:
            nonlocal answered
            answered = True
            if code.is_failure:
                self._lost(connection, _refusal(code.value), f"the broker refuses: {code}")
            else:
                self._tell(_connected(connection, flags, properties))

        def on_disconnect(_c: Any, _u: Any, flags: Any, code: Any, _properties: Any) -> None:
            cause = (
                "closed" if flags.is_disconnect_packet_from_server or not answered else "network"
            )
            if code.value == _TAKEN_OVER:
                cause = "taken-over"
            elif str(code) == "Unspecified error" or code.value == 0:
                cause = "closed"
            self._lost(connection, cause, f"the connection ended: {code}")

        def on_message(_c: Any, _u: Any, message: paho.MQTTMessage) -> None:
            try:
                topic = message.topic
            except UnicodeError:
                topic = ""
            self._tell(
                Message(
                    connection, topic, bytes(message.payload), bool(message.retain),
                    bool(message.dup), message.mid if message.qos else 0,
                )
            )  # fmt: skip

        def on_publish(_c: Any, _u: Any, mid: int, code: Any, _properties: Any) -> None:
            refused = str(code) if code.is_failure else ""
            self._tell(Published(connection, mid, refused))

        def on_subscribe(_c: Any, _u: Any, mid: int, codes: Any, _properties: Any) -> None:
            with self._lock:
                topics = self._topics.pop(mid, ())
            refused = {
                topic: str(code) for topic, code in zip(topics, codes, strict=False)
                if code.is_failure
            }  # fmt: skip
            self._tell(Subscribed(connection, mid, refused))

        client.on_connect, client.on_disconnect = on_connect, on_disconnect
        client.on_message, client.on_publish = on_message, on_publish
        client.on_subscribe = on_subscribe
        client.broken = lambda error: self._lost(connection, "closed", f"library: {error}")

    def _lost(self, connection: int, cause: str, text: str) -> None:
        self._tell(Lost(connection, cause, text))


def _refusal(code: int) -> str:
    if code in _PROTOCOL:
        return "protocol"
    return "auth" if code in _AUTH else "network"


def _connected(connection: int, flags: Any, properties: Any) -> Connected:
    def told(name: str, default: Any) -> Any:
        return getattr(properties, name, default) if properties is not None else default

    return Connected(
        connection,
        session_present=bool(flags.session_present),
        receive_maximum=int(told("ReceiveMaximum", 65_535)),
        maximum_packet=int(told("MaximumPacketSize", 0)),
        client_id=str(told("AssignedClientIdentifier", "")),
    )


def _hang_up(client: paho.Client) -> None:
    """Without DISCONNECT, so that the will is published. Its last events are stale already."""
    with contextlib.suppress(OSError, ValueError):
        sock: Any = client.socket()
        if sock is not None:
            sock.shutdown(socket.SHUT_RDWR)
    threading.Thread(target=_stop, args=(client, 5.0), name="fleet-hangup", daemon=True).start()


def _stop(client: paho.Client, timeout_s: float) -> None:  # noqa: ARG001
    with contextlib.suppress(Exception):
        client.loop_stop()
