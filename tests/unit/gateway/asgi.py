"""One request through the whole application in this process, and clients that misbehave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fakes.agent import FakeAgent

from stoker.gateway.doors import application
from stoker.gateway.guard import UNIX, Guard
from stoker.gateway.settings import Settings
from stoker.gateway.tokens import Tokens

HI = [{"role": "user", "content": "hi"}]


@dataclass
class Reply:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    parts: list[bytes] = field(default_factory=list)
    more: bool = True

    @property
    def body(self) -> bytes:
        return b"".join(self.parts)

    def json(self) -> Any:
        return json.loads(self.body)

    def error(self) -> Any:
        return self.json()["error"]


class Door:
    """The application; ``uid`` makes the client a peer of the unix socket."""

    def __init__(self, tokens: Path | None = None, **settings: Any) -> None:
        self.agent = FakeAgent()
        self.app: Guard = application(self.agent, Settings(**settings), Tokens(tokens))

    def ask(self, path: str, body: object = None, **more: Any) -> Reply:
        return asyncio.run(self.asking(path, body, **more))

    async def asking(
        self, path: str, body: object = None, *, method: str = "", uid: int | None = None,
        headers: Mapping[str, str] | None = None, raw: bytes | None = None,
        leave_after: int | None = None, stuck: asyncio.Event | None = None,
    ) -> Reply:  # fmt: skip
        """``leave_after``: hangs up after so many parts; ``stuck``: reads none until it is set."""
        sent = raw if raw is not None else (b"" if body is None else json.dumps(body).encode())
        given = {"host": "localhost", "content-type": "application/json", **(headers or {})}
        scope = {
            "type": "http", "method": method or ("POST" if sent else "GET"), "path": path,
            "raw_path": path.encode(), "query_string": b"", "http_version": "1.1",
            "scheme": "http", "root_path": "",
            "headers": [(k.lower().encode(), v.encode()) for k, v in given.items()],
            "client": (UNIX, uid) if uid is not None else ("127.0.0.1", 4000),
            "server": ("127.0.0.1", 8470),
        }  # fmt: skip
        reply, gone = Reply(), asyncio.Event()
        bodies = [{"type": "http.request", "body": sent, "more_body": False}]

        async def receive() -> Any:
            if bodies:
                return bodies.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                reply.status = message["status"]
                reply.headers = {k.decode(): v.decode() for k, v in message["headers"]}
                return
            if stuck is not None:
                await stuck.wait()
            if message.get("body"):
                reply.parts.append(message["body"])
            reply.more = message.get("more_body", False)
            if leave_after is not None and len(reply.parts) >= leave_after:
                gone.set()

        if leave_after == 0:
            asyncio.get_running_loop().call_soon(gone.set)
        await asyncio.wait_for(self.app(scope, receive, send), 10)
        return reply
