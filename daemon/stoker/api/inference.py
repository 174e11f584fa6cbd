"""org.stoker.Inference1: asking the model.

Each method parses, calls one service method and converts. Pipes are made here, so that
the service never sees a read end; everything slow is a future.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from stoker.api import contract, handover, requests
from stoker.api.behalf import speaker
from stoker.api.exports import Answer, Door, Later, Method, bus_text, vardict
from stoker.api.job import Jobs
from stoker.errors import Busy, by_code
from stoker.events.inference import MemoryUse, ModelInfo, Owner
from stoker.ports.doors import InferenceDoor, InferenceSnapshot, JobView, QueueLine
from stoker.ports.system import Authority


class InferenceRoom:
    def __init__(
        self,
        service: InferenceDoor,
        jobs: Jobs,
        limits: requests.Limits,
        sessions: Mapping[str, Method],
        authority: Authority,
    ) -> None:
        """``sessions``: the methods of this interface that lead to kept conversations."""
        self._sessions, self._authority = sessions, authority
        self._service = service
        self._jobs = jobs
        self.limits = limits

    def door(self) -> Door:
        return Door(
            contract.INFERENCE,
            {
                "CreateJob": self.create_job,
                "CreateJobFd": self.create_job_fd,
                "Ask": self.ask,
                "Tokenize": self.tokenize,
                "CountTokens": self.count_tokens,
                "Embed": self.embed,
                "Score": self.score,
                "ListModels": self.list_models,
                "ListQueue": self.list_queue,
                **self._sessions,
            },
            lambda _owner: properties(self._service.snapshot()),
        )

    def create_job(self, owner: Owner, args: tuple[Any, ...]) -> Later:
        return self._start(owner, args[0], args[1], self.limits)

    def create_job_fd(self, owner: Owner, args: tuple[Any, ...]) -> Later:
        request = handover.read_request(args[0], self.limits.max_request_fd_bytes)
        return self._start(owner, request, args[1], self.limits.of_files())

    def _start(
        self,
        owner: Owner,
        request: Mapping[str, object],
        options: Mapping[str, object],
        limits: requests.Limits,
    ) -> Later:
        owner, options = speaker(owner, options, self._authority)
        ask = requests.parse_ask(request, limits)
        delivery = requests.parse_delivery(options)
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

    def tokenize(self, owner: Owner, args: tuple[Any, ...]) -> Later:
        text = requests.parse_text(args[0])
        return Later(self._service.tokenize(text, owner), lambda tokens: Answer((tokens,)))

    def count_tokens(self, owner: Owner, args: tuple[Any, ...]) -> Later:
        text = requests.parse_text(args[0])
        return Later(self._service.tokenize(text, owner), lambda tokens: Answer((len(tokens),)))

    def embed(self, owner: Owner, args: tuple[Any, ...]) -> Later:
        owner, options = speaker(owner, args[1], self._authority)
        requests.parse_nothing(options)
        texts = requests.parse_texts(args[0], self.limits)
        return Later(self._service.embed(texts, owner), Answer)

    def score(self, owner: Owner, args: tuple[Any, ...]) -> Later:
        owner, options = speaker(owner, args[1], self._authority)
        requests.parse_nothing(options)
        (text,) = requests.parse_texts([args[0]], self.limits)
        return Later(self._service.score(text, owner), Answer)

    def list_queue(self, owner: Owner, _args: tuple[Any, ...]) -> Later:
        whole = self._authority.may_manage(owner.uid)
        return Later(self._service.queue(None if whole else owner.uid), _queue)

    def list_models(self, _owner: Owner, _args: tuple[Any, ...]) -> Later:
        return Later(self._service.list_models(), _models)


def _queue(found: tuple[QueueLine, ...]) -> Answer:
    return Answer(([(one.uid, one.job_class, one.running, one.waiting) for one in found],))


def _models(found: tuple[ModelInfo, ...]) -> Answer:
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
            aliases=("as", [bus_text(alias) for alias in model.aliases]),
            adapters=("as", list(model.adapters)),
            **memory_use(model.memory),
        )
        for model in found
    ]
    return Answer((models,))


def memory_use(use: MemoryUse | None, *, whole: bool = False) -> dict[str, tuple[str, object]]:
    """What the model in use was given; nothing for the others. ``whole`` with its context."""
    if use is None:
        return {}
    context: dict[str, tuple[str, object]] = {"context_tokens": ("u", use.context_tokens)}
    return (context if whole else {}) | {
        "slots": ("u", use.slots),
        "kv_type": ("s", use.kv_type),
        "kv_bytes": ("t", use.kv_bytes),
        "expected_bytes": ("t", use.expected_bytes),
        "gave_way": ("s", use.gave_way),
    }


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
