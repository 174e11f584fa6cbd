"""What the bus adds: the same engine in this process against a real stokerd on D-Bus.

Both use one library, one model, the same load settings and prompt; whoever goes first
changes with every pair. No prefix cache exists on either side.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.pairs import Pair
from stoker.events.runner import Load, Message, Sampling
from stoker.tour.private_bus import PrivateBus

PROMPT = "Explain in one sentence why the sky is blue."
CONTEXT_TOKENS = 2048
SLOTS = 4


class InProcess:
    """The runner's own engine, driven by hand: what a first token costs with nothing around."""

    def __init__(self, model: Path, threads: int) -> None:
        from stoker.runner.library import Library
        from stoker.runner.llama import LlamaEngine

        now = datetime.datetime.now().astimezone()
        self._engine = LlamaEngine(Library(), now=lambda: now)
        load = Load(
            "bench", "bench", str(model), context_tokens=CONTEXT_TOKENS, slots=SLOTS,
            threads=threads, threads_batch=threads,
        )  # fmt: skip
        self._engine.load(load, lambda _fraction: True)

    def first_token_ms(self) -> float:
        """Template, tokens, prefill, sample, text: until the first byte exists."""
        from stoker.runner.engine import Run

        began = time.perf_counter()
        engine = self._engine
        tokens = engine.encode(engine.render([Message("user", PROMPT)]))
        engine.open(0, Sampling(temperature=0.0), 1)
        engine.step([Run(0, 0, tokens, True)])
        assert engine.piece(engine.sample(0))
        took = time.perf_counter() - began
        engine.close(0)
        return took * 1000


class OverBus:
    """A real stokerd on a bus of its own, and one plain GDBus client."""

    def __init__(self, model: Path, threads: int) -> None:
        self._stack = contextlib.ExitStack()
        home = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        bus = self._stack.enter_context(PrivateBus())
        config = home / "stoker.toml"
        config.write_text(
            f"[runner]\nthreads = {threads}\nslots = {SLOTS}\n"
            f'[models.bench]\npath = "{model}"\ncontext_tokens = {CONTEXT_TOKENS}\n'
        )
        where = {"bus": bus.address, "config": config, "state-dir": home, "runtime-dir": home}
        command = [sys.executable, "-m", "stoker.main", "--log-level", "error"]
        command += [f"--{name}={value}" for name, value in where.items()]
        self._daemon = subprocess.Popen(command)
        self._stack.callback(self._daemon.wait, 30)
        self._stack.callback(self._daemon.terminate)
        import pydbus

        from stoker_client import Stoker

        self._client = Stoker(bus.address)
        self._con = pydbus.connect(bus.address).con
        self._wait_ready()

    def close(self) -> None:
        self._stack.close()

    def first_token_ms(self) -> float:
        """From the call until the first byte of text can be read; a bare GDBus call, as any
        client in C would make it.
        """
        from gi.repository import GLib

        request = {
            "prompt": GLib.Variant("s", PROMPT),
            "temperature": GLib.Variant("d", 0.0),
            "max_tokens": GLib.Variant("u", 2),
        }
        options = {"format": GLib.Variant("s", "text")}
        body = GLib.Variant("(a{sv}a{sv})", (request, options))
        began = time.perf_counter()
        reply, fds = self._con.call_with_unix_fd_list_sync(
            "org.stoker.Agent1", "/org/stoker/Agent1", "org.stoker.Inference1", "CreateJob",
            body, None, 0, 60_000, None, None,
        )  # fmt: skip
        fd = fds.steal_fds()[reply[1]]
        assert os.read(fd, 65_536)
        took = time.perf_counter() - began
        while os.read(fd, 65_536):
            pass
        os.close(fd)
        return took * 1000

    def tokens_s(self, tokens: int) -> float:
        """Decoding speed as the reader of the pipe sees it: first text to last line."""
        first = 0.0
        with self._client.stream(
            ".", raw=True, temperature=0.0, max_tokens=tokens, reasoning=False
        ) as stream:
            made: Any = 0
            for record in stream:
                first = first or (time.perf_counter() if record.kind == "text" else 0.0)
                made = record.inner("usage").get("completion_tokens", made)
        return float((made - 1) / (time.perf_counter() - first))

    def _wait_ready(self) -> None:
        end = time.monotonic() + 120
        while time.monotonic() < end:
            with contextlib.suppress(Exception):  # not on the bus yet
                if self._client.status()["state"] == "ready":
                    return
            time.sleep(0.05)
        raise SystemExit("cannot measure: stokerd did not become ready")


def first_token_added(model: Path, threads: int, pairs: int) -> Iterator[Pair]:
    """(milliseconds over the bus, milliseconds in process)."""
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    alone = InProcess(model, threads)
    over = OverBus(model, threads)
    try:
        for _ in range(3):
            alone.first_token_ms(), over.first_token_ms()
        for index in range(pairs):
            if index % 2:
                inside = alone.first_token_ms()
                yield over.first_token_ms(), inside
            else:
                outside = over.first_token_ms()
                yield outside, alone.first_token_ms()
    finally:
        over.close()
