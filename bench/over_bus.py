"""Stoker as its clients meet it: a real stokerd on a private bus, asked by plain GDBus calls.

``OverBus`` is a ``Side`` of the comparisons; ``InProcess`` is the same engine with nothing
around it, which tells what the bus and the processes add.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.load import Work
from bench.pairs import Pair
from stoker.events.prompt import Message, Sampling
from stoker.events.runner import Load
from stoker.tour import children
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

    def first_token_ms(self, prompt: str) -> float:
        """Template, tokens, prefill, sample, text: until the first byte exists."""
        from stoker.runner.engine import Run

        began = time.perf_counter()
        engine = self._engine
        tokens = engine.encode(engine.render([Message("user", prompt)]))
        engine.open(0, Sampling(temperature=0.0), 1)
        engine.step([Run(0, 0, tokens, True)])
        assert engine.piece(engine.sample(0))
        took = time.perf_counter() - began
        engine.close(0)
        engine.clear(0)
        return took * 1000


class OverBus:
    """A stokerd of its own with one model. ``restart`` starts it again in the same folders."""

    text_mark = b'{"t":'

    def __init__(
        self,
        model: Path,
        threads: int,
        *,
        slots: int = SLOTS,
        context_tokens: int = CONTEXT_TOKENS,
        engine: str = "llama",
        extra: str = "",
    ) -> None:
        self._stack = contextlib.ExitStack()
        self.home = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self.bus = self._stack.enter_context(PrivateBus())
        (self.home / "stoker.toml").write_text(
            f'[runner]\nengine = "{engine}"\nthreads = {threads}\nslots = {slots}\n{extra}\n'
            f'[models.bench]\npath = "{model}"\ncontext_tokens = {context_tokens}\n'
        )
        from stoker_client import Stoker
        from stoker_client.bus import pydbus_bus

        self.client = Stoker(self.bus.address)
        self._con = pydbus_bus(self.bus.address).con
        self._start()
        self._stack.callback(self._stop)

    def close(self) -> None:
        self.client.close()
        self._stack.close()

    def restart(self) -> None:
        """A new process: what was in memory is gone, what was kept is not."""
        self._stop()
        self._start()

    @property
    def pid(self) -> int:
        return self._daemon.pid

    def begin(self, work: Work) -> int:
        from gi.repository import GLib

        request = {
            "prompt": GLib.Variant("s", work.prompt),
            "raw": GLib.Variant("b", True),
            "reasoning": GLib.Variant("b", False),
            "temperature": GLib.Variant("d", 0.0),
            "max_tokens": GLib.Variant("u", work.tokens),
        }
        options = {"class": GLib.Variant("s", work.job_class)} if work.job_class else {}
        return self._create(request, options)

    def tokens(self, answer: bytes) -> int:
        last = json.loads(answer.rstrip().rpartition(b"\n")[2])
        if "done" not in last:
            raise SystemExit(f"cannot measure: stokerd: {last}")
        return int(last["done"]["usage"]["completion_tokens"])

    def first_token_ms(self, prompt: str) -> float:
        """From the call until the first byte of text can be read; a bare GDBus call, as any
        client in C would make it.
        """
        from gi.repository import GLib

        request = {
            "prompt": GLib.Variant("s", prompt),
            "temperature": GLib.Variant("d", 0.0),
            "max_tokens": GLib.Variant("u", 2),
        }
        began = time.perf_counter()
        fd = self._create(request, {"format": GLib.Variant("s", "text")})
        assert os.read(fd, 65_536)
        took = time.perf_counter() - began
        while os.read(fd, 65_536):
            pass
        os.close(fd)
        return took * 1000

    def _create(self, request: dict[str, Any], options: dict[str, Any]) -> int:
        from gi.repository import GLib

        reply, fds = self._con.call_with_unix_fd_list_sync(
            "org.stoker.Agent1", "/org/stoker/Agent1", "org.stoker.Inference1", "CreateJob",
            GLib.Variant("(a{sv}a{sv})", (request, options)), None, 0, 60_000, None, None,
        )  # fmt: skip
        return int(fds.steal_fds()[reply[1]])

    def _start(self) -> None:
        home = self.home
        where = {
            "bus": self.bus.address, "config": home / "stoker.toml", "state-dir": home / "state",
            "runtime-dir": home / "run",
        }  # fmt: skip
        command = [sys.executable, "-m", "stoker.main", "--log-level", "error"]
        command += [f"--{name}={value}" for name, value in where.items()]
        self._daemon = children.start(command)
        end = time.monotonic() + 120
        while time.monotonic() < end:
            with contextlib.suppress(Exception):  # not on the bus yet
                if self.client.status()["state"] == "ready":
                    return
            time.sleep(0.05)
        raise SystemExit("cannot measure: stokerd did not become ready")

    def _stop(self) -> None:
        children.stop(self._daemon, 30.0)


def first_token_added(model: Path, threads: int, pairs: int) -> Iterator[Pair]:
    """(milliseconds over the bus, milliseconds in process). Nothing is kept of earlier prompts:
    the template begins all of them alike, which the engine alone would read each time."""
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    alone = InProcess(model, threads)
    over = OverBus(model, threads, extra="cached_prefixes = 0\nstate_bytes = 0")
    try:
        for index in range(3):
            prompt = f"{-index} {PROMPT}"
            alone.first_token_ms(prompt), over.first_token_ms(prompt)
        for index in range(pairs):
            prompt = f"{index:03} {PROMPT}"
            if index % 2:
                inside = alone.first_token_ms(prompt)
                yield over.first_token_ms(prompt), inside
            else:
                outside = over.first_token_ms(prompt)
                yield outside, alone.first_token_ms(prompt)
        if over.client.status()["cached_tokens"]:
            raise SystemExit("cannot measure: some of the prompts were known already")
    finally:
        over.close()
