"""The whole door in this process: who comes in, in which form, and how streams go and end."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import msgpack
import pytest
from tests.fakes.agent import DONE, FakeStream
from tests.unit.gateway.asgi import HI, Door

from stoker_client.errors import StokerClientError
from stoker_client.records import Record
from stoker_client.requests import Pairs

CHAT = "/v1/chat/completions"
ASK = {"messages": HI}
STREAM = {"messages": HI, "stream": True}


@pytest.fixture
def door() -> Door:
    return Door()


def events(body: bytes) -> list[Any]:
    rows = [row.removeprefix("data: ") for row in body.decode().split("\n\n") if row]
    return [row if row[0] in "[:" else json.loads(row) for row in rows]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8470", "127.0.0.1:1", "[::1]:8470"])
def test_local_names_are_served(door: Door, host: str) -> None:
    assert door.ask("/v1/models", headers={"host": host}).status == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "", "localhost:x"])
def test_a_rebound_name_is_not(door: Door, host: str) -> None:
    reply = door.ask("/v1/models", headers={"host": host})
    assert (reply.status, reply.error()["code"]) == (421, "host_not_allowed")


def test_a_configured_name_is_served_and_the_unix_socket_looks_at_none() -> None:
    assert (
        Door(hosts=("board.local",)).ask("/health", headers={"host": "board.local"}).status == 200
    )
    assert Door().ask("/health", headers={"host": "anything"}, uid=1000).status == 200


def test_web_pages_may_ask_only_where_they_are_named() -> None:
    page = {"origin": "http://localhost:3000"}
    reply = Door().ask("/v1/models", headers=page)
    assert (reply.status, reply.error()["code"]) == (403, "origin_not_allowed")
    assert "access-control-allow-origin" not in reply.headers
    door = Door(origins=("http://localhost:3000",))
    reply = door.ask("/v1/models", headers=page)
    assert reply.headers["access-control-allow-origin"] == "http://localhost:3000"
    preflight = door.ask(CHAT, method="OPTIONS", headers=page)
    assert preflight.status == 204
    assert "content-type" in preflight.headers["access-control-allow-headers"]
    assert door.ask("/v1/models", headers={"origin": "null"}).status == 403


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_forms_of_web_pages_are_not_read(door: Door, kind: str) -> None:
    reply = door.ask(CHAT, ASK, headers={"content-type": kind})
    assert (reply.status, reply.error()["code"]) == (415, "unsupported_media_type")
    assert door.agent.asked == []


def test_a_token_is_needed_over_tcp_where_a_file_names_some(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# mine\nphone {hashlib.sha256(b'secret').hexdigest()}  # of ann\n")
    door = Door(tokens=file)
    assert door.ask("/v1/models").status == 401
    assert door.ask("/v1/models", headers={"authorization": "Bearer wrong"}).status == 401
    assert door.ask("/v1/models", headers={"authorization": "Basic secret"}).status == 401
    reply = door.ask("/v1/models", headers={"authorization": "bearer secret"})
    assert reply.status == 200
    assert door.ask("/health").status == 200  # who only looks whether we live
    assert door.ask("/v1/models", uid=1000).status == 200  # the kernel says who it is
    file.write_text(f"other {hashlib.sha256(b'new').hexdigest()}\n")
    os.utime(file, ns=(1, 1))
    assert door.ask("/v1/models", headers={"authorization": "Bearer secret"}).status == 401
    assert door.ask("/v1/models", headers={"authorization": "Bearer new"}).status == 200
    file.write_text("broken line\n")
    assert door.ask("/v1/models", headers={"authorization": "Bearer new"}).status == 200


def test_a_peer_of_the_unix_socket_asks_in_its_own_name_and_tcp_in_nobodys(door: Door) -> None:
    other = os.geteuid() + 1000
    door.ask(CHAT, ASK, uid=other)
    door.ask(CHAT, ASK)
    door.ask(CHAT, ASK, uid=os.geteuid())
    door.ask("/v1/embeddings", {"input": "a"}, uid=other)
    behalf = [options.get("on_behalf_of_uid") for _, options in door.agent.asked]
    assert behalf == [("u", other), None, None]
    assert door.agent.embedded[0][1]["on_behalf_of_uid"] == ("u", other)


def test_no_body_and_no_header_says_who_asks(door: Door) -> None:
    body = {**ASK, "user": "root", "on_behalf_of_uid": 0}
    door.ask(CHAT, body, headers={"x-forwarded-for": "unix", "forwarded": "for=unix"})
    ((request, options),) = door.agent.asked
    assert "on_behalf_of_uid" not in request.keys() | options.keys()


def test_a_body_beyond_the_bound_is_refused_by_its_length_or_by_counting() -> None:
    door = Door(max_body_bytes=2000)
    long = json.dumps({"messages": [{"role": "user", "content": "x" * 3000}]}).encode()
    for headers in ({"content-length": str(len(long))}, {}):
        reply = door.ask(CHAT, raw=long, headers=headers)
        assert (reply.status, reply.error()["code"]) == (413, "request_too_large")
        assert reply.headers["connection"] == "close"


@pytest.mark.parametrize(
    ("raw", "packed", "reason"),
    [
        (b"[" * 100_000, False, "not JSON: nested too deeply"),
        (b'{"seed": -%s}' % (b"9" * 5000), False, "not JSON: a number has 5000 digits"),
        (b"\x91" * 100_000 + b"\x01", True, "not msgpack: nested too deeply"),
        (b"\xc1", True, "not msgpack: its bytes mean nothing"),
    ],
)
def test_what_is_wrong_with_a_body_is_said_in_words_for_callers(
    door: Door, raw: bytes, packed: bool, reason: str
) -> None:
    headers = {"content-type": "application/msgpack"} if packed else {}
    reply = door.ask(CHAT, raw=raw, headers=headers)
    assert (reply.status, reply.json()["detail"]) == (
        400, f"cannot read request: the body is {reason}"
    )  # fmt: skip


@pytest.mark.parametrize("raw", [b"{", b"[" * 100_000, b'{"messages": NaN}', b"\xff", b"1"])
def test_what_is_no_request_is_a_problem(door: Door, raw: bytes) -> None:
    reply = door.ask(CHAT, raw=raw)
    assert (reply.status, reply.headers["content-type"]) == (400, "application/problem+json")
    assert reply.error()["code"] == "invalid_request"


def test_msgpack_in_and_out(door: Door) -> None:
    headers = {"content-type": "application/msgpack", "accept": "application/msgpack"}
    reply = door.ask(CHAT, raw=msgpack.packb(ASK), headers=headers)
    assert reply.headers["content-type"] == "application/msgpack"
    assert msgpack.unpackb(reply.body)["choices"][0]["message"]["content"] == "Hello you"
    problem = msgpack.unpackb(door.ask(CHAT, raw=b"\xc1", headers=headers).body)
    assert problem["error"]["code"] == "invalid_request"
    bytes_inside = msgpack.packb({"messages": b"raw"})
    assert door.ask(CHAT, raw=bytes_inside, headers=headers).status == 400
    stream = door.ask(CHAT, raw=msgpack.packb(STREAM), headers=headers)
    unpacker = msgpack.Unpacker()
    unpacker.feed(stream.body)
    assert [c["choices"][0]["finish_reason"] for c in unpacker] == [None, None, "stop"]


def test_a_stream_ends_with_done_and_its_job_is_closed(door: Door) -> None:
    reply = door.ask(CHAT, STREAM)
    assert reply.headers["content-type"].startswith("text/event-stream")
    found = events(reply.body)
    assert found[-1] == "[DONE]"
    assert found[0]["choices"][0]["delta"]["role"] == "assistant"
    assert door.agent.streams[0].closed


def test_an_error_before_the_first_word_has_a_status_of_its_own(door: Door) -> None:
    door.agent.batches = [StokerClientError("context-length-exceeded", "900 of 512")]
    reply = door.ask(CHAT, STREAM)
    assert (reply.status, reply.error()["code"]) == (400, "context_length_exceeded")
    door.agent.refusal = StokerClientError("busy", "full", details={"retry_after_ms": 1500})
    reply = door.ask(CHAT, {**STREAM, "n": 2})
    assert (reply.status, reply.headers["retry-after"]) == (503, "2")


def test_an_error_in_mid_stream_is_an_event_and_no_done_follows(door: Door) -> None:
    door.agent.batches = [[{"t": "a"}], StokerClientError("engine-failed", "died")]
    found = events(door.ask(CHAT, STREAM).body)
    assert found[-1] == {
        "error": {"message": "died", "type": "server_error", "param": None, "code": "engine_failed"}
    }


def test_progress_is_a_comment(door: Door) -> None:
    door.agent.batches = [[{"p": {"done": 1, "total": 9}}], [{"t": "a"}, DONE]]
    assert events(door.ask(CHAT, STREAM).body)[1] == ": keepalive"


def test_n_choices_are_n_jobs_in_one_stream(door: Door) -> None:
    found = events(door.ask(CHAT, {**STREAM, "n": 3}).body)
    assert len(door.agent.asked) == 3
    ends = [c["choices"][0] for c in found[:-1] if c["choices"][0]["finish_reason"]]
    assert sorted(end["index"] for end in ends) == [0, 1, 2]
    assert all(stream.closed for stream in door.agent.streams)


@pytest.mark.parametrize("body", [ASK, STREAM, {**STREAM, "n": 2}])
def test_a_client_that_leaves_cancels_its_jobs(door: Door, body: dict[str, Any]) -> None:
    door.agent.batches = [[{"t": "a"}]]  # and then nothing for ever
    door.ask(CHAT, body, leave_after=1 if "stream" in body else 0)
    assert door.agent.streams
    assert all(stream.closed for stream in door.agent.streams)
    assert door.app.active == 0


def test_a_slow_reader_holds_up_its_own_job_only(door: Door) -> None:
    door.agent.batches = [*([{"t": str(n)}] for n in range(50)), [DONE]]

    async def both() -> None:
        stuck = asyncio.Event()
        slow = asyncio.create_task(door.asking(CHAT, STREAM, stuck=stuck))
        quick = await door.asking(CHAT, STREAM)
        assert events(quick.body)[-1] == "[DONE]"
        unread = max(len(stream._batches) for stream in door.agent.streams)
        assert unread >= 49, "for a reader that takes nothing, nothing may be read"
        stuck.set()
        assert events((await slow).body)[-1] == "[DONE]"

    asyncio.run(both())


def test_one_request_too_many_is_busy() -> None:
    door = Door(max_connections=1)

    async def two() -> int:
        stuck = asyncio.Event()
        first = asyncio.create_task(door.asking(CHAT, STREAM, stuck=stuck))
        await asyncio.sleep(0)
        second = await door.asking(CHAT, STREAM)
        stuck.set()
        await first
        assert second.headers["retry-after"] == "1"
        return second.status

    assert asyncio.run(two()) == 503


def test_one_user_leaves_requests_to_the_others() -> None:
    door = Door(max_connections=4)

    async def crowd() -> list[int]:
        stuck = asyncio.Event()
        tasks = [asyncio.create_task(door.asking(CHAT, STREAM, stuck=stuck)) for _ in range(3)]
        await asyncio.sleep(0)
        statuses = [(await door.asking(CHAT, STREAM)).status]
        statuses.append((await door.asking(CHAT, STREAM, uid=1234)).status)
        stuck.set()
        await asyncio.gather(*tasks)
        return statuses

    assert asyncio.run(crowd()) == [503, 200]


def test_embeddings_in_both_encodings(door: Door) -> None:
    body = {"input": ["a", "bc"], "encoding_format": "base64"}
    data = door.ask("/v1/embeddings", body).json()["data"]
    assert data[0]["embedding"] == "AAAAPwAAgL4AAIA/"  # 0.5, -0.25, 1.0 as little-endian floats
    data = door.ask("/v1/embeddings", {"input": "a"}).json()["data"]
    assert data[0]["embedding"] == [0.5, -0.25, 1.0]


def test_many_texts_are_embedded_in_portions_that_the_agent_takes(door: Door) -> None:
    texts = ["x" * 3000] * 3 + ["y"] * 100
    reply = door.ask("/v1/embeddings", {"input": texts, "model": "small"}).json()
    portions = [asked for asked, _ in door.agent.embedded]
    assert [text for portion in portions for text in portion] == texts
    assert max(map(len, portions)) <= 64
    assert max(sum(map(len, portion)) for portion in portions) <= 8000
    assert [item["index"] for item in reply["data"]] == list(range(103))
    assert (reply["model"], reply["usage"]["prompt_tokens"]) == ("tiny", 103)
    assert door.ask("/v1/embeddings", {"input": "a", "model": "broken"}).status == 503
    assert door.ask("/v1/embeddings", {"input": "a", "model": "nope"}).status == 404


@pytest.mark.parametrize("body", [ASK, STREAM], ids=["whole", "stream"])
def test_the_model_that_woke_up_for_a_request_has_its_name_in_the_answer(
    door: Door, body: dict[str, Any]
) -> None:
    door.agent.model = ""  # it sleeps
    answered = door.agent.stream

    async def stream(request: Pairs, options: Pairs) -> FakeStream:
        found = await answered(request, options)
        batch = found.batch

        async def awake(patience_s: float | None = None) -> list[Record]:
            door.agent.model = "tiny"
            return await batch(patience_s)

        found.batch = awake  # type: ignore[method-assign]
        return found

    door.agent.batches = [[{"t": "Hi"}, DONE]]
    door.agent.stream = stream  # type: ignore[method-assign]
    reply = door.ask(CHAT, body)
    named = events(reply.body)[0] if "stream" in body else reply.json()
    assert named["model"] == "tiny"


def test_a_model_that_is_still_loading_is_called_by_the_name_it_will_have(door: Door) -> None:
    door.agent.model = ""
    assert door.ask(CHAT, ASK).json()["model"] == "wanted"


def test_unknown_models_paths_and_methods(door: Door) -> None:
    assert door.ask("/v1/models/nope").error()["code"] == "model_not_found"
    assert door.ask("/v1/models/small").json()["id"] == "tiny"  # an alias
    assert door.ask("/v1/models/broken").status == 404  # set aside: it cannot be asked
    assert door.ask("/v2").error()["code"] == "not_found"
    assert door.ask(CHAT, method="GET").status == 405
    door.agent.refusal = StokerClientError("model-unavailable", "no")
    assert door.ask(CHAT, {**ASK, "model": "nope"}).status == 404
    assert door.ask(CHAT, {**ASK, "model": "tiny"}).status == 503


def test_health_follows_the_model(door: Door) -> None:
    door.agent.state = "asleep"
    assert door.ask("/health").status == 200
    door.agent.state = "ready"
    assert door.ask("/health").json()["status"] == "ok"
    door.agent.state = "loading"
    reply = door.ask("/health")
    assert (reply.status, reply.error()["code"]) == (503, "model_loading")


def test_a_fault_of_ours_is_a_problem_and_not_a_trace(door: Door) -> None:
    door.agent.batches = [[{"t": "a"}], []]
    door.agent.models = None  # type: ignore[assignment]
    reply = door.ask("/v1/models")
    assert (reply.status, reply.error()["code"]) == (500, "internal_error")
    assert reply.headers["x-should-retry"] == "false"
    assert "NoneType" not in reply.body.decode()
