"""The paths: each reads a body, asks the agent, and writes what OpenAI's clients expect.

Jobs are opened at once and their first words awaited before the status is sent, so that
an error which comes with them has a status of its own.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import math
import os
import secrets
import struct
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, Protocol, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from stoker.gateway import answers, asking, openapi, wire
from stoker.gateway.guard import Guard, peer_uid
from stoker.gateway.problems import Problem, tell
from stoker.gateway.settings import Settings
from stoker.gateway.streams import EventStream, Gone, Jobs, Stream, collect, unless_gone
from stoker.gateway.tokens import Tokens
from stoker_client.errors import StokerClientError
from stoker_client.requests import Pairs

log = logging.getLogger(__name__)
T = TypeVar("T")
COMMIT_S: Final = 2.0  # without a word of the job: the client gets its headers
_USABLE: Final = ("ready", "loading", "idle")
_BODY = Callable[[object], T]


class Agent(Protocol):
    """What of ``stoker_client.aio.AsyncStoker`` is used."""

    async def stream(self, request: Pairs, options: Pairs) -> Stream: ...
    async def embed(
        self, texts: Sequence[str], options: Pairs
    ) -> tuple[list[list[float]], int]: ...
    async def models(self) -> list[dict[str, Any]]: ...
    async def properties(self) -> dict[str, Any]: ...


def application(agent: Agent, settings: Settings, tokens: Tokens) -> Guard:
    """The whole door as one ASGI application."""
    doors = Doors(agent, settings)
    routes = [
        Route("/v1/chat/completions", _door(doors.chat), methods=["POST"]),
        Route("/v1/completions", _door(doors.completions), methods=["POST"]),
        Route("/v1/embeddings", _door(doors.embeddings), methods=["POST"]),
        Route("/v1/models", _door(doors.models), methods=["GET"]),
        Route("/v1/models/{model:path}", _door(doors.model), methods=["GET"]),
        Route("/health", _door(doors.health), methods=["GET"]),
        Route("/openapi.json", _door(doors.openapi), methods=["GET"]),
    ]
    app = Starlette(routes=routes, exception_handlers={404: _strange, 405: _strange})
    return Guard(app, settings, tokens)


class Doors:
    def __init__(self, agent: Agent, settings: Settings) -> None:
        self._agent, self._settings = agent, settings

    async def chat(self, request: Request) -> Response:
        return await self._generate(request, asking.chat, chat=True)

    async def completions(self, request: Request) -> Response:
        return await self._generate(request, asking.completion, chat=False)

    async def embeddings(self, request: Request) -> Response:
        asked = asking.embedding(await self._body(request))
        model = await self._loaded_as(asked.model)
        vectors: list[list[float]] = []
        tokens = 0
        for texts in asked.portions():
            more, read = await self._agent.embed(texts, _behalf(request))
            vectors, tokens = vectors + more, tokens + read
        if asked.dimensions and vectors and len(vectors[0]) != asked.dimensions:
            raise Problem(
                "invalid-request", f"cannot answer with {asked.dimensions} dimensions: this "
                f"model has {len(vectors[0])}", param="dimensions",
            )  # fmt: skip
        data = [
            {
                "object": "embedding",
                "index": index,
                "embedding": _base64(vector) if asked.base64 else vector,
            }
            for index, vector in enumerate(vectors)
        ]
        counts = {"prompt_tokens": tokens, "total_tokens": tokens}
        body = {"object": "list", "data": data, "model": model, "usage": counts}
        return wire.answer(request, body)

    async def models(self, request: Request) -> Response:
        found = [_model(item) for item in await self._agent.models() if _usable(item)]
        return wire.answer(request, {"object": "list", "data": found})

    async def model(self, request: Request) -> Response:
        wanted = request.path_params["model"]
        for item in await self._agent.models():
            if wanted in _names(item) and _usable(item):
                return wire.answer(request, _model(item))
        raise _no_model(wanted)

    async def health(self, request: Request) -> Response:
        now = await self._agent.properties()
        state = str(now.get("State", ""))
        if state not in ("ready", "asleep"):  # asleep: the next request wakes it
            code = "model-loading" if state in ("starting", "loading") else "unavailable"
            raise StokerClientError(
                code, f"cannot answer yet: the model is {state}", details={"retry_after_ms": 2000}
            )
        depth, active = int(now.get("QueueDepth", 0)), int(now.get("ActiveJobs", 0))
        facts = {"model": str(now.get("Model", "")), "queue_depth": depth, "active_jobs": active}
        return wire.answer(request, {"status": "ok", **facts})

    async def openapi(self, request: Request) -> Response:
        return wire.answer(request, openapi.document())

    async def _generate(
        self, request: Request, read: _BODY[asking.Asked], *, chat: bool
    ) -> Response:
        asked = read(await self._body(request))
        jobs = Jobs(await self._open(asked, {**asked.options, **_behalf(request)}))
        choices = [answers.Choice(index) for index in range(len(asked.requests))]
        kept = False
        try:
            prefix = "chatcmpl-" if chat else "cmpl-"
            name, begun_s = prefix + secrets.token_hex(12), math.floor(time.time())
            first = await jobs.next(COMMIT_S if asked.stream else None)
            # Only now: a model that slept had no name before.
            model = asked.model or await self._loaded() or await self._wanted()
            head = answers.Head(name, begun_s, model, chat)
            if not asked.stream:
                await collect(jobs, choices, first)
                body = answers.whole(head, choices, asked.count, asked.echo)
                return wire.answer(request, body)
            chunks = answers.Chunks(
                head, choices, count=asked.count,
                include_usage=asked.include_usage, echo=asked.echo,
            )  # fmt: skip
            kept = True
            form = wire.form_of(request)
            return EventStream(jobs, chunks, form, first, self._settings.keepalive_s)
        finally:
            if not kept:
                jobs.close()

    async def _open(self, asked: asking.Asked, options: Pairs) -> list[Stream]:
        """A job for each choice, all or none."""
        streams: list[Stream] = []
        try:
            for pairs in asked.requests:
                streams.append(
                    await self._of_model(asked.model, self._agent.stream(pairs, options))
                )
        except BaseException:
            for stream in streams:
                stream.close()
            raise
        return streams

    async def _of_model(self, model: str, call: Awaitable[T]) -> T:
        """A model that is not there is another error than one that cannot be used now."""
        try:
            return await call
        except StokerClientError as error:
            if not model or error.code not in ("model-unavailable", "not-found"):
                raise
            if any(model in _names(item) for item in await self._agent.models()):
                raise
            raise _no_model(model) from error

    async def _loaded_as(self, model: str) -> str:
        """The loaded model's name, if ``model`` means it: Embed takes none but that one."""
        loaded = await self._loaded()
        if model in ("", loaded):
            return loaded
        for item in await self._agent.models():
            if model in _names(item):
                if item.get("name") == loaded:
                    return loaded
                raise StokerClientError(
                    "model-unavailable", f"cannot embed with {model!r}: {loaded!r} is loaded"
                )
        raise _no_model(model)

    async def _wanted(self) -> str:
        """The model that is being loaded for whoever names none."""
        found = (str(item["name"]) for item in await self._agent.models() if item.get("default"))
        return next(found, "")

    async def _loaded(self) -> str:
        return str((await self._agent.properties()).get("Model", ""))

    async def _body(self, request: Request) -> Any:
        settings = self._settings
        return await wire.read(request, settings.max_body_bytes, settings.body_timeout_s)


