"""One stream of ours against llama-bench, which has no server around it at all."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from bench.load import Work, alternating, prose, run
from bench.measurement import SPINCOUNT, Setting, wait_for_quiet
from bench.over_bus import OverBus, first_token_added
from bench.pairs import Pair
from bench.peers import llama_bench, peer_environment
from bench.python_share import measure
from bench.runner_client import RunnerClient
from stoker.events.prompt import Sampling
from stoker.events.runner import Generate


def decode_over_frames(setting: Setting) -> Iterator[Pair]:
    """Greedy decode of one job, from the first delta to the last, as its reader sees it."""
    with loaded_runner(setting) as runner:
        for index, we_first in alternating(setting.pairs):
            wait_for_quiet(setting.quiet_s)
            theirs = 0.0 if we_first else bench_tokens_s(setting.model, setting)
            ours = runner_tokens_s(runner, setting, f"job{index}")
            yield ours, theirs or bench_tokens_s(setting.model, setting)


def decode_over_bus(setting: Setting) -> Iterator[Pair]:
    """The same as a client of stokerd sees it: text records of a pipe it got over D-Bus."""
    return _over_bus(setting.model, setting.tokens, setting)


def decode_over_bus_big(setting: Setting) -> Iterator[Pair]:
    return _over_bus(setting.big, setting.tokens // 4, setting)


def added_first_token(setting: Setting) -> Iterator[Pair]:
    """Submit to first byte over D-Bus, and the engine alone in this process."""
    wait_for_quiet(setting.quiet_s)
    return first_token_added(setting.model, setting.threads, 7 * setting.pairs)


def python_share(setting: Setting) -> Iterator[Pair]:
    """CPU milliseconds of Python in a step of one sequence, and of the whole step."""
    return _python_share(setting.model, setting.tokens, setting)


def python_share_big(setting: Setting) -> Iterator[Pair]:
    return _python_share(setting.big, setting.tokens // 4, setting)


def _python_share(model: Path, tokens: int, setting: Setting) -> Iterator[Pair]:
    os.environ.setdefault("GOMP_SPINCOUNT", SPINCOUNT)
    for _ in range(setting.pairs):
        wait_for_quiet(setting.quiet_s)
        found = measure(model, 1, tokens=max(tokens, 16), threads=setting.threads)
        yield found.python_ms, found.step_ms


def _over_bus(model: Path, tokens: int, setting: Setting) -> Iterator[Pair]:
    with closing(OverBus(model, setting.threads)) as over:
        run(over, [Work(".", 8)])
        for index, we_first in alternating(setting.pairs):
            wait_for_quiet(setting.quiet_s)
            theirs = 0.0 if we_first else bench_tokens_s(model, setting, tokens)
            ours = run(over, [Work(prose(4, index), tokens)])[0].tokens_s
            yield ours, theirs or bench_tokens_s(model, setting, tokens)


@contextmanager
def loaded_runner(setting: Setting) -> Iterator[RunnerClient]:
    with RunnerClient("llama", environment={"GOMP_SPINCOUNT": SPINCOUNT}) as runner:
        runner.hello()
        threads = setting.threads
        runner.load(setting.model, threads=threads, threads_batch=threads, context_tokens=2048)
        yield runner


def runner_tokens_s(runner: RunnerClient, setting: Setting, job: str) -> float:
    """Tokens a second between the first and the last frame of a job.

    The bytes are not parsed until the job is done: a busy reader on the second core would
    be measured as our slowness.
    """
    request = Generate(
        job, raw=True, prompt=".", max_tokens=setting.tokens, reasoning=False,
        sampling=Sampling(temperature=0.0),
    )  # fmt: skip
    runner.send(request)
    runner.socket.settimeout(120.0)
    data, first_s, last_s = _drain(runner.socket)
    made = json.loads(b'{"x":' + data[data.rindex(b'"usage":') + 8 :].split(b"}")[0] + b"}}")
    return float((made["x"]["completion_tokens"] - 1) / (last_s - first_s))


def _drain(sock: socket.socket) -> tuple[bytes, float, float]:
    data = bytearray()
    first_s = 0.0
    while b'"done":' not in data[-2048:]:
        part = sock.recv(1 << 16)
        if not part:
            raise SystemExit("cannot measure: the runner died")
        if not first_s and b'"deltas"' in part:
            first_s = time.monotonic()
        data += part
    return bytes(data), first_s, time.monotonic()


def bench_tokens_s(model: Path, setting: Setting, tokens: int = 0) -> float:
    """llama-bench's own number for text generation at depth 0 (it warms up first)."""
    command = [
        str(llama_bench()), "-m", str(model), "-t", str(setting.threads), "-p", "0",
        "-n", str(tokens or setting.tokens), "-r", "1", "-fa", "auto", "-ngl", "0", "-o", "json",
    ]  # fmt: skip
    environment = {**os.environ, **peer_environment(), "GOMP_SPINCOUNT": SPINCOUNT}
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"cannot measure: llama-bench: {done.stderr.decode()[-500:]}")
    return float(json.loads(done.stdout)[0]["avg_ts"])
