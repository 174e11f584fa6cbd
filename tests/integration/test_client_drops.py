"""Connections that a program only lets go of, while messages come: its threads go on."""

from __future__ import annotations

import subprocess
import sys

import pytest

from stoker.tour.private_bus import PrivateBus

pytestmark = pytest.mark.bus

# The collector runs in any thread and frees what was let go of, with Python's lock held.
PROGRAM = """
import gc, sys, threading, time
from stoker_client.bus import Bus

END = time.monotonic() + 3.0
dropped = []

def storm():
    con = Bus(sys.argv[1]).connected().con
    while time.monotonic() < END:
        for _ in range(20):
            con.emit_signal(None, "/a", "a.b", "c", None)
        con.flush_sync(None)

def drop():
    while time.monotonic() < END:
        con = Bus(sys.argv[1]).connected().con
        con.signal_subscribe(None, "a.b", "c", None, None, 0, lambda *_: None)
        time.sleep(0.003)
        del con
        dropped.append(1)
        gc.collect()

threads = [threading.Thread(target=work) for work in (storm, drop, drop)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(dropped))
"""


def test_a_dropped_connection_never_stops_the_process(
    private_bus: PrivateBus, child_env: dict[str, str]
) -> None:
    words = [sys.executable, "-c", PROGRAM, private_bus.address]
    done = subprocess.run(
        words, check=False, env=child_env, timeout=60, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10
