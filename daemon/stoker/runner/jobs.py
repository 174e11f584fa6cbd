"""One job in the runner: its tokens, how many are evaluated, what its reader got.

A job is prompt tokens and sampled tokens in one list; what is not yet evaluated is work.
That makes an aborted step, and later a reused prefix, the same case as a fresh prompt.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

from stoker.errors import StokerError
from stoker.events.runner import Delta, Generate
from stoker.runner.composer import Composer
from stoker.runner.engine import Run
from stoker.runner.gaps import Gaps
from stoker.runner.shaping import Acting, Shaping
from stoker.runner.tool_stream import ToolStream

PROGRESS_EVERY_S: Final = 0.5


class Job:
    __slots__ = (
        "_cached", "_composer", "_context", "_first_s", "_gaps", "_last_s", "_number", "_omitted",
        "_progress_s", "_reported", "_seed", "_started_s", "_told", "accepted_s", "adapters",
        "deadline_s", "evaluated", "id", "paused", "prompt", "request", "seq", "shaping",
        "shareable", "shifted", "shifts", "tokens",
    )  # fmt: skip

    def __init__(
        self,
        request: Generate,
        tokens: list[int],
        *,
        number: int,
        context_tokens: int,
        inside_think: bool,
        seed: int,
        now_s: float,
        omitted: tuple[int, int] = (0, 0),
        shaping: Shaping | None = None,
        adapters: Acting = (),
    ) -> None:
        """``omitted``: messages and tokens that were left out to make the prompt fit."""
        self.request = request
        self.id = request.job
        self.tokens = tokens
        self.prompt = len(tokens)
        self.evaluated = 0
        self.shifted = 0  # tokens dropped from the middle to make room
        self.shifts = request.overflow == "shift"
        # a shift moves cells, which must then be nobody else's
        self.shareable = not self.shifts
        self.seq = -1
        self.paused = False
        self.accepted_s = now_s
        self.deadline_s = now_s + request.deadline_ms / 1000.0 if request.deadline_ms else 0.0
        self._number = number
        self._omitted = omitted
        self._cached = 0
        self._context = context_tokens
        self._seed = seed
        self.shaping = shaping
        self.adapters = adapters
        self._composer = Composer(
            request.stop,
            reasoning=request.reasoning,
            inside=inside_think,
            tools=_tools(shaping, request.job),
        )
        self._started_s = self._first_s = self._last_s = 0.0
        self._gaps = Gaps()
        self._progress_s = now_s
        self._reported = 0
        self._told = (0, 0)  # tokens made and evaluated that a delta has told

    @property
    def number(self) -> int:
        """Order of acceptance; the newest job has the highest."""
        return self._number

    @property
    def seed(self) -> int:
        return self._seed

    @property
    def remaining(self) -> int:
        return len(self.tokens) - self.evaluated

    @property
    def decoding(self) -> bool:
        """One sampled token waits. After an aborted step it may be more: then it is work again."""
        left = len(self.tokens) - self.evaluated
        return left == 1 and self.evaluated + self.shifted >= self.prompt

    @property
    def made(self) -> int:
        """Tokens sampled so far."""
        return len(self.tokens) + self.shifted - self.prompt

    @property
    def full(self) -> bool:
        """The next token would not fit in the context."""
        return len(self.tokens) >= self._context

    def shift(self, keep: int, discard: int) -> None:
        """The engine dropped ``discard`` evaluated tokens after ``keep``."""
        del self.tokens[keep : keep + discard]
        self.evaluated -= discard
        self.shifted += discard

    def start(self, seq: int, now_s: float, *, cached: int = 0) -> None:
        """``cached`` tokens of the prompt are in the sequence already."""
        self.seq = seq
        self.evaluated = self._cached = cached
        self._started_s = now_s

    def run(self, count: int, *, logits: bool) -> Run:
        at = self.evaluated
        return Run(self.seq, at, self.tokens[at : at + count], logits)

    @property
    def thinking(self) -> bool:
        return self._composer.thinking

    @property
    def reasoning_tokens(self) -> int:
        return self._composer.reasoning_tokens

    def force(self, tokens: Sequence[tuple[int, bytes]]) -> Delta | None:
        """Tokens with their bytes that come next, whatever the model wants; None = no room."""
        if len(self.tokens) + len(tokens) >= self._context:
            return None
        answer = reasoning = ""
        for token, piece in tokens:
            self.tokens.append(token)
            more_answer, more_reasoning = self._composer.feed(piece)
            answer, reasoning = answer + more_answer, reasoning + more_reasoning
        return self._delta(t=answer, r=reasoning)

    def take(self, token: int, piece: bytes | None, now_s: float, *, last: bool = False) -> Delta:
        """A sampled token; ``piece`` None = end of text, ``last`` = it ends with this one.

        Text may be held back, its tokens are told at once: a job may be cancelled meanwhile.
        """
        if self._first_s:
            self._gaps.add(now_s - self._last_s)
        else:
            self._first_s = now_s
        self._last_s = now_s
        self.tokens.append(token)
        if piece is None:
            return self._finish("stop", "", "")
        answer, reasoning = self._composer.feed(piece)
        if self._composer.stopped:
            return self._finish("stop-string", answer, reasoning)
        if last:
            return self._finish("stop", answer, reasoning)
        if self.made >= self.request.max_tokens or (self.full and not self.shifts):
            return self._finish("length", answer, reasoning)
        calls = self._composer.take_calls()
        return self._delta(t=answer, r=reasoning, tools=calls)

    def progress(self, now_s: float) -> Delta | None:
        """Prefill progress, at most twice a second and only when it moved."""
        if now_s - self._progress_s < PROGRESS_EVERY_S or self.evaluated == self._reported:
            return None
        self._progress_s = now_s
        self._reported = self.evaluated
        return self._delta(p=(min(self.evaluated, self.prompt), self.prompt))

    def failure(self, error: StokerError) -> Delta:
        """The last word of a job that went wrong; text still held back is given out."""
        answer, reasoning = self._composer.finish()
        return self._delta(t=answer, r=reasoning, error=error.record())

    def _delta(self, **what: Any) -> Delta:
        """With what is to be charged since the last one; tokens evaluated twice count once."""
        made, read = self._told
        now_read = max(min(self.evaluated + self.shifted, self.prompt) - self._cached, read)
        self._told = (self.made, now_read)
        return Delta(self.id, n=self.made - made, e=now_read - read, **what)

    def _finish(self, reason: str, answer: str, reasoning: str) -> Delta:
        more_answer, more_reasoning = self._composer.finish()
        if reason != "stop-string" and self._composer.stopped:
            reason = "stop-string"  # the end completed a stop string that was held back
        if reason == "stop" and self._composer.called:
            reason = "tool-calls"
        return self._delta(
            t=answer + more_answer,
            r=reasoning + more_reasoning,
            tools=self._composer.take_calls(),
            done={
                "finish_reason": reason,
                "usage": self._usage(),
                "timings": self._timings(),
                "gaps": self._gaps.counts(),
                "seed": self._seed,
                **self._left_out(),
            },
        )

    def _left_out(self) -> Mapping[str, int]:
        """What overflow made go; nothing when nothing did."""
        messages, tokens = self._omitted
        out = {
            "omitted_messages": messages,
            "omitted_tokens": tokens,
            "shifted_tokens": self.shifted,
        }
        return {name: count for name, count in out.items() if count}

    def _usage(self) -> Mapping[str, int]:
        return {
            "prompt_tokens": self.prompt,
            "cached_tokens": self._cached,
            "completion_tokens": self.made,
            "reasoning_tokens": self._composer.reasoning_tokens,
        }

    def _timings(self) -> Mapping[str, float]:
        """Milliseconds and tokens a second, as the loop saw them."""
        prefill_s = self._first_s - self._started_s
        decode_s = self._last_s - self._first_s
        more, read = self.made - 1, self.prompt - self._cached
        return {
            "prefill_ms": round(prefill_s * 1e3, 3),
            "first_token_ms": round((self._first_s - self.accepted_s) * 1e3, 3),
            "decode_ms": round(decode_s * 1e3, 3),
            "gap_p50_ms": round(self._gaps.quantile_ms(0.5), 3),
            "gap_p99_ms": round(self._gaps.quantile_ms(0.99), 3),
            "prefill_tok_s": round(read / prefill_s, 2) if prefill_s > 0 else 0.0,
            "decode_tok_s": round(more / decode_s, 2) if decode_s > 0 and more else 0.0,
        }


def _tools(shaping: Shaping | None, job: str) -> ToolStream | None:
    if shaping is None or shaping.form is None:
        return None
    numbers = itertools.count(1)
    # unique in a conversation: the job's name is random
    return ToolStream(shaping.form, shaping.offered, lambda: f"call_{job}_{next(numbers)}")
