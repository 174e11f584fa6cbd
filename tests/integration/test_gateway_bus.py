"""The gateway as a process: who its peers are, what it bears, how it comes and goes."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gi.repository import GLib
from tests.fakes.bus_client import BusClient
from tests.integration.conftest import Spawn
from tests.integration.gateway_rig import Gateway, ask, events, gateway, with_socket
from tests.integration.stokerd_rig import until

from stoker import errors
from stoker.tour.private_bus import PrivateBus

pytestmark = pytest.mark.bus

NOBODY = 65534
CHAT = "/v1/chat/completions"
SETTINGS = "header_timeout_s = 0.4\nbody_timeout_s = 0.4\nmax_connections = 4\nkeepalive_s = 0.2\n"


def asks(words: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": words}], **more}


@pytest.fixture(scope="module")
def own_bus() -> Iterator[PrivateBus]:
    with PrivateBus() as bus:
        yield bus


@pytest.fixture(scope="module")
def door(own_bus: PrivateBus, spawn_session: Spawn, child_env: dict[str, str]) -> Iterator[Gateway]:
    """In front of fake services, which take our own user for the gateway's."""
    spawn_session(
        "tests.fakes.dbus_server", own_bus.address, "--gateway", str(os.geteuid()), ready="ready"
    )
    home = Path(tempfile.mkdtemp(prefix="gateway."))
    home.chmod(0o755)  # another user must reach the socket, which pytest's folders forbid
    try:
        with gateway(own_bus.address, home, child_env, config=SETTINGS) as running:
            yield running
    finally:
        shutil.rmtree(home)


