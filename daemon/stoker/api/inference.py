"""org.stoker.Inference1: asking the model.

Each method parses, calls one service method and converts. Pipes are made here, so that
the service never sees a read end; everything slow is a future.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from stoker.api import contract, requests
from stoker.api.exports import Answer, Door, Later, Method, bus_text, vardict
from stoker.api.job import Jobs
from stoker.errors import Busy, by_code
from stoker.events.inference import Owner
from stoker.ports.doors import InferenceDoor, InferenceSnapshot, JobView


class InferenceRoom:
    def __init__(
        self,
        service: InferenceDoor,
        jobs: Jobs,
        limits: requests.Limits,
        sessions: Mapping[str, Method],
    ) -> None:
        """``sessions``: the methods of this interface that lead to kept conversations."""
        self._sessions = sessions
        self._service = service
        self._jobs = jobs
        self.limits = limits

    def door(self) -> Door:
        return Door(
            contract.INFERENCE,
            {
                "CreateJob": self.create_job,
                "Ask": self.ask,
                "Tokenize": self.tokenize,
                "CountTokens": self.count_tokens,
                "ListModels": self.list_models,
                **self._sessions,
            },
            lambda _owner: properties(self._service.snapshot()),
        )

    def create_job(self, owner: Owner, args: tuple[Any, ...]) -> Later:
        ask = requests.parse_ask(args[0], self.limits)
        delivery = requests.parse_delivery(args[1])
        reader, writer = stream_pipe()
        try:  # the service owns ``writer`` from here on, whatever happens
            future = self._service.submit(ask, delivery, owner, writer)
        except BaseException:
            os.close(reader)
            raise
        accept = self._jobs.accept
        return Later(future, lambda v: Answer((accept(v), 0), (reader,)), lambda: os.close(reader))

    def ask(self, owner: Owner, args: tuple[Any, ...]) -> Later:
        ask = requests.parse_question(args[0], self.limits)
        return Later(self._service.answer(ask, owner), answer_text)

    def tokenize(self, _owner: Owner, args: tuple[Any, ...]) -> Later:
        text = requests.parse_text(args[0])
        return Later(self._service.tokenize(text), lambda tokens: Answer((tokens,)))

    def count_tokens(self, _owner: Owner, args: tuple[Any, ...]) -> Later:
        text = requests.parse_text(args[0])
        return Later(self._service.tokenize(text), lambda tokens: Answer((len(tokens),)))

    def list_models(self, _owner: Owner, _args: tuple[Any, ...]) -> Answer:
        models = [
            vardict(
                name=("s", model.name),
                path=("s", model.path),
                size_bytes=("t", model.size_bytes),
                state=("s", model.state),
                reason=("s", model.reason),
                default=("b", model.default),
                description=("s", model.description),
                context_tokens=("u", model.context_tokens),
            )
            for model in self._service.models()
        ]
        return Answer((models,))


def properties(now: InferenceSnapshot) -> dict[str, Any]:
    loading = now.state == "loading"
    return {
        "State": now.state,
        "LoadProgress": round(now.load_progress, 3) if loading else 1.0,
        "Model": bus_text(now.model),
        "QueueDepth": now.queue_depth,
        "ActiveJobs": now.active_jobs,
    }


def answer_text(view: JobView) -> Answer:
    """The whole answer, or the typed error that ended the job."""
    if view.error_code:
        raise by_code(view.error_code)(view.error_message or "cannot finish the answer")
    return Answer((bus_text(view.text),))


def stream_pipe() -> tuple[int, int]:
    """(read end, write end). Only the write end never blocks; both close on exec."""
    try:
        reader, writer = os.pipe2(os.O_CLOEXEC)
    except OSError as error:
        raise Busy(f"cannot open a stream: {error.strerror}", hint="try again shortly") from error
    # O_NONBLOCK belongs to one end's open file: a reader that expects to wait still does.
    os.set_blocking(writer, False)
    return reader, writer
