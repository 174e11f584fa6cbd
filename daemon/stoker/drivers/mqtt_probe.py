"""Why there is no connection: certificate, name, TCP, TLS, login and rights, one after the other.

On a connection of its own with another client id, so that it disturbs nothing; what it
publishes is empty. It blocks, and says what to do about each failure.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from stoker.drivers import mqtt_dial
from stoker.drivers.mqtt_dial import BrokerAccess
from stoker.errors import Unavailable
from stoker.events.fleet import Login, ProbeStep

WAIT_S: Final = 10.0
BACK_S: Final = 3.0
_ACL: Final = "look at the broker's ACL: docs/fleet.md shows one"
_HINTS: Final = {
    "dns": "is the name right, and is there a network? try: getent hosts NAME",
    "network": "is the broker running, and does a firewall let us through?",
    "tls": "compare [fleet] ca with the authority of the broker's certificate",
    "clock": "this device's clock may be wrong: timedatectl",
    "auth": "is the certificate's common name, or the user name, known to the broker?",
    "protocol": "the broker speaks another protocol on this port",
    "closed": "the broker hung up: its log says why",
}


def run(
    access: BrokerAccess, device: str, topics: Sequence[str], writes: Sequence[str]
) -> tuple[ProbeStep, ...]:
    """Stops at the first step that the next ones need. ``writes``: all topics that we write; the
    last of them is our own to read as well.
    """
    own = _tried("certificate", lambda: _own(access))
    steps: list[ProbeStep] = [own]
    for name, look in (("dns", _dns), ("tcp", _tcp), ("tls", _tls)):
        step = _tried(name, lambda look=look: look(access))  # type: ignore[misc]
        if step.outcome == "failed":
            return (*steps, _because(step, own), *_skipped(name))
        steps.append(step)
    return (*steps, *_session(access, device, topics, writes))


def _because(step: ProbeStep, own: ProbeStep) -> ProbeStep:
    """What a broker says of an expired certificate is no word about its authority."""
    if own.outcome != "failed" or step.name not in ("tls", "login"):
        return step
    return replace(step, hint=f"{own.text}: {own.hint}")


def prove(access: BrokerAccess, device: str) -> None:
    """Unavailable unless the broker lets us in. Blocks."""
    _tls(access)
    steps = _session(access, device, (), ())
    if steps[0].outcome != "ok":
        raise Unavailable(f"cannot use the new certificate: {steps[0].text}", hint=steps[0].hint)


def _dns(access: BrokerAccess) -> ProbeStep:
    where = access.address
    if where.path:
        return ProbeStep("dns", "skipped", "a Unix socket has no name to look up")
    found = socket.getaddrinfo(where.host, where.port, type=socket.SOCK_STREAM)
    addresses = sorted({str(item[4][0]) for item in found})
    return ProbeStep("dns", "ok", f"{where.host} is {', '.join(addresses[:4])}")


def _tcp(access: BrokerAccess) -> ProbeStep:
    begun = time.monotonic()
    with _dialled(access):
        took_ms = (time.monotonic() - begun) * 1000
    where = access.address.path or f"{access.address.host}:{access.address.port}"
    return ProbeStep("tcp", "ok", f"{where} answers in {took_ms:.0f} ms")


def _tls(access: BrokerAccess) -> ProbeStep:
    if not access.address.tls:
        return ProbeStep("tls", "skipped", "this connection never leaves the machine")
    context = mqtt_dial.tls_context(access)
    with (
        _dialled(access) as plain,
        context.wrap_socket(plain, server_hostname=access.address.host) as sock,
    ):
        version, peer = sock.version(), sock.getpeercert() or {}
        until = str(peer.get("notAfter", "unknown"))
        # TLS 1.3 refuses our certificate only after the handshake: it then says so here.
        sock.settimeout(0.5)
        try:
            if sock.recv(1) == b"":
                raise ssl.SSLError("the broker hung up after the handshake")
        except TimeoutError:
            pass
    return ProbeStep("tls", "ok", f"{version}; the broker's certificate is valid until {until}")


def _dialled(access: BrokerAccess) -> socket.socket:
    where = access.address
    if where.path:
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(WAIT_S)
        sock.connect(where.path)
        return sock
    return socket.create_connection((where.host, where.port), timeout=WAIT_S)


def _session(
    access: BrokerAccess, device: str, topics: Sequence[str], writes: Sequence[str]
) -> list[ProbeStep]:
    talk = _Talk()
    for protocol in (5, 4):
        talk = _Talk()
        step = _tried("login", lambda talk=talk, p=protocol: talk.login(access, device, p))  # type: ignore[misc]
        if step.outcome != "failed" or not talk.old:
            break
    if step.outcome == "failed":
        return [_because(step, _tried("certificate", lambda: _own(access))), *_skipped("login")]
    try:
        if not topics:
            return [step]
        granted = talk.subscribe([*topics, writes[-1]])
        return [step, granted, talk.publish(writes), talk.came_back(writes[-1])]
    finally:
        talk.close()


def client_id(device: str) -> str:
    """Another than the device's own, which would be thrown out; at most 64 characters."""
    return f"{device[:59]}-test"


