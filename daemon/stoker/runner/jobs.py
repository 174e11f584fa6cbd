"""One job in the runner: its tokens, how many are evaluated, what its reader got.

A job is prompt tokens and sampled tokens in one list; what is not yet evaluated is work.
That makes an aborted step, and later a reused prefix, the same case as a fresh prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stoker.errors import StokerError
from stoker.events.runner import Delta, Generate
from stoker.runner.composer import Composer
from stoker.runner.engine import Run

PROGRESS_EVERY_S: Final = 0.5


class Job:
    __slots__ = (
        "_composer", "_context", "_first_s", "_last_s", "_number", "_progress_s", "_reported",
        "_seed", "_started_s", "accepted_s", "deadline_s", "evaluated", "id", "paused", "prompt",
        "request", "seq", "tokens",
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
    ) -> None:
        self.request = request
        self.id = request.job
        self.tokens = tokens
        self.prompt = len(tokens)
        self.evaluated = 0
        self.seq = -1
        self.paused = False
        self.accepted_s = now_s
        self.deadline_s = now_s + request.deadline_ms / 1000.0 if request.deadline_ms else 0.0
        self._number = number
        self._context = context_tokens
        self._seed = seed
        self._composer = Composer(request.stop, reasoning=request.reasoning, inside=inside_think)
        self._started_s = self._first_s = self._last_s = 0.0
        self._progress_s = now_s
        self._reported = 0

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
        return self.evaluated >= self.prompt and len(self.tokens) - self.evaluated == 1

    def start(self, seq: int, now_s: float) -> None:
        self.seq = seq
        self._started_s = now_s

    def run(self, count: int, *, logits: bool) -> Run:
        at = self.evaluated
        return Run(self.seq, at, self.tokens[at : at + count], logits)

    def take(self, token: int, piece: bytes | None, now_s: float) -> Delta | None:
        """A sampled token; ``piece`` None = end of text. None when nothing goes out yet."""
        if not self._first_s:
            self._first_s = now_s
        self._last_s = now_s
        self.tokens.append(token)
        if piece is None:
            return self._finish("stop", "", "")
        answer, reasoning = self._composer.feed(piece)
        if self._composer.stopped:
            return self._finish("stop-string", answer, reasoning)
        made = len(self.tokens) - self.prompt
        if made >= self.request.max_tokens or len(self.tokens) >= self._context:
            return self._finish("length", answer, reasoning)
        return Delta(self.id, t=answer, r=reasoning) if answer or reasoning else None

    def progress(self, now_s: float) -> Delta | None:
        """Prefill progress, at most twice a second and only when it moved."""
        if now_s - self._progress_s < PROGRESS_EVERY_S or self.evaluated == self._reported:
            return None
        self._progress_s = now_s
        self._reported = self.evaluated
        return Delta(self.id, p=(min(self.evaluated, self.prompt), self.prompt))

    def failure(self, error: StokerError) -> Delta:
        """The last word of a job that went wrong; text still held back is given out."""
        answer, reasoning = self._composer.finish()
        return Delta(self.id, t=answer, r=reasoning, error=error.record())

    def _finish(self, reason: str, answer: str, reasoning: str) -> Delta:
        more_answer, more_reasoning = self._composer.finish()
        if reason != "stop-string" and self._composer.stopped:
            reason = "stop-string"  # the end completed a stop string that was held back
        return Delta(
            self.id,
            t=answer + more_answer,
            r=reasoning + more_reasoning,
            done={
                "finish_reason": reason,
                "usage": self._usage(),
                "timings": self._timings(),
                "seed": self._seed,
            },
        )

    def _usage(self) -> Mapping[str, int]:
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": len(self.tokens) - self.prompt,
            "reasoning_tokens": self._composer.reasoning_tokens,
        }

    def _timings(self) -> Mapping[str, float]:
        """Milliseconds and tokens a second, as the loop saw them."""
        prefill_s = self._first_s - self._started_s
        decode_s = self._last_s - self._first_s
        more = len(self.tokens) - self.prompt - 1
        return {
            "prefill_ms": round(prefill_s * 1e3, 3),
            "first_token_ms": round((self._first_s - self.accepted_s) * 1e3, 3),
            "decode_ms": round(decode_s * 1e3, 3),
            "prefill_tok_s": round(self.prompt / prefill_s, 2) if prefill_s > 0 else 0.0,
            "decode_tok_s": round(more / decode_s, 2) if decode_s > 0 and more else 0.0,
        }
