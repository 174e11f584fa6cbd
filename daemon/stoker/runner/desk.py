"""Answers the questions that are no jobs: tokenize, template, stats, threads, score.

Scoring is done a chunk at a time between steps, so that jobs go on meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from stoker.errors import (
    Cancelled,
    ContextLengthExceeded,
    EngineFailed,
    InvalidRequest,
    ModelUnavailable,
    StokerError,
)
from stoker.events.runner import (
    Answer,
    ApplyTemplate,
    Event,
    Failed,
    Score,
    SetThreads,
    Stats,
    Tokenize,
)
from stoker.runner.engine import Engine, Facts

Query = Tokenize | ApplyTemplate | Stats | SetThreads | Score


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


@dataclass(slots=True)
class _Scoring:
    query: str
    tokens: list[int]
    at: int = 0
    nats: list[float] = field(default_factory=list)


class Desk:
    def __init__(
        self,
        engine: Engine,
        send: Callable[[Event], None],
        counters: Callable[[], Mapping[str, object]],
    ) -> None:
        self._engine = engine
        self._send = send
        self._counters = counters
        self._scores: deque[_Scoring] = deque()

    @property
    def busy(self) -> bool:
        return bool(self._scores)

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
        """One chunk of the oldest score."""
        if not self._scores:
            return
        score = self._scores[0]
        try:
            nats, score.at = self._engine.score(score.tokens, score.at)
        except StokerError as error:
            self._scores.popleft()
            self._send(failed(score.query, error))
            return
        if score.at == 0:
            score.nats.clear()
            return
        score.nats.append(nats)
        if score.at >= len(score.tokens) - 1:
            self._scores.popleft()
            count = len(score.tokens) - 1
            self._send(Answer(score.query, {"nll": sum(score.nats), "tokens": count}))

    def drop(self) -> None:
        """The model goes away: scores under way have no answer."""
        while self._scores:
            score = self._scores.popleft()
            self._send(failed(score.query, Cancelled("cannot score text: the model is unloaded")))

    def _answer(self, query: Query) -> Mapping[str, object] | None:
        if isinstance(query, Stats):
            return {**self._counters(), **self._engine.stats()}
        facts = need(self._engine)
        if isinstance(query, Tokenize):
            return {"tokens": self._engine.tokenize(query.text, special=query.special)}
        if isinstance(query, ApplyTemplate):
            return {"text": self._engine.render(query.messages)}
        if isinstance(query, SetThreads):
            self._engine.set_threads(query.threads, query.threads_batch)
            return {"threads": query.threads, "threads_batch": query.threads_batch}
        self._queue(query, facts)
        return None

    def _queue(self, query: Score, facts: Facts) -> None:
        refuse_overflow(query.text, facts)
        tokens = self._engine.encode(query.text)
        if len(tokens) > facts.context_tokens:
            raise overflow(len(tokens), facts)
        if len(tokens) < 2:
            raise InvalidRequest("cannot score text: it has fewer than two tokens")
        if len(self._scores) >= 64:
            raise EngineFailed("cannot score text: 64 others are waiting")
        self._scores.append(_Scoring(query.id, tokens))
