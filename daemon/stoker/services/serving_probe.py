"""Trying the model that serves, as a caller would: through the queue, while others ask.

For what changes without another runner: a policy, adapters, and a return that needed none. It
runs in the update thread and waits. See ``model_probe`` for a model that does not serve yet.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from typing import Final, Protocol, TypeVar

from stoker import errors
from stoker.events.inference import Ask
from stoker.events.models import Probe, ProbeReport, Question
from stoker.events.prompt import Sampling, Shape
from stoker.ports.doors import JobView
from stoker_ota.errors import Unhealthy

_T = TypeVar("_T")
LOOK_S: Final = 0.1


class Asked(Protocol):
    """Of ``InferenceService``."""

    def surprise(self, text: str) -> Future[float]: ...

    def ask_ourselves(self, ask: Ask) -> Future[JobView]: ...


class ServingProbe:
    """``cancelled`` may raise to end the wait."""

    def __init__(self, service: Asked, cancelled: Callable[[], bool]) -> None:
        self._service, self._cancelled = service, cancelled

    def run(self, probe: Probe) -> None:
        """Raises Unhealthy. What passes (busy, loading, heat) is waited for, up to its time."""
        end = time.monotonic() + probe.timeout_s
        nats = [self._patiently(lambda t=text: self._service.surprise(t), end)  # type: ignore[misc]
                for text in (probe.text, *probe.texts)]  # fmt: skip
        began = time.monotonic()
        first = self._answer(Question(probe.prompt, probe.max_tokens), end, raw=True)
        took_s = max(time.monotonic() - began, 1e-3)
        answers = [self._answer(question, end) for question in probe.questions]
        report = ProbeReport(
            text=first.text,
            tokens=first.completion_tokens,
            decode_tok_s=first.completion_tokens / took_s,  # reading the prompt included
            nll_per_token=nats[0],
            nlls=tuple(nats[1:]),
            answers=tuple(answer.reasoning + answer.text for answer in answers),
        )
        fault = probe.judge(report)
        if fault:
            raise Unhealthy(f"cannot keep the set: {fault}")

    def _answer(self, question: Question, end: float, *, raw: bool = False) -> JobView:
        ask = Ask(
            prompt=question.prompt,
            raw=raw,
            max_tokens=question.max_tokens,
            sampling=Sampling(temperature=0.0),
            shape=Shape(adapters=question.adapters),
        )
        view = self._patiently(lambda: self._service.ask_ourselves(ask), end)
        if view.error_code:
            raise Unhealthy(f"cannot keep the set: {view.error_message}")
        return view

    def _patiently(self, begin: Callable[[], Future[_T]], end: float) -> _T:
        while True:
            try:
                return self._wait(begin(), end)
            except errors.StokerError as error:
                self._cancelled()
                if not error.retryable or time.monotonic() >= end:
                    raise Unhealthy(f"cannot keep the set: {error.message}") from error
                time.sleep(LOOK_S)

    def _wait(self, future: Future[_T], end: float) -> _T:
        while True:
            try:
                return future.result(LOOK_S)
            except NotYet as error:
                self._cancelled()
                if time.monotonic() >= end:
                    raise Unhealthy("cannot keep the set: it does not answer") from error
