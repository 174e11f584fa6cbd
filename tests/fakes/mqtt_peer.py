"""An operator's or a stranger's MQTT client for tests: publish, clear, look at what is retained.

It waits for what it asks for; nothing of ours is in it.
"""

from __future__ import annotations

import queue
import threading
from types import TracebackType
from typing import Any, Self

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

WAIT_S = 10.0


class Peer:
    """``where``: host and port, or a Unix socket's path and 0."""

    def __init__(
        self,
        where: tuple[str, int],
        user: str = "",
        password: str = "",
        tls: tuple[str, str, str] | None = None,
        name: str = "",
        clean: bool = True,
        v5: bool = True,
    ) -> None:
        """``tls``: paths of the authority, the certificate and the key."""
        self._where, self._clean, self._v5 = where, clean, v5
        options: dict[str, Any] = {} if v5 else {"clean_session": clean}
        self.client = mqtt.Client(
            CallbackAPIVersion.VERSION2, client_id=name,
            protocol=mqtt.MQTTv5 if v5 else mqtt.MQTTv311,
            transport="tcp" if where[1] else "unix", **options,
        )  # fmt: skip
        if user:
            self.client.username_pw_set(user, password)
        if tls is not None:
            self.client.tls_set(*tls)
        self.client.on_connect = self._on_connect
        self.client.on_message = self._on_message
        self.client.on_publish = self._on_publish
        self.client.on_subscribe = self._on_subscribe
        self.messages: queue.Queue[mqtt.MQTTMessage] = queue.Queue()
        self.codes: dict[int, Any] = {}  # of publishes, by message id
        self._event = threading.Condition()
        self._connected: Any = None
        self._granted: set[int] = set()

    def connect(self) -> Self:
        host, port = self._where
        if port and self._v5:
            self.client.connect(host, port, clean_start=self._clean)
        elif port:
            self.client.connect(host, port)
        else:
            self.client.connect(host)
        self.client.loop_start()
        self._until(lambda: self._connected is not None, "an answer to CONNECT")
        assert not self._connected.is_failure, f"refused: {self._connected}"
        return self

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def __enter__(self) -> Self:
        return self.connect()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def publish(self, topic: str, payload: bytes, *, retain: bool = True, qos: int = 1) -> str:
        """The broker's word on it: "Success" or why not (only MQTT 5 tells). That nobody
        listens is no failure.
        """
        sent = self.client.publish(topic, payload, qos=qos, retain=retain)
        self._until(lambda: sent.mid in self.codes, f"an answer to {topic}")
        code = self.codes[sent.mid]
        return str(code) if code.is_failure else "Success"

    def clear(self, topic: str) -> str:
        return self.publish(topic, b"")

    def subscribe(self, topic: str, qos: int = 1) -> None:
        _, mid = self.client.subscribe(topic, qos=qos)
        self._until(lambda: mid in self._granted, f"a subscription to {topic}")

    def next(self, timeout_s: float = WAIT_S) -> mqtt.MQTTMessage:
        return self.messages.get(timeout=timeout_s)

    def retained(self, topic: str, timeout_s: float = 1.0) -> bytes | None:
        """What is retained under a topic; None after ``timeout_s`` without anything."""
        self.subscribe(topic)
        try:
            while True:
                found = self.messages.get(timeout=timeout_s)
                if found.topic == topic and found.retain:
                    return bytes(found.payload)
        except queue.Empty:
            return None
        finally:
            self.client.unsubscribe(topic)

    def _until(self, there: Any, what: str) -> None:
        with self._event:
            assert self._event.wait_for(there, WAIT_S), f"cannot get {what}"

    def _on_connect(self, _c: Any, _u: Any, _flags: Any, code: Any, _properties: Any) -> None:
        with self._event:
            self._connected = code
            self._event.notify_all()

    def _on_message(self, _client: Any, _userdata: Any, message: mqtt.MQTTMessage) -> None:
        self.messages.put(message)

    def _on_publish(self, _c: Any, _u: Any, mid: int, code: Any, _properties: Any) -> None:
        with self._event:
            self.codes[mid] = code
            self._event.notify_all()

    def _on_subscribe(self, _c: Any, _u: Any, mid: int, _codes: Any, _properties: Any) -> None:
        with self._event:
            self._granted.add(mid)
            self._event.notify_all()