def described(body: bytes) -> Any:
    """What arrived at the service, as its "describe" job tells it."""
    return json.loads(json.loads(body)["choices"][0]["message"]["content"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can call as another user")
def test_a_peer_of_the_unix_socket_asks_as_itself(door: Gateway) -> None:
    command = ["curl", "-sS", "--unix-socket", str(door.socket_path), f"http://x{CHAT}"]
    command += ["-H", "Content-Type: application/json", "-d", json.dumps(asks("describe"))]
    command += ["-H", "X-Forwarded-For: 127.0.0.1"]
    done = subprocess.run(
        command, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", capture_output=True,
        timeout=20, check=True,
    )  # fmt: skip
    owner = described(done.stdout)["owner"]
    assert owner["uid"] == NOBODY
    assert owner["pid"] == door.process.pid  # and its connection is the gateway's


def test_tcp_asks_as_the_gateway_whatever_headers_say(door: Gateway) -> None:
    headers = {"X-Forwarded-For": "unix", "Forwarded": "for=unix", "X-Forwarded-Proto": "unix"}
    owner = described(ask(door, CHAT, asks("describe"), headers=headers).body)["owner"]
    assert owner["uid"] == os.geteuid()


def test_nobody_else_may_speak_for_others(session_bus: PrivateBus, fake_server: object) -> None:
    with BusClient(session_bus.address) as client, pytest.raises(errors.NotAuthorized):
        client.create_job("hi", option_on_behalf_of_uid=GLib.Variant("u", 0))


def test_a_client_that_hangs_up_ends_its_job(door: Gateway, own_bus: PrivateBus) -> None:
    with socket.create_connection(("127.0.0.1", door.port)) as sock:
        body = json.dumps(asks("hold", stream=True)).encode()
        sock.sendall(
            b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (CHAT.encode(), len(body), body)
        )
        got = b""
        while b"holding" not in got:
            got += sock.recv(65536)
        assert ask(door, "/health").json()["active_jobs"] == 1
    until(lambda: ask(door, "/health").json()["active_jobs"] == 0, "the job is gone", 5.0)


def test_one_that_hangs_up_before_the_answer_ends_its_job_too(door: Gateway) -> None:
    with socket.create_connection(("127.0.0.1", door.port)) as sock:
        body = json.dumps(asks("hold")).encode()
        sock.sendall(
            b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (CHAT.encode(), len(body), body)
        )
        until(lambda: ask(door, "/health").json()["active_jobs"] == 1, "the job runs", 5.0)
    until(lambda: ask(door, "/health").json()["active_jobs"] == 0, "the job is gone", 5.0)


def test_a_large_question_arrives_whole(door: Gateway) -> None:
    words = "wörd " * 20_000  # beyond 64 KiB it goes as a file
    reply = ask(door, CHAT, asks(words))
    assert reply.json()["choices"][0]["message"]["content"] == words


def test_no_token_waits_for_an_acknowledgement(door: Gateway) -> None:
    con = http.client.HTTPConnection("127.0.0.1", door.port)
    body, times = json.dumps(asks("hi", stream=True)), []
    for _ in range(20):
        began = time.monotonic()
        con.request("POST", CHAT, body, {"Content-Type": "application/json"})
        con.getresponse().read()
        times.append(time.monotonic() - began)
    con.close()
    assert min(times) < 0.03  # a delayed acknowledgement takes 40 ms, every time


def test_errors_of_the_bus_have_their_status(door: Gateway) -> None:
    for code, status in (("busy", 503), ("quota-exceeded", 429), ("not-authorized", 403)):
        reply = ask(door, CHAT, asks(f"refuse {code}"))
        assert (reply.status, reply.json()["error"]["code"]) == (status, code.replace("-", "_"))
    found = events(ask(door, CHAT, asks("break engine-failed", stream=True)))
    assert found[-1]["error"]["code"] == "engine_failed"


def test_a_slow_head_is_shown_out_and_keeps_nobody_from_asking(door: Gateway) -> None:
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", door.port)) as sock:
        sock.sendall(b"GET /health HTTP/1.1\r\nHost: loc")
        assert ask(door, "/health").status == 200
        sock.settimeout(5)
        assert sock.recv(100) == b""
    assert 0.3 < time.monotonic() - began < 4


def test_a_slow_body_is_a_request_timeout(door: Gateway) -> None:
    with socket.create_connection(("127.0.0.1", door.port)) as sock:
        sock.sendall(
            b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 99\r\n\r\n{" % CHAT.encode()
        )
        sock.settimeout(5)
        assert sock.recv(100).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("path", [CHAT, "/nowhere"])
def test_a_body_that_breaks_http_is_answered_once_and_fills_no_log(
    door: Gateway, path: str
) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    request = f"{head}Transfer-Encoding: chunked\r\n\r\nzz\r\n".encode()
    with socket.create_connection(("127.0.0.1", door.port), timeout=10) as client:
        client.sendall(request)
        told = b""
        while part := client.recv(4096):
            told += part
    assert told.startswith(b"HTTP/1.1 400 ")
    assert told.count(b"HTTP/1.1") == 1
    assert ask(door, "/health").status == 200
    assert "Traceback" not in door.text()


def test_connections_beyond_the_bound_get_a_refusal(door: Gateway) -> None:
    idle = [socket.create_connection(("127.0.0.1", door.port)) for _ in range(4 + 16)]
    try:
        reply = ask(door, "/health")
        assert (reply.status, reply.json()["error"]["code"]) == (503, "busy")
    finally:
        for sock in idle:
            sock.close()
    until(lambda: ask(door, "/health").status == 200, "room again", 5.0)


def test_connections_over_tcp_leave_room_for_users_of_the_socket(door: Gateway) -> None:
    idle = [socket.create_connection(("127.0.0.1", door.port)) for _ in range(20)]
    try:
        assert ask(door, "/health").status == 503
        assert ask(door, "/health", unix=True).status == 200
    finally:
        for sock in idle:
            sock.close()


def test_without_the_agent_the_error_says_how_to_start_it(
    tmp_path: Path, child_env: dict[str, str], private_bus: PrivateBus
) -> None:
    with gateway(private_bus.address, tmp_path, child_env) as door:
        reply = ask(door, CHAT, asks("hi"))
        assert (reply.status, reply.json()["error"]["code"]) == (503, "unavailable")
        assert "systemctl status stoker" in reply.json()["hint"]
        private_bus.stop()
        assert ask(door, "/health").json()["error"]["code"] == "unavailable"


def test_started_by_a_socket_it_serves_and_leaves_when_idle(
    own_bus: PrivateBus, door: Gateway, tmp_path: Path, child_env: dict[str, str]
) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text("idle_exit_s = 1.0\n")
    words = ["-m", "stoker.gateway.main", f"--config={config}", f"--bus={own_bus.address}"]
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for _ in range(2):  # and comes again for the next one
            with with_socket(server, *words, env=child_env) as process:
                reply = ask(Gateway(process, port, tmp_path, tmp_path), "/health")
                assert reply.status == 200
                assert process.wait(10) == 0
