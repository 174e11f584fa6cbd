"""Who comes in: host, origin, token and number of requests, before anything is read.

Loopback is reachable by every web page of every browser on this device. A page cannot
choose the Host header, and a browser says the Origin of a page: so both are checked.
Peers of the unix socket are no browsers and are known by the kernel.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stoker.gateway import wire
from stoker.gateway.problems import Problem, tell
from stoker.gateway.settings import Settings
from stoker.gateway.tokens import Tokens
from stoker_client.errors import StokerClientError

UNIX: Final = "unix"
"""``scope["client"]`` of a unix peer is (UNIX, its user ID); see connection.py."""

_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_METHODS: Final = "GET, POST, OPTIONS"
_ALLOWED: Final = "authorization, content-type, accept"
OPEN: Final = frozenset({"/health"})
"""Paths that need no token: for those who only look whether we live."""


def peer_uid(scope: Scope) -> int | None:
    """The user at the other end of the unix socket; None over TCP."""
    client = scope.get("client")
    return int(client[1]) if client and client[0] == UNIX else None


class Guard:
    """ASGI middleware. It also names each request and tells the origin what it may know."""

    def __init__(self, app: ASGIApp, settings: Settings, tokens: Tokens) -> None:
        self._app, self._tokens = app, tokens
        self._most = settings.max_connections
        self._most_of_one = settings.max_connections_of_one
        self._hosts = _LOCAL | {host.lower() for host in settings.hosts}
        self._origins = frozenset(settings.origins)
        self._active: Counter[int | None] = Counter()  # by peer; all of TCP is one

    @property
    def active(self) -> int:
        return self._active.total()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # uvicorn runs us without lifespan and without web sockets
        request = Request(scope, receive)
        name = secrets.token_hex(12)
        scope.setdefault("state", {})["request_id"] = name
        extra = [(b"x-request-id", name.encode())]
        try:
            origin = self._check(request)
        except (Problem, StokerClientError) as error:
            await wire.problem(request, tell(error, name))(scope, receive, _with(send, extra))
            return
        if origin:
            extra += [(b"access-control-allow-origin", origin.encode()), (b"vary", b"Origin")]
        peer = peer_uid(scope)
        self._active[peer] += 1
        try:
            app = _preflight if origin and request.method == "OPTIONS" else self._app
            await app(scope, receive, _with(send, extra))
        finally:
            self._active[peer] -= 1
            if not self._active[peer]:
                del self._active[peer]

    def _check(self, request: Request) -> str:
        """The origin of a web page that may ask, else "". Raises Problem."""
        local = peer_uid(request.scope) is not None
        if not local:
            self._check_host(request.headers.getlist("host"))
        origin = request.headers.get("origin", "")
        if origin and origin not in self._origins:
            raise Problem(
                "not-acceptable-origin",
                f"cannot accept request: pages of {origin!r} may not ask",
                hint="origins in gateway.toml names those that may",
            )
        mine = self._active[peer_uid(request.scope)]
        if self.active >= self._most or mine >= self._most_of_one:
            raise StokerClientError(
                "busy", f"cannot accept request: {self.active} are open, {mine} of them yours",
                details={"retry_after_ms": 1000},
            )  # fmt: skip
        preflight = bool(origin) and request.method == "OPTIONS"
        if not local and not preflight and request.url.path not in OPEN:
            self._tokens.admit(request.headers.get("authorization", ""))
        return origin

    def _check_host(self, hosts: list[str]) -> None:
        host = hosts[0].lower() if len(hosts) == 1 else ""
        name, colon, port = host.rpartition(":")
        if colon and port.isdecimal():
            host = name
        if host not in self._hosts:
            raise Problem(
                "not-acceptable-host",
                f"cannot accept request: its Host is {host[:80]!r}",
                hint="ask localhost, or add the name to hosts in gateway.toml",
            )


async def _preflight(scope: Scope, receive: Receive, send: Send) -> None:
    headers = {
        "access-control-allow-methods": _METHODS,
        "access-control-allow-headers": _ALLOWED,
        "access-control-max-age": "600",
    }
    await Response(status_code=204, headers=headers)(scope, receive, send)


def _with(send: Send, extra: list[tuple[bytes, bytes]]) -> Callable[[Message], Awaitable[Any]]:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *extra]}
        await send(message)

    return sending
