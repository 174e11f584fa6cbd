"""stoker-gateway: command line, sockets, the server and its end.

SIGTERM and SIGINT end it in order: streams are told. Where systemd opens the sockets it
leaves by itself after a while without connections, and comes back with the next one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from stoker import __version__
from stoker.gateway.settings import Settings, SettingsError, changed, load

_log = logging.getLogger("stoker.gateway")
EXAMPLES: Final = """\
examples:
  stoker-gateway --bus session --listen 127.0.0.1:8470 --unix /tmp/stoker.sock
  stoker-gateway --openapi >openapi.json
  curl http://127.0.0.1:8470/v1/models
  curl --unix-socket /run/stoker/gateway.sock http://localhost/health
  curl http://127.0.0.1:8470/v1/chat/completions -H 'Content-Type: application/json' \\
      -d '{"messages": [{"role": "user", "content": "Why is the sky blue?"}]}'
"""
_CONFIG_WRONG, _FAULT = 78, 70  # EX_CONFIG, EX_SOFTWARE
_TICK_S: Final = 1.0


def parser() -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(
        prog="stoker-gateway",
        description="Serve Stoker's language model over HTTP, as OpenAI's clients speak it.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = out.add_argument
    add("--config", type=Path, metavar="FILE", help="instead of /etc/stoker/gateway.toml")
    add(
        "--listen", action="append", metavar="ADDRESS:PORT",
        help="a loopback address; may be given several times",
    )  # fmt: skip
    add("--unix", metavar="PATH", help="a unix socket; '' for none")
    add("--bus", metavar="BUS", help="system, session or a D-Bus address")
    add("--tokens", metavar="FILE", help="bearer tokens that TCP needs: NAME SHA256 a line")
    add("--openapi", action="store_true", help="print the OpenAPI document, exit")
    add("--check-config", action="store_true", help="read the settings, report, exit")
    add("--version", action="version", version=f"stoker-gateway {__version__}")
    return out


def settings_of(args: argparse.Namespace) -> Settings:
    """File, then the command line. Raises SettingsError."""
    given: dict[str, Any] = {
        "listen": args.listen, "unix": args.unix, "bus": args.bus, "tokens": args.tokens,
    }  # fmt: skip
    given = {key: value for key, value in given.items() if value is not None}
    # A socket that is named says which ones are wanted: not those of the file as well.
    if "unix" in given and "listen" not in given:
        given["listen"] = []
    elif "listen" in given and "unix" not in given:
        given["unix"] = ""
    return changed(load(args.config), given, "command line")


def entry(argv: Sequence[str] | None = None) -> int:
    """The program. Returns the exit status."""
    args = parser().parse_args(argv)
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.INFO)
    if args.openapi:
        import json

        from stoker.gateway.openapi import document

        sys.stdout.write(json.dumps(document(), indent=2, ensure_ascii=False) + "\n")
        return 0
    try:
        settings = settings_of(args)
        if args.check_config:
            sys.stdout.write("configuration is good\n")
            return 0
        return _run(settings)
    except SettingsError as error:
        _log.error("%s", error)
        return _CONFIG_WRONG


def _run(settings: Settings) -> int:
    from stoker.gateway.sockets import names, opened, passed
    from stoker.gateway.tokens import Tokens

    try:
        tokens = Tokens(Path(settings.tokens) if settings.tokens else None)
    except (OSError, ValueError) as error:
        raise SettingsError(f"cannot read tokens: {error}") from error
    given = passed(os.environ)
    sockets = given or opened(settings)
    idle_s = settings.idle_exit_s if given else 0.0
    own = [sock.getsockname() for sock in sockets if not given and sock.family == socket.AF_UNIX]
    sys.stdout.write(f"listening on {' '.join(names(sockets))}\n")
    sys.stdout.flush()
    try:
        asyncio.run(_serve(settings, tokens, sockets, idle_s))
    finally:
        for path in own:
            with contextlib.suppress(OSError):
                Path(path).unlink()
    return 0


async def _serve(
    settings: Settings, tokens: Any, sockets: list[socket.socket], idle_s: float
) -> None:
    import uvicorn

    from stoker.gateway.connection import connection
    from stoker.gateway.doors import application
    from stoker_client.aio import AsyncStoker

    agent = AsyncStoker(settings.bus)

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            agent.close()  # streams end with an error that says so
            await super().shutdown(sockets)

    config = uvicorn.Config(
        application(agent, settings, tokens),
        http=connection(settings), ws="none", lifespan="off", loop="asyncio",
        # Who asks is what the kernel says, never a header.
        proxy_headers=False,
        access_log=False, log_config=None, log_level="warning",
        server_header=False, date_header=False,
    )  # fmt: skip
    server = Server(config)
    idle = asyncio.create_task(_leave_when_idle(server, idle_s)) if idle_s else None
    try:
        await server.serve(sockets=sockets)
    finally:
        if idle is not None:
            idle.cancel()


async def _leave_when_idle(server: Any, idle_s: float) -> None:
    """A client that comes meanwhile waits in the socket that systemd keeps."""
    quiet_s = 0.0
    while quiet_s < idle_s:
        await asyncio.sleep(_TICK_S)
        quiet_s = 0.0 if server.server_state.connections else quiet_s + _TICK_S
    server.should_exit = True


if __name__ == "__main__":
    sys.exit(entry())