class _Talk:
    def __init__(self) -> None:
        self._turn = threading.Condition()
        self._answers: dict[str, Any] = {}
        self._client: Any = None
        self._v5 = True
        self.old = False  # it may only speak MQTT 3.1.1

    def login(self, access: BrokerAccess, device: str, protocol: int) -> ProbeStep:
        self._v5 = protocol == mqtt_dial.V5
        login = Login(client_id(device), protocol, ("", b""))
        client = self._client = mqtt_dial.make_client(access, login, clean=True)
        client.on_connect = lambda _c, _u, _f, code, _p: self._say("login", code)
        client.on_disconnect = lambda _c, _u, _f, code, _p: self._say("gone", code)
        client.on_subscribe = lambda _c, _u, _m, codes, _p: self._say("subscribe", codes)
        client.on_publish = lambda _c, _u, mid, code, _p: self._say(f"publish {mid}", code)
        client.on_message = lambda _c, _u, message: self._say(f"heard {message.topic}", True)
        mqtt_dial.dial(client, access, login, clean=True)
        client.loop_start()
        code = self._wait("login", "gone")
        words = "MQTT 5" if self._v5 else "MQTT 3.1.1"
        if code is None:
            return _failed("login", "the broker does not answer", "network")
        if code.is_failure or "login" not in self._answers:
            self.old = self._v5 and (code.value == 0x84 or "login" not in self._answers)
            self.close()
            return _failed("login", f"the broker refuses: {code}", "auth")
        return ProbeStep("login", "ok", f"let in with {words}")

    def subscribe(self, topics: Sequence[str]) -> ProbeStep:
        self._client.subscribe([(topic, 1) for topic in topics])
        codes = self._wait("subscribe", "gone")
        if not isinstance(codes, list):
            return _failed("subscribe", "the broker hangs up", "closed")
        refused = [t for t, code in zip(topics, codes, strict=False) if code.is_failure]
        if refused:
            return ProbeStep("subscribe", "failed", f"denied: {', '.join(refused)}", _ACL)
        return ProbeStep("subscribe", "ok", f"{len(topics)} topics granted")

    def publish(self, topics: Sequence[str]) -> ProbeStep:
        """Nothing, to each of them: no reader takes that for news."""
        refused = []
        for topic in topics:
            sent = self._client.publish(topic, b"", qos=1)
            code = self._wait(f"publish {sent.mid}", "gone")
            if code is None or f"publish {sent.mid}" not in self._answers:
                text = f"{topic}: the broker hangs up or does not answer"
                return _failed("publish", text, "closed")
            if code.is_failure:
                refused.append(f"{topic}: {code}")
        if refused:
            return ProbeStep("publish", "failed", "; ".join(refused), _ACL)
        if not self._v5:
            return ProbeStep("publish", "unknown", "MQTT 3.1.1 does not tell whether it is allowed")
        return ProbeStep("publish", "ok", f"{len(topics)} topics are allowed")

    def came_back(self, topic: str) -> ProbeStep:
        """A broker may grant what it never delivers."""
        if self._wait(f"heard {topic}", wait_s=BACK_S) is None:
            text = f"what was published to {topic} did not come back: may this device read its own?"
            return ProbeStep("loop-back", "failed", text, _ACL)
        return ProbeStep("loop-back", "ok", "what was published came back")

    def close(self) -> None:
        if self._client is not None:
            self._client.disconnect()
            self._client.loop_stop()

    def _say(self, what: str, value: Any) -> None:
        with self._turn:
            self._answers.setdefault(what, value)
            self._turn.notify_all()

    def _wait(self, *names: str, wait_s: float = WAIT_S) -> Any:
        """The first answer of these; None when the time is over."""
        with self._turn:
            self._turn.wait_for(lambda: any(n in self._answers for n in names), wait_s)
            return next((self._answers[n] for n in names if n in self._answers), None)


def _own(access: BrokerAccess) -> ProbeStep:
    end_s = mqtt_dial.certificate_end(access.certificate)
    if not end_s:
        return ProbeStep("certificate", "skipped", "this device shows no certificate")
    days = (end_s - time.time()) / 86_400
    if days <= 0:
        return _failed("certificate", "this device's certificate has expired", "clock")
    return ProbeStep("certificate", "ok", f"this device's own is valid for {days:.0f} more days")


def _tried(name: str, look: Callable[[], ProbeStep]) -> ProbeStep:
    try:
        return look()
    except Exception as error:  # a test's answer is never a fault
        cause, text = mqtt_dial.cause_of(error)
        return _failed(name, text, cause)


def _failed(name: str, text: str, cause: str) -> ProbeStep:
    return ProbeStep(name, "failed", text, _HINTS.get(cause, ""))


def _skipped(after: str) -> list[ProbeStep]:
    names = ("dns", "tcp", "tls", "login", "subscribe", "publish", "loop-back")
    return [
        ProbeStep(name, "skipped", f"needs {after}") for name in names[names.index(after) + 1 :]
    ]
