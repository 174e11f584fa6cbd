"""A real mosquitto: plain on loopback, on a Unix socket, with passwords, or with TLS and ACLs.

It can be killed and started again on the same port with what it had persisted. Fixtures
(``broker``, ``tls_broker``) are made by the tests that need them: see ``started``. ``make``
makes another kind of broker where a run is told to (``pytest --broker``).
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.mqtt_peer import Peer
from tests.fakes.tls_world import Pair, TlsWorld

ROOT = "stoker/1"
OPERATOR, COLLECTOR = "operator", "collector"
PASSWORD = "correct horse"
ACL = f"""\
user {OPERATOR}
topic readwrite {ROOT}/#
user {COLLECTOR}
topic read {ROOT}/d/#
pattern read {ROOT}/d/%u/#
pattern read {ROOT}/g/+/desired
pattern read {ROOT}/g/+/cmd
pattern read {ROOT}/catalog
pattern read {ROOT}/trust/+
pattern read {ROOT}/b/+
pattern write {ROOT}/d/%u/result
pattern write {ROOT}/d/%u/state
pattern write {ROOT}/d/%u/status
pattern write {ROOT}/d/%u/telemetry
pattern write {ROOT}/d/%u/up/+/+
pattern write {ROOT}/d/%u/ha
pattern write homeassistant/device/%u/config
"""
"""Who may do what, the user being the device's id. docs/fleet.md shows the same."""


def mosquitto() -> str:
    """The program; skips the test where there is none."""
    found = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin")
    if found is None:
        pytest.skip("mosquitto is not installed")
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Broker:
    """One broker. ``host``, ``port`` (0 = ``path`` is a Unix socket), ``users``: name → password,
    ``tls``: clients must show a certificate of that world, and their common name is their user.
    """

    folder: Path
    unix: bool = False
    users: Mapping[str, str] = field(default_factory=dict)
    tls: TlsWorld | None = None
    acl: str = ""
    persistent: bool = True
    more: str = ""
    host: str = "localhost"

    v5 = True  # whether it knows MQTT 5

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = 0 if self.unix else free_port()
        self.path = self.folder / "socket"
        self.log = self.folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._server: Pair | None = self.tls.server() if self.tls else None
        self._prepare()

    def _prepare(self) -> None:
        self._program = mosquitto()
        if self.users:
            self._write_passwords()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Returns when it accepts connections."""
        conf = self.folder / "mosquitto.conf"
        conf.write_text(self._config())
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, "-c", str(conf)], stdout=log, stderr=log, cwd=self.folder
            )
        limit = time.monotonic() + 20.0
        while not self._answers():
            assert self._process.poll() is None, self.log.read_text()
            assert time.monotonic() < limit, f"no broker: {self.log.read_text()}"
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """SIGTERM saves what is retained, SIGKILL does not; safe when it does not run."""
        if self._process is None:
            return
        self._process.send_signal(how)
        self._process.wait(20.0)
        self._process = None

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def save(self) -> None:
        """Write retained messages to the disk, so that a kill does not lose them."""
        assert self._process is not None
        store = self.folder / "mosquitto.db"
        before = store.stat().st_mtime_ns if store.exists() else 0
        self._process.send_signal(signal.SIGUSR1)
        limit = time.monotonic() + 10.0
        while not store.exists() or store.stat().st_mtime_ns == before:
            assert time.monotonic() < limit, "the broker does not save"
            time.sleep(0.02)

    def restart(self, how: signal.Signals = signal.SIGTERM) -> None:
        self.stop(how)
        self.start()

    def restart_hard(self) -> None:
        """What it had not saved is gone."""
        self.restart(signal.SIGKILL)

    def rss_bytes(self) -> int:
        for row in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if row.startswith("VmRSS:"):
                return int(row.split()[1]) * 1024
        return 0

    def _config(self) -> str:
        rows = [
            "user root",
            f"listener {self.port} {self.path if self.unix else '127.0.0.1'}",
            "set_tcp_nodelay true",
            f"allow_anonymous {'false' if self.users or self.tls else 'true'}",
            "log_type all",
            "connection_messages true",
            f"persistence {'true' if self.persistent else 'false'}",
            f"persistence_location {self.folder}/",
            "autosave_interval 3600",
        ]
        if self.users:
            rows.append(f"password_file {self.folder}/passwords")
        if self.acl:
            (self.folder / "acl").write_text(self.acl)
            rows.append(f"acl_file {self.folder}/acl")
        if self.tls is not None and self._server is not None:
            rows += [
                f"cafile {self.tls.ca}",
                f"certfile {self._server.certificate}",
                f"keyfile {self._server.key}",
                "require_certificate true",
                "use_identity_as_username true",
                "tls_version tlsv1.2",
            ]
        return "\n".join([*rows, self.more, ""])

    def _write_passwords(self) -> None:
        path = self.folder / "passwords"
        path.write_text("".join(f"{user}:{word}\n" for user, word in self.users.items()))
        tool = shutil.which("mosquitto_passwd")
        if tool is None:
            pytest.skip("mosquitto_passwd is not installed")
        subprocess.run([tool, "-U", str(path)], check=True)

    def _answers(self) -> bool:
        family = socket.AF_UNIX if self.unix else socket.AF_INET
        where = str(self.path) if self.unix else ("127.0.0.1", self.port)
        with contextlib.suppress(OSError), socket.socket(family) as probe:
            probe.settimeout(1.0)
            probe.connect(where)
            return True
        return False


@contextlib.contextmanager
def started(broker: Broker) -> Iterator[Broker]:
    """``with started(Broker(tmp_path)) as broker``; ended whatever happens."""
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


make: Callable[..., Broker] = Broker
"""The kind of broker that this run is about, for tests that any broker must pass."""


def plain(folder: Path) -> Broker:
    """Anybody on this machine may do anything."""
    return make(folder)


def by_socket(folder: Path) -> Broker:
    return Broker(folder, unix=True)


def by_password(folder: Path, *devices: str) -> Broker:
    """The operator and these devices, all with ``PASSWORD``; the fleet's ACL."""
    users = dict.fromkeys((OPERATOR, COLLECTOR, *devices), PASSWORD)
    return Broker(folder, users=users, acl=ACL)


def by_certificate(folder: Path, world: TlsWorld) -> Broker:
    """TLS with clients' certificates (``world.device(id)``) and the fleet's ACL."""
    return make(folder, tls=world, acl=ACL)


def access(broker: Broker) -> list[str]:
    """An operator's options of stoker-ota."""
    assert broker.tls is not None
    pair = broker.tls.device(OPERATOR)
    return [
        "--broker", f"mqtts://localhost:{broker.port}", "--ca", str(broker.tls.ca),
        "--certificate", str(pair.certificate), "--key", str(pair.key),
    ]  # fmt: skip


def peer(broker: Broker, user: str = "", **options: Any) -> Peer:
    """A client that is let in as this user, by password or by a certificate made for it."""
    where = (str(broker.path), 0) if broker.unix else (broker.host, broker.port)
    options.setdefault("v5", broker.v5)
    if broker.tls is not None:
        pair = broker.tls.device(user or OPERATOR)
        files = (str(broker.tls.ca), str(pair.certificate), str(pair.key))
        return Peer(where, tls=files, **options)
    password = broker.users.get(user, "")
    return Peer(where, user, password, **options)
