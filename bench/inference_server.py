"""stokerd over D-Bus against llama-server: speed, smoothness and memory of conversations.

Greedy sampling on both sides, the same prompts, model, threads, slots and context for each slot.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.llama_server import LlamaServer
from bench.load import (
    Side,
    Taken,
    Work,
    aggregate_tokens_s,
    alternating,
    percentile,
    prose,
    run,
)
from bench.measurement import SPINCOUNT, Setting, wait_for_quiet
from bench.over_bus import OverBus
from bench.over_rest import OverRest
from bench.pairs import Pair

CONTEXT_TOKENS = 4096
SLOTS = 4
LONG_WORDS = 980  # a thousand tokens: nearly all of these words are one
INTERACTIVE_TOKENS = 160


@contextlib.contextmanager
def both(
    model: Path,
    setting: Setting,
    slots: int = SLOTS,
    over: type[OverBus] = OverBus,
    extra: str = "",
) -> Iterator[tuple[OverBus, LlamaServer]]:
    """The two sides, warm: each has answered once."""
    with contextlib.ExitStack() as stack:
        ours = over(model, setting.threads, slots=slots, context_tokens=CONTEXT_TOKENS, extra=extra)
        stack.callback(ours.close)
        theirs = LlamaServer(
            model, threads=setting.threads, slots=slots, context_tokens=CONTEXT_TOKENS,
            spincount=SPINCOUNT,
        )  # fmt: skip
        stack.callback(theirs.close)
        for side in (ours, theirs):
            run(side, [Work(prose(4, 1), 8)])
        yield ours, theirs


def compared(
    model: Path, setting: Setting, slots: int, measure: Callable[[Side, int], float]
) -> Iterator[Pair]:
    with both(model, setting, slots) as sides:
        yield from compared_sides(sides, setting, measure)


def compared_sides(
    sides: tuple[Side, Side], setting: Setting, measure: Callable[[Side, int], float]
) -> Iterator[Pair]:
    """``measure(side, index)`` of both sides, in turns who is first."""
    for index, we_first in alternating(setting.pairs):
        wait_for_quiet(setting.quiet_s)
        found = [measure(side, index) for side in (sides if we_first else sides[::-1])]
        yield (found[0], found[1]) if we_first else (found[1], found[0])


def streams(count: int, tokens: int) -> Callable[[Side, int], float]:
    """So many clients at once; one is judged by its decoding, several by all they get."""

    def measure(side: Side, index: int) -> float:
        works = [Work(prose(12, 100 * index + number), tokens) for number in range(count)]
        taken = run(side, works)
        return taken[0].tokens_s if count == 1 else aggregate_tokens_s(taken)

    return measure


def single(setting: Setting) -> Iterator[Pair]:
    return compared(setting.model, setting, SLOTS, streams(1, setting.tokens))


def four(setting: Setting) -> Iterator[Pair]:
    return compared(setting.model, setting, SLOTS, streams(4, setting.tokens))


def eight(setting: Setting) -> Iterator[Pair]:
    return compared(setting.model, setting, 8, streams(8, setting.tokens))


def single_big(setting: Setting) -> Iterator[Pair]:
    return compared(setting.big, setting, SLOTS, streams(1, setting.tokens // 4))


def four_big(setting: Setting) -> Iterator[Pair]:
    return compared(setting.big, setting, SLOTS, streams(4, setting.tokens // 4))


def single_rest(setting: Setting) -> Iterator[Pair]:
    """Both over HTTP and a unix socket."""
    with both(setting.model, setting, over=OverRest) as sides:
        yield from compared_sides(sides, setting, streams(1, setting.tokens))


def four_rest(setting: Setting) -> Iterator[Pair]:
    with both(setting.model, setting, over=OverRest) as sides:
        yield from compared_sides(sides, setting, streams(4, setting.tokens))


def beside_background(setting: Setting) -> Iterator[Pair]:
    """Our P99 between tokens of an interactive stream beside background work without end (a
    prompt of a thousand tokens, then 64 of answer), and alone. The peer is ourselves. Each token
    is sent by itself: frames that gather some would hide waits shorter than a frame."""
    with both(setting.model, setting, extra="frame_ms = 0") as (ours, _theirs):
        yield from _beside(ours, setting)


def beside_background_there(setting: Setting) -> Iterator[Pair]:
    """The same for llama-server, which knows no classes: for knowing what it is worth."""
    with both(setting.model, setting) as (_ours, theirs):
        yield from _beside(theirs, setting)


def _beside(side: Side, setting: Setting) -> Iterator[Pair]:
    for index, loaded_first in alternating(setting.pairs):
        wait_for_quiet(setting.quiet_s)

        def background(number: int, index: int = index) -> Work:
            # new each time: a prompt that is known already is no load
            return Work(prose(LONG_WORDS, 70_000 + 100 * index + number), 64, "background")

        work = [Work(prose(12, 500 + index), INTERACTIVE_TOKENS, "interactive")]
        loads = (background, None) if loaded_first else (None, background)
        gaps = [percentile(run(side, work, load)[0].gaps_ms, 99) for load in loads]
        yield (gaps[0], gaps[1]) if loaded_first else (gaps[1], gaps[0])


def long_prefill(setting: Setting) -> Iterator[Pair]:
    """The longest wait between words of a stream while a prompt of a thousand tokens, of the
    same class and new to both sides, is read beside it; milliseconds."""

    def measure(side: Side, index: int) -> float:
        stream = Work(prose(12, 14_000 + index), INTERACTIVE_TOKENS)
        long = Work(prose(LONG_WORDS, 13_000 + index), 4)
        return max(run(side, [stream], then=[long])[0].gaps_ms)

    return compared(setting.model, setting, SLOTS, measure)


def beside_idle(setting: Setting) -> Iterator[Pair]:
    """Decoding while eight finished conversations of 400 tokens are kept, and while none is. The
    peer is ourselves: what is kept for a second turn must not cost those who decode meanwhile."""
    with contextlib.ExitStack() as stack:

        def keeping(prefixes: int) -> Side:
            side = OverBus(
                setting.model, setting.threads, slots=SLOTS, context_tokens=CONTEXT_TOKENS,
                extra=f"cached_prefixes = {prefixes}",
            )  # fmt: skip
            stack.callback(side.close)
            return side

        decode = streams(1, setting.tokens)

        def measure(side: Side, index: int) -> float:
            for number in range(8):  # anew: each answer takes the place of one
                run(side, [Work(prose(400, 30_000 + 10 * index + number), 1)])
            return decode(side, index)

        yield from compared_sides((keeping(8), keeping(0)), setting, measure)


def second_turn(setting: Setting) -> Iterator[Pair]:
    """First token of the second turn after a first of a thousand tokens, in milliseconds."""

    def measure(side: Side, index: int) -> float:
        first = Work(prose(LONG_WORDS, 9000 + index), 16, reuse=True)
        answer = _said(run(side, [first])[0])
        again = f"{first.prompt}{answer}\n\n{prose(12, index)}"
        return run(side, [Work(again, 8, reuse=True)])[0].first_ms

    return compared(setting.model, setting, SLOTS, measure)


def _said(taken: Taken) -> str:
    """The text of an answer of either side; records differ, their JSON strings do not."""
    parts = []
    for line in bytes(taken.data).split(b"\n"):
        found = line.strip().removeprefix(b"data: ")
        if found.startswith(b"{"):
            record = json.loads(found)
            parts.append(record.get("t") or record.get("content") or "")
    return "".join(parts)


def restored_turn(setting: Setting) -> Iterator[Pair]:
    """First token of the turn after a restart of stokerd, in milliseconds, and that of a new
    conversation as long, which must be read whole."""
    over = OverBus(setting.model, setting.threads, context_tokens=CONTEXT_TOKENS)
    with contextlib.closing(over):
        run(over, [Work(prose(4, 1), 8)])
        for index, kept_first in alternating(setting.pairs):
            session = over.client.session()
            session.ask(prose(LONG_WORDS, 11_000 + index), max_tokens=16, temperature=0.0)
            over.restart()
            run(over, [Work(prose(4, 1), 8)])  # the first question of a process is its slowest
            wait_for_quiet(setting.quiet_s)

            found: dict[bool, float] = {}
            for kept in (kept_first, not kept_first):
                if kept:
                    found[kept] = _session_first_ms(over, session.id, prose(12, index))
                else:
                    anew = Work(prose(LONG_WORDS, 12_000 + index), 4)
                    found[kept] = run(over, [anew])[0].first_ms
            yield found[True], found[False]


def _session_first_ms(over: OverBus, session: str, question: str) -> float:
    kept = over.client.session(session)
    began = time.perf_counter()
    with kept.stream(question, max_tokens=4, temperature=0.0) as stream:
        for record in stream:
            if record.kind == "text":
                return 1000 * (time.perf_counter() - began)
    raise SystemExit("cannot measure: the kept conversation gave no text")
