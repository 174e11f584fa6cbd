"""Answers the questions that are no jobs: tokenize, template, stats, threads, score, embed.

Scoring and embedding are done a chunk at a time between steps, so that jobs go on meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from stoker.errors import (
    Busy,
    Cancelled,
    ContextLengthExceeded,
    InsufficientMemory,
    InvalidRequest,
    ModelUnavailable,
    RequestTooLarge,
    StokerError,
)
from stoker.events.runner import (
    Adapt,
    Answer,
    ApplyTemplate,
    Embed,
    Event,
    Failed,
    Forget,
    Inspect,
    Measure,
    Score,
    SetThreads,
    Stats,
    Tokenize,
)
from stoker.runner.chunked import Embedding, Scoring
from stoker.runner.engine import Engine, Facts
from stoker.runner.facts import inspection
from stoker.runner.measuring import PHASES, Measuring

MAX_LONG: Final = 64
MAX_TEXTS: Final = 64
MAX_EMBED_TOKENS: Final = 8192
MAX_MEASURE_MS: Final = 60_000
Query = (
    Tokenize | ApplyTemplate | Stats | SetThreads | Measure | Score | Embed | Inspect | Forget
    | Adapt
)  # fmt: skip
Long = Scoring | Embedding | Measuring
"""Work that takes many steps."""


def failed(query: str, error: StokerError) -> Failed:
    return Failed(query, error.code, error.message, error.hint, error.details)


def need(engine: Engine) -> Facts:
    """The facts of the loaded model; raises ModelUnavailable when there is none."""
    facts = engine.facts()
    if facts is None:
        raise ModelUnavailable("cannot use the model: none is loaded")
    return facts


def refuse_overflow(text: str, facts: Facts) -> None:
    """A text so long that it cannot fit is refused before seconds are spent on its tokens."""
    # the longest common token is a run of 128 spaces; more bytes a token than that is no text
    if len(text) > 128 * facts.context_tokens:
        raise overflow(len(text) // 4, facts, "about ")


def overflow(prompt_tokens: int, facts: Facts, about: str = "") -> ContextLengthExceeded:
    return ContextLengthExceeded(
        f"cannot take the prompt: {about}{prompt_tokens} tokens do not fit in a context of "
        f"{facts.context_tokens}",
        hint="shorten the prompt, or load the model with a larger context_tokens",
        details={"prompt_tokens": prompt_tokens, "context_tokens": facts.context_tokens},
    )


class Desk:
    def __init__(
        self,
        engine: Engine,
        send: Callable[[Event], None],
        counters: Callable[[], Mapping[str, object]],
        *,
        make_room: Callable[[], bool] = lambda: False,
        forget: Callable[[str, str], int] = lambda _scope, _keep: 0,
        occupied: Callable[[], bool] = lambda: False,
        pace: Callable[[float], None] = lambda _duty: None,
    ) -> None:
        """``make_room`` lets a cached prefix go; ``forget`` drops what a scope has kept;
        ``occupied``: jobs run; ``pace`` takes the duty of the steps."""
        self._engine = engine
        self._send = send
        self._counters = counters
        self._make_room, self._forget = make_room, forget
        self._occupied, self._pace = occupied, pace
        self._long: deque[Long] = deque()

    @property
    def busy(self) -> bool:
        return bool(self._long)

    def handle(self, query: Query) -> None:
        """Sends an Answer or Failed, now or when the score is complete."""
        try:
            result = self._answer(query)
        except StokerError as error:
            self._send(failed(query.id, error))
            return
        if result is not None:
            self._send(Answer(query.id, result))

    def work(self) -> None:
        """One chunk of the oldest score or vector."""
        if not self._long:
            return
        first = self._long[0]
        try:
            result = first.step(self._engine)
        except StokerError as error:
            if isinstance(error, InsufficientMemory) and self._make_room():
                first.restart()
                return
            self._long.popleft()
            self._close(first)
            self._send(failed(first.query, error))
            return
        if result is not None:
            self._long.popleft()
            self._send(Answer(first.query, result))

    def cancel(self, query: str) -> None:
        """Nobody waits for this answer; those who wait for theirs come sooner."""
        for left in self._long:
            if left.query == query:
                self._long.remove(left)
                self._close(left)
                self._send(failed(query, Cancelled("query cancelled: nobody waits for it")))
                return

    def drop(self) -> None:
        """The model goes away: what is under way has no answer."""
        while self._long:
            left = self._long.popleft()
            self._close(left)
            self._send(failed(left.query, Cancelled("cannot go on: the model is unloaded")))

    def _close(self, left: Long) -> None:
        if isinstance(left, Measuring):
            left.close(self._engine)

    def _answer(self, query: Query) -> Mapping[str, object] | None:
        if isinstance(query, Stats):
            return {**self._counters(), **self._engine.stats()}
        if isinstance(query, Inspect):
            return inspection(query.path, self._engine.identity().system)
        if isinstance(query, Forget):
            return {"dropped": self._forget(query.scope, query.keep)}
        facts = need(self._engine)
        if isinstance(query, Tokenize):
            return {"tokens": self._engine.tokenize(query.text, special=query.special)}
        if isinstance(query, ApplyTemplate):
            return {"text": self._engine.render(query.messages)}
        if isinstance(query, SetThreads):
            self._set_threads(query)
            return {"threads": query.threads, "threads_batch": query.threads_batch}
        if isinstance(query, Adapt):
            adapters = self._engine.adapters()
            adapters.take(query.adapters)
            found = adapters.reasons()
            return {"unusable": {name: reason for name, reason in found.items() if reason}}
        if len(self._long) >= MAX_LONG:
            raise Busy(f"cannot answer query: {MAX_LONG} others are waiting")
        self._long.append(self._begin(query, facts))
        return None

    def _begin(self, query: Measure | Embed | Score, facts: Facts) -> Long:
        if isinstance(query, Embed):
            return self._embedding(query, facts)
        return (
            self._measuring(query, facts)
            if isinstance(query, Measure)
            else self._scoring(query, facts)
        )

    def _set_threads(self, query: SetThreads) -> None:
        """What is being measured keeps its own; it goes back to these."""
        before = self._threads()
        self._engine.set_threads(query.threads, query.threads_batch)
        self._pace(query.duty)
        for left in self._long:
            if isinstance(left, Measuring):
                left.before = (query.threads, query.threads_batch)
                self._engine.set_threads(*before)

    def _threads(self) -> tuple[int, int]:
        stats = self._engine.stats()
        return int(str(stats["threads"])), int(str(stats["threads_batch"]))

    def _measuring(self, query: Measure, facts: Facts) -> Measuring:
        if query.phase not in PHASES or not 1 <= query.limit_ms <= MAX_MEASURE_MS:
            raise InvalidRequest(
                f"cannot measure: phase is {' or '.join(PHASES)}, limit_ms 1..{MAX_MEASURE_MS}"
            )
        if self._long or self._occupied():
            raise Busy("cannot measure: others are being answered")
        before = self._threads()
        self._engine.set_threads(query.threads, query.threads)  # refuses what is absurd
        self._engine.set_threads(*before)
        limit_s = query.limit_ms / 1000.0
        return Measuring(query.id, query.phase, query.threads, limit_s, facts, before)

    def _embedding(self, query: Embed, facts: Facts) -> Embedding:
        texts = [self._tokens(text, facts) for text in query.texts]
        if not texts or not all(texts) or len(texts) > MAX_TEXTS:
            raise InvalidRequest(f"cannot embed texts: give 1..{MAX_TEXTS}, none of them empty")
        total = sum(map(len, texts))
        if total > MAX_EMBED_TOKENS:
            raise RequestTooLarge(
                f"cannot embed texts: together they have {total} tokens",
                hint=f"at most {MAX_EMBED_TOKENS} in one call",
                details={"tokens": total, "limit_tokens": MAX_EMBED_TOKENS},
            )
        return Embedding(query.id, texts)

    def _tokens(self, text: str, facts: Facts) -> list[int]:
        refuse_overflow(text, facts)
        tokens = self._engine.encode(text)
        if len(tokens) > facts.context_tokens:
            raise overflow(len(tokens), facts)
        return tokens

    def _scoring(self, query: Score, facts: Facts) -> Scoring:
        tokens = self._tokens(query.text, facts)
        if len(tokens) < 2:
            raise InvalidRequest("cannot score text: it has fewer than two tokens")
        return Scoring(query.id, tokens)
