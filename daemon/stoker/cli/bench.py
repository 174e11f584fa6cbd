"""The verb ``bench``: what a model costs on this device, through the door that apps use.

Every run has a prompt of its own, so that no prefix is known; the figures are the runner's own
timings, the agent's sensors and, where it may be read, the runner's memory.
"""

from __future__ import annotations

import json
import math
import secrets
import time
from argparse import Namespace
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from stoker.cli import bench_table, screens
from stoker.cli.bars import Bar
from stoker.cli.bench_table import Bench
from stoker.cli.failure import why
from stoker.cli.terminal import Terminal
from stoker_client import Stoker, StokerClientError

WORDS: Final = [
    "river",
    "stone",
    "lamp",
    "seven",
    "open",
    "green",
    "walk",
    "paper",
    "under",
    "clock",
]
TIMINGS: Final = ("prefill_tok_s", "first_token_ms", "decode_tok_s", "gap_p50_ms", "gap_p99_ms")
PIECE_CHARACTERS: Final = 4000
LOAD_S: Final = 600.0


def run(args: Namespace, terminal: Terminal) -> int:
    before = _read(args.against) if args.against else None
    with Stoker(args.bus) as stoker:
        found = [measure(stoker, args, terminal, model) for model in args.model or [""]]
    _report(args, terminal, [*([before] if before else []), *found])
    return 0


def measure(stoker: Stoker, args: Namespace, terminal: Terminal, model: str) -> Bench:
    """One model. Administrators may name one that does not serve: it is loaded first."""
    values: dict[str, list[float]] = {}
    if model:
        values["load_s"] = [float(stoker.use_model(model, timeout_s=LOAD_S).get("took_s", 0.0))]
    status = stoker.status()
    bar = Bar(shown=terminal.err_is_tty and not terminal.as_json)
    cool = stoker.thermal().get("temperature_c")
    hottest, began = cool, time.monotonic()
    try:
        for number in range(args.runs):
            bar.update(f"run {number + 1} of {args.runs}", number / args.runs)
            for key, value in _answer(stoker, args).items():
                values.setdefault(key, []).append(value)
            now = stoker.thermal().get("temperature_c")
            hottest = max(filter(None, (hottest, now)), default=None)
        if args.text:
            bar.update("scoring the text", 1.0)
            values["perplexity"] = [perplexity(stoker, Path(args.text))]
    finally:
        bar.close()
    if cool is not None and hottest is not None:
        values["temperature_rise_k"] = [max(0.0, hottest - cool)]
    settings = {
        "runs": args.runs,
        "prompt_tokens": args.prompt_tokens,
        "tokens": args.tokens,
        "threads": status.get("threads", 0),
        "took_s": round(time.monotonic() - began, 1),
    }
    return Bench(
        str(status.get("model", "")), str(status.get("board", "")), str(status.get("version", "")),
        time.strftime("%Y-%m-%dT%H:%M:%S%z"), settings, values,
    )  # fmt: skip


def _answer(stoker: Stoker, args: Namespace) -> dict[str, float]:
    """One answer of full length to a prompt that nobody has asked before."""
    found: dict[str, float] = {}
    made, began = 0, time.monotonic()
    options: dict[str, Any] = {"max_tokens": args.tokens, "temperature": 0.8, "seed": 7}
    with stoker.stream(prompt_of(args.prompt_tokens), **options) as stream:
        for record in stream:
            if record.kind == "done":
                timings: dict[str, Any] = dict(record.inner("timings"))
                usage: dict[str, Any] = dict(record.inner("usage"))
                made = int(usage.get("completion_tokens", 0))
                found = {key: float(timings[key]) for key in TIMINGS if timings.get(key)}
    status, watts = stoker.status(), stoker.thermal().get("power_w")
    found["peak_rss_bytes"] = float(status.get("runner_memory_bytes", 0))
    pss = _pss_bytes(int(status.get("runner_pid", 0)))
    if pss:
        found["peak_pss_bytes"] = pss
    if isinstance(watts, float) and made:
        found["power_w"] = watts
        found["joules_per_token"] = watts * (time.monotonic() - began) / made
    return found


def prompt_of(tokens: int) -> str:
    """About as many tokens: short common words, the first of them a new one."""
    words = [secrets.token_hex(4), *(secrets.choice(WORDS) for _ in range(max(tokens - 6, 1)))]
    return " ".join(words)


def perplexity(stoker: Stoker, file: Path) -> float:
    """exp of the mean surprise of all tokens but the first of each piece."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise StokerClientError("file-unreadable", f"cannot read {file}: {why(fault)}") from fault
    nats, tokens = 0.0, 0
    for piece in pieces(text):
        more_nats, more_tokens = stoker.score(piece)
        nats, tokens = nats + more_nats, tokens + more_tokens
    if not tokens:
        raise StokerClientError("invalid-request", f"cannot score {file}: it has no text")
    return math.exp(nats / tokens)


def pieces(text: str) -> Iterator[str]:
    """Of at most PIECE_CHARACTERS, cut between words where there are any."""
    rest = text.strip()
    while rest:
        cut = len(rest)
        if cut > PIECE_CHARACTERS:
            space = rest.rfind(" ", PIECE_CHARACTERS // 2, PIECE_CHARACTERS)
            cut = space if space > 0 else PIECE_CHARACTERS
        yield rest[:cut]
        rest = rest[cut:].lstrip()


def _pss_bytes(pid: int) -> float:
    """0 where another user's process may not be looked into."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(1024.0 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def _report(args: Namespace, terminal: Terminal, found: list[Bench]) -> None:
    if args.save:
        _write(Path(args.save), json.dumps(found[-1].plain(), indent=1) + "\n")
    if args.plot:
        from stoker.cli import bench_plot

        bench_plot.save(found, Path(args.plot))
    if terminal.as_json:
        terminal.json([one.plain() for one in found])
        return
    if len(found) == 1:
        rows = bench_table.one(found[0])
        terminal.write("".join(line + "\n" for line in screens.columns(rows)))
    for before, after in pairwise(found):
        rows = bench_table.two(before, after)
        terminal.write("".join(line + "\n" for line in screens.columns(rows)))


def _read(name: str) -> Bench:
    try:
        data = json.loads(Path(name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as fault:
        raise StokerClientError("file-unreadable", f"cannot read {name}: {why(fault)}") from fault
    return bench_table.parse(data, name)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StokerClientError(
            "storage-failed", f"cannot write {path}: {error.strerror}"
        ) from error
