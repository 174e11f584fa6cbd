"""Trying a model that was just loaded: words, answers and scores, judged by the caller's rule.

Owned by the inference loop's thread. It speaks to one link and knows nothing of swaps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from stoker.events import runner as wire
from stoker.events.models import Probe, ProbeReport
from stoker.events.prompt import Message, Sampling, Shape
from stoker.services.runner_link import RunnerLink
from stoker.services.runner_queries import OURSELVES, Answered
from stoker.units import Bytes, Seconds

JOB: Final = "probe"


class ModelProbe:
    """``verdict`` is None until it is known; then "" or what is wrong."""

    def __init__(self, link: RunnerLink, probe: Probe, now: Seconds) -> None:
        self._link, self._probe = link, probe
        self._until_s = Seconds(now + probe.timeout_s)
        self._texts: list[list[str]] = [[]]  # of each generation so far
        self._done: list[Mapping[str, object]] = []
        self._fault = ""
        self._score = self._ask(probe.text, now)
        self._scores = [self._ask(text, now) for text in probe.texts]
        self._generate()

    def _generate(self) -> None:
        """The short text first, then the questions: a slot is all that a new model must have."""
        number = len(self._done)
        job, greedy = _job(number), Sampling(temperature=0.0)
        if number == 0:
            tokens = self._probe.max_tokens
            asked = wire.Generate(
                job, prompt=self._probe.prompt, raw=True, max_tokens=tokens, sampling=greedy
            )
        else:
            question = self._probe.questions[number - 1]
            asked = wire.Generate(
                job,
                messages=(Message("user", question.prompt),),
                max_tokens=question.max_tokens,
                sampling=greedy,
                shape=Shape(adapters=question.adapters),
            )
        self._link.send(asked)

    def _ask(self, text: str, now: Seconds) -> Answered:
        return self._link.query(
            lambda key: wire.Score(key, text), now, OURSELVES, self._probe.timeout_s
        )

    def hear(self, deltas: wire.Deltas) -> None:
        for delta in deltas.items:
            if delta.job != _job(len(self._done)):
                continue
            self._texts[-1] += [part for part in (delta.r, delta.t) if part]
            if delta.error is not None:
                self._fault = str(delta.error.get("message", "")) or "it cannot answer"
            if delta.done is not None:
                self._done.append(delta.done)
                if not self._finished:
                    self._texts.append([])
                    self._generate()

    @property
    def _finished(self) -> bool:
        return len(self._done) > len(self._probe.questions)

    def verdict(self, now: Seconds) -> str | None:
        scores = (self._score, *self._scores)
        fault = self._fault or next((bad for bad in map(_fault, scores) if bad), "")
        if fault:
            return fault
        if self._finished and all(score.done() for score in scores):
            return self._probe.judge(self.report())
        if now >= self._until_s:
            return f"it did not answer a short question in {self._probe.timeout_s:.0f} s"
        return None

    def report(self) -> ProbeReport:
        done = self._done[0] if self._done else {}
        usage, timings = _part(done, "usage"), _part(done, "timings")
        process = self._link.process
        return ProbeReport(
            text="".join(self._texts[0]),
            tokens=int(usage.get("completion_tokens", 0)),
            first_token_ms=timings.get("first_token_ms", 0.0),
            decode_tok_s=timings.get("decode_tok_s", 0.0),
            nll_per_token=_nll(self._score),
            memory_bytes=Bytes(process.memory_bytes() if process is not None else 0),
            nlls=tuple(map(_nll, self._scores)),
            answers=tuple("".join(text) for text in self._texts[1:]),
        )


def _job(number: int) -> str:
    return f"{JOB}-{number}" if number else JOB


def _fault(score: Answered) -> str:
    return str(score.exception()) if score.done() and score.exception() is not None else ""


def _nll(score: Answered) -> float:
    if not score.done() or score.exception() is not None:
        return math.nan
    return nats_per_token(score.result())


def nats_per_token(answer: Mapping[str, object]) -> float:
    """Of a score's answer; NaN when it is none: the runner is another process."""
    nll, tokens = answer.get("nll"), answer.get("tokens")
    if not isinstance(nll, int | float) or not isinstance(tokens, int) or tokens < 1:
        return math.nan
    return nll / tokens


def _part(done: Mapping[str, object], key: str) -> Mapping[str, float]:
    """Numbers by name; what is none is left out: the runner is another process."""
    found = done.get(key)
    items = found.items() if isinstance(found, Mapping) else ()
    return {str(name): float(value) for name, value in items if isinstance(value, int | float)}
