"""A bundle in one file, and clients of every kind while sets come and go (echo engine)."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gi.repository import GLib
from tests.fakes.update_bundles import Operator, ota
from tests.integration import update_rig as rig
from tests.integration.stokerd_rig import Stokerd, echoes

from stoker import errors
from stoker.tour.private_bus import PrivateBus
from stoker_client import Stoker, StokerClientError

pytestmark = [pytest.mark.bus, pytest.mark.timeout(180)]
SIZE = 1 << 20


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Operator:
    made = Operator.found(tmp_path_factory.mktemp("operator"))
    v1, v2, v3 = rig.three_versions(made.home, SIZE)
    made.bundle(1, v1, v2)
    made.bundle(2, v2, v3)
    return made


@pytest.fixture
def daemon(
    private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str], operator: Operator
) -> Iterator[Stokerd]:
    with echoes(private_bus, tmp_path, child_env) as start:
        yield start(rig.config(operator.home / "v1", operator))


def _packed(operator: Operator, number: int, to: Path) -> Path:
    ota("bundle", "pack", f"bundle-{number}", "-o", str(to), home=operator.home)
    return to


def test_a_bundle_in_one_file_is_the_same_bytes_and_is_installed_as_a_folder_is(
    daemon: Stokerd, operator: Operator, tmp_path: Path, child_env: dict[str, str]
) -> None:
    one = _packed(operator, 1, tmp_path / "one.bundle")
    two = _packed(operator, 1, tmp_path / "two.bundle")
    assert one.read_bytes() == two.read_bytes()
    command = [sys.executable, "-m", "stoker.cli.main", "--bus", daemon.bus.address, "update"]
    for words in (["inspect", str(one)], ["install", str(one)]):
        done = subprocess.run(
            [*command, *words], env=child_env, text=True, capture_output=True, timeout=60,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert Path(rig.served_path(daemon)).read_bytes() == (operator.home / "v2").read_bytes()


def test_a_changed_byte_anywhere_in_the_file_never_makes_another_model(
    daemon: Stokerd, operator: Operator, tmp_path: Path
) -> None:
    """Where nobody looks (the device's own trust document again) it does no harm."""
    whole = _packed(operator, 1, tmp_path / "whole").read_bytes()
    good = [(operator.home / name).read_bytes() for name in ("v1", "v2")]
    chance = random.Random(5)
    refused = 0
    for number in range(24):
        data = bytearray(whole)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        bad = tmp_path / f"bad-{number}"
        bad.write_bytes(data)
        try:
            last = rig.end(daemon, rig.install(daemon, bad, force=GLib.Variant("b", True)))
            refused += last["State"] == "failed"
        except errors.StokerError:
            refused += 1
        rig.rest(daemon)
        assert Path(rig.served_path(daemon)).read_bytes() in good
    assert refused > 12
    last = rig.end(daemon, rig.install(daemon, tmp_path / "whole", force=GLib.Variant("b", True)))
    assert last["Error"] == ("", "")


class Clients:
    """Five that stream and three that talk, as long as it goes on; what they had to complain of."""

    def __init__(self, address: str) -> None:
        self.address, self.stop = address, threading.Event()
        self.answers, self.faults = 0, list[str]()
        work = [self._streaming] * 5 + [self._talking] * 3
        self._threads = [threading.Thread(target=one) for one in work]

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join(30)

    def _patiently(self, ask: Callable[[], object]) -> None:
        """What a client does: try again when it is told to."""
        end = time.monotonic() + 10
        while True:
            try:
                ask()
                self.answers += 1
                return
            except StokerClientError as error:
                if not error.retryable or time.monotonic() > end:
                    self.faults.append(f"{error.code}: {error}")
                    return
                time.sleep(0.02)

    def _streaming(self) -> None:
        words = " ".join(f"w{number}" for number in range(20))

        def stream() -> None:
            got = "".join(r.text for r in stoker.stream(f"!slow 5 {words}") if r.kind == "text")
            if got.split() != words.split():
                self.faults.append(f"a broken answer: {got!r}")

        with Stoker(self.address) as stoker:
            while not self.stop.is_set():
                self._patiently(stream)

    def _talking(self) -> None:
        with Stoker(self.address) as stoker:
            session, turns = stoker.session(), 0
            while not self.stop.is_set():
                self._patiently(lambda: session.ask("one more word"))
                turns += 1
            if session.facts()["Turns"] != turns:
                self.faults.append(f"a broken conversation: {session.facts()['Turns']} of {turns}")


def test_clients_see_at_most_a_short_busy_while_sets_come_and_go(
    daemon: Stokerd, operator: Operator
) -> None:
    with Clients(daemon.bus.address) as clients:
        for number in (1, 2):
            last = rig.end(daemon, rig.install(daemon, operator.home / f"bundle-{number}"))
            assert last["Error"] == ("", "")
            rig.rest(daemon)
        job = str(daemon.client.call("org.stoker.Update1", "Rollback"))
        assert rig.end(daemon, job)["State"] == "done"
    assert not clients.faults
    assert clients.answers > 8
    assert os.path.realpath(rig.served_path(daemon)).endswith(_sha(operator.home / "v2"))


def _sha(file: Path) -> str:
    import hashlib

    return hashlib.sha256(file.read_bytes()).hexdigest()