def _door(
    handle: Callable[[Request], Coroutine[Any, Any, Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """The handler with its errors told, and cancelled when the client leaves."""

    async def endpoint(request: Request) -> Response:
        name = request.state.request_id
        try:
            if request.method != "POST":
                return await handle(request)
            return await _bodied(request, handle)
        except (Problem, StokerClientError) as error:
            return wire.problem(request, tell(error, name))
        except (Gone, wire.ClientDisconnect):
            return Response(status_code=499)  # nobody reads it
        except Exception:
            log.exception("fault in request %s", name)
            fault = StokerClientError("internal", "cannot answer: a fault in the gateway")
            return wire.problem(request, tell(fault, name))

    return endpoint


async def _bodied(
    request: Request, handle: Callable[[Request], Coroutine[Any, Any, Response]]
) -> Response:
    """Whoever reads the body also hears of the client's leave; then we listen for it."""
    whole = asyncio.Event()
    inner = request._receive

    async def receive() -> Any:
        message = await inner()
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            whole.set()
        return message

    async def later() -> Any:
        await whole.wait()
        return await inner()

    return await unless_gone(later, handle(Request(request.scope, receive)))


async def _strange(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    code = "method-not-allowed" if status == 405 else "not-found"
    found = Problem(code, f"cannot serve {request.method} {request.url.path[:256]}: no such door")
    response = wire.problem(request, tell(found, request.state.request_id))
    if isinstance(error, HTTPException) and error.headers:
        response.headers.update(error.headers)
    return response


def _behalf(request: Request) -> Pairs:
    """Our own user needs no permission to be itself, which development relies on."""
    uid = peer_uid(request.scope)
    if uid is None or uid == os.geteuid():
        return {}
    return {"on_behalf_of_uid": ("u", uid)}


def _usable(item: dict[str, Any]) -> bool:
    return item.get("state") in _USABLE


def _names(item: dict[str, Any]) -> tuple[str, ...]:
    return (str(item.get("name", "")), *(str(name) for name in item.get("aliases", ())))


def _model(item: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": str(item.get("name", "")),
        "object": "model",
        "created": 0,
        "owned_by": "stoker",
        "aliases": [str(name) for name in item.get("aliases", ())],
        "state": str(item.get("state", "")),
        "description": str(item.get("description", "")),
        "context_tokens": int(item.get("context_tokens", 0)),
    }


def _no_model(name: str) -> Problem:
    return Problem(
        "model-not-found", f"cannot find model {name[:256]!r}", param="model",
        hint="GET /v1/models lists them",
    )  # fmt: skip


def _base64(vector: Sequence[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
