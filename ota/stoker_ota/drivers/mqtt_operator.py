"""An operator's connection to the fleet's broker: publish with an answer, hear, read what is kept.

It waits in the caller's thread and reconnects by itself; the broker is not trusted: what
counts in what it carries is signed. paho is loaded here.
"""

from __future__ import annotations

import contextlib
import queue
import ssl
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from stoker_ota.drivers import mqtt_link
from stoker_ota.errors import Unavailable
from stoker_ota.values.fetching import Broker

WAIT_S: Final = 15.0
_properties: Any = Properties  # it has no types


@dataclass(frozen=True, slots=True)
class Heard:
    topic: str
    payload: bytes
    retained: bool


class OperatorLink:
    """``with OperatorLink(broker) as link``. Raises Unavailable, FileUnreadable."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._name = broker, broker.path or f"{broker.host}:{broker.port}"
        self._heard: queue.Queue[Heard] = queue.Queue()
        self._turn = threading.Condition()
        self._answers: dict[tuple[str, int], Any] = {}
        self._connected: Any = None
        self._closed = False  # before it answered
        self._old = False  # it speaks 3.1.1 only
        self._filters: list[str] = []
        self._client = self._make()

    def __enter__(self) -> Self:
        """MQTT 5 first; 3.1.1 where a broker refuses that, hangs up, or is silent."""
        if not self._let_in() and not self._old:
            self._old, self._connected, self._closed = True, None, False
            self._client = self._make()
            self._let_in()
        if self._connected is None:
            self._client.loop_stop()
            what = "it hangs up" if self._closed else "it is silent"
            raise Unavailable(f"cannot use the broker {self._name}: {what}")
        if self._connected.is_failure:
            self._client.loop_stop()
            raise Unavailable(
                f"cannot use the broker {self._name}: {self._connected}",
                hint="is this user or certificate known to it?",
            )
        return self

    def _let_in(self) -> bool:
        """Whether it has answered in this version of the protocol. Unavailable."""
        host, port = self._broker.path or self._broker.host, self._broker.port or 1
        more: dict[str, Any] = {} if self._old else {"clean_start": True}
        try:
            self._client.connect(host, port, keepalive=60, **more)
        except (OSError, ssl.SSLError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise Unavailable(f"cannot reach the broker {self._name}: {reason}") from error
        self._client.loop_start()
        self._until(lambda: self._connected is not None or self._closed)
        answer = self._connected
        known = answer is not None and answer.getName() != mqtt_link.UNKNOWN_VERSION
        if not known and not self._old:
            self._client.loop_stop()
        return known

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def publish(self, topic: str, payload: bytes, *, retain: bool, expiry_s: int = 0) -> None:
        """Returns when the broker has it. Unavailable when it does not take it."""
        more: dict[str, Any] = {}
        if expiry_s and not self._old:
            more["properties"] = properties = _properties(PacketTypes.PUBLISH)
            properties.MessageExpiryInterval = expiry_s
        sent = self._client.publish(topic, payload, qos=1, retain=retain, **more)
        key = ("publish", sent.mid)
        if not self._until(lambda: key in self._answers):
            raise Unavailable(f"cannot publish {topic}: the broker does not answer")
        code = self._answers.pop(key)
        if code.is_failure:
            raise Unavailable(
                f"cannot publish {topic}: {code}", hint="look at the broker's access rules"
            )

    def subscribe(self, filters: Sequence[str]) -> None:
        self._filters += filters
        _, mid = self._client.subscribe([(item, 1) for item in filters])
        key = ("subscribe", mid or 0)
        if not self._until(lambda: key in self._answers):
            raise Unavailable("cannot subscribe: the broker does not answer")
        refused = [str(code) for code in self._answers.pop(key) if code.is_failure]
        if refused:
            raise Unavailable(f"cannot subscribe to {', '.join(filters)}: {refused[0]}")

    def hear(self, timeout_s: float) -> Heard | None:
        """The next message; None when the time is over."""
        with contextlib.suppress(queue.Empty):
            return self._heard.get(timeout=max(0.0, timeout_s))
        return None

    def kept(self, topic: str, timeout_s: float = 2.0) -> bytes:
        """What is retained there; b"" when nothing comes in time."""
        self.subscribe([topic])
        found = self.hear(timeout_s)
        while found is not None and found.topic != topic:
            found = self.hear(timeout_s)
        self._client.unsubscribe(topic)
        self._filters.remove(topic)
        return found.payload if found is not None else b""

    def _make(self) -> Any:
        client = mqtt_link.make_client(self._broker, self._broker.client_id, old=self._old)
        client.on_connect, client.on_disconnect = self._on_connect, self._on_disconnect
        client.on_message = self._on_message
        client.on_publish = lambda _c, _u, mid, code, _p: self._say("publish", mid, code)
        client.on_subscribe = lambda _c, _u, mid, codes, _p: self._say("subscribe", mid, codes)
        return client

    def _on_connect(self, client: Any, _u: Any, _flags: Any, code: Any, _properties: Any) -> None:
        with self._turn:
            if client is not self._client:
                return  # that of a protocol that it does not know
            again, self._connected = self._connected is not None, code
            self._turn.notify_all()
        if again and self._filters and not code.is_failure:
            client.subscribe([(item, 1) for item in self._filters])

    def _on_disconnect(self, client: Any, _u: Any, _f: Any, _code: Any, _properties: Any) -> None:
        with self._turn:
            if client is self._client and self._connected is None:
                self._closed = True
                self._turn.notify_all()

    def _on_message(self, _client: Any, _userdata: Any, message: mqtt.MQTTMessage) -> None:
        with contextlib.suppress(UnicodeError):
            self._heard.put(Heard(message.topic, bytes(message.payload), bool(message.retain)))

    def _say(self, what: str, mid: int, value: Any) -> None:
        with self._turn:
            self._answers[what, mid] = value
            self._turn.notify_all()

    def _until(self, there: Any) -> bool:
        with self._turn:
            return bool(self._turn.wait_for(there, WAIT_S))
