"""Requests and results as memory files, on a real bus: good ones, and every hostile kind."""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gi.repository import GLib
from tests.fakes.bus_client import BusClient, records
from tests.fakes.bus_load import open_files
from tests.integration.conftest import Spawn
from tests.integration.stokerd_rig import until

from stoker.api import contract
from stoker.api.handover import OPEN_PER_USER, SEALS
from stoker.errors import Busy, InvalidRequest, RequestTooLarge, StokerError
from stoker.tour.private_bus import PrivateBus
from stoker_client import Stoker
from stoker_client.bus import Bus
from stoker_client.errors import from_dbus

pytestmark = pytest.mark.bus

LIMIT = 4 << 20
GOOD = json.dumps({"prompt": "red green"}).encode()


def memory_file(content: bytes, seals: int = SEALS) -> int:
    fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, content)
    if seals:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def said(client: BusClient, fd: int, **options: Any) -> str:
    try:
        _job, stream = client.create_job_fd(fd, **options)
    finally:
        os.close(fd)
    return "".join(record.get("t", "") for record in records(stream))


def test_a_request_in_a_sealed_file_is_answered(client: BusClient) -> None:
    assert said(client, memory_file(GOOD)) == "red green "


def test_the_keys_and_the_options_are_those_of_create_job(client: BusClient) -> None:
    request = {
        "messages": [{"role": "user", "content": "describe"}], "system": "brief",
        "max_tokens": 9, "seed": 4, "stop": ["a"], "temperature": 0.5,
    }  # fmt: skip
    text = GLib.Variant("s", "text")
    fd = memory_file(json.dumps(request).encode())
    _job, stream = client.create_job_fd(fd, format=text, deadline_ms=GLib.Variant("t", 9000))
    os.close(fd)
    with os.fdopen(stream) as answer:
        facts = answer.read()
    assert '"max_tokens": 9, "stop": ["a"]' in facts
    assert '"content": "brief"' in facts
    assert '"deadline_s": 9.0' in facts
    assert '"temperature": 0.5' in facts


def test_a_file_may_be_larger_than_a_message(client: BusClient) -> None:
    word = "x" * (LIMIT - 100)
    _job, stream = client.create_job_fd(memory_file(json.dumps({"prompt": word}).encode()))
    found = "".join(record.get("t", "") for record in records(stream))
    assert found.strip() == word


def test_a_file_over_the_limit_is_refused_with_the_numbers(client: BusClient) -> None:
    with pytest.raises(RequestTooLarge) as caught:
        said(client, memory_file(b" " * (LIMIT + 1)))
    assert caught.value.details == {"size_bytes": LIMIT + 1, "limit_bytes": LIMIT}


@pytest.mark.parametrize(
    "seals",
    [
        0,
        SEALS & ~fcntl.F_SEAL_WRITE,
        SEALS & ~fcntl.F_SEAL_SHRINK,
        SEALS & ~fcntl.F_SEAL_GROW,
        SEALS & ~fcntl.F_SEAL_SEAL,
    ],
)
def test_a_file_that_could_still_change_is_refused(client: BusClient, seals: int) -> None:
    with pytest.raises(InvalidRequest, match="not sealed"):
        said(client, memory_file(GOOD, seals))


def test_a_huge_hole_is_refused_unread(client: BusClient) -> None:
    fd = memory_file(b"", 0)
    os.truncate(fd, 1 << 40)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    with pytest.raises(RequestTooLarge):
        said(client, fd)


def test_a_hole_within_the_limit_is_no_json(client: BusClient) -> None:
    fd = memory_file(b"", 0)
    os.truncate(fd, LIMIT)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    with pytest.raises(InvalidRequest, match="no JSON"):
        said(client, fd)


def test_a_file_that_grows_and_changes_meanwhile_is_never_read(client: BusClient) -> None:
    fd, stop = memory_file(GOOD * 100, 0), threading.Event()
    shared = mmap.mmap(fd, 64)

    def change() -> None:
        while not stop.is_set():
            os.write(fd, b"more")
            shared[0:4] = b"{{{{"

    writer = threading.Thread(target=change)
    writer.start()
    try:
        for _ in range(20):
            with pytest.raises(InvalidRequest, match="not sealed"):
                said(client, os.dup(fd))
    finally:
        stop.set()
        writer.join()
        shared.close()
        os.close(fd)


@pytest.fixture
def strange(tmp_path: Path) -> Iterator[Callable[[str], int]]:
    (tmp_path / "file").write_bytes(GOOD)
    os.mkfifo(tmp_path / "fifo")
    ends: list[int] = []

    def make(kind: str) -> int:
        if kind == "file":
            return os.open(tmp_path / "file", os.O_RDONLY)
        if kind == "fifo":  # both ends: it opens at once, and a read would wait for ever
            return os.open(tmp_path / "fifo", os.O_RDWR)
        if kind == "directory":
            return os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
        if kind == "path":
            return os.open(tmp_path / "file", os.O_PATH)
        if kind == "pipe":
            reader, writer = os.pipe()
            ends.append(writer)
            return reader
        if kind == "event":
            return os.eventfd(0)
        return os.open(kind, os.O_RDONLY)

    yield make
    for end in ends:
        os.close(end)


STRANGE = ["file", "fifo", "directory", "path", "pipe", "event"]
STRANGE += ["/dev/zero", "/dev/null", "/proc/self/maps"]


@pytest.mark.parametrize("kind", STRANGE)
def test_what_is_no_memory_file_is_refused_at_once(
    client: BusClient, strange: Callable[[str], int], kind: str
) -> None:
    with pytest.raises(InvalidRequest, match="not a memory file"):
        said(client, strange(kind))


def test_a_file_that_may_not_be_read_is_refused(client: BusClient) -> None:
    fd = memory_file(GOOD)
    only_write = os.open(f"/proc/self/fd/{fd}", os.O_PATH)
    os.close(fd)
    with pytest.raises(InvalidRequest):
        said(client, only_write)


@pytest.mark.parametrize("index", [1, -1, 1 << 30])
def test_a_descriptor_that_did_not_come_along_is_refused(client: BusClient, index: int) -> None:
    fd = memory_file(GOOD)
    with pytest.raises(StokerError):
        client.create_job_fd(fd, index)
    os.close(fd)
    assert client.ask("still here") == "still here "


def test_a_call_without_any_descriptor_is_refused(client: BusClient) -> None:
    args = GLib.Variant("(ha{sv})", (0, {}))
    with pytest.raises(InvalidRequest, match="no descriptor"):
        client.call(contract.INFERENCE, "CreateJobFd", args)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no JSON"),
        (b"\xff\xfe", "byte 0 is not UTF-8"),
        (b'["prompt"]', "no JSON object"),
        (b'{"prompt": "x"', "no JSON"),
        (b'{"prompt": "x"} more', "no JSON"),
        (b'{"prompt": "x", "temperature": NaN}', "NaN is no number"),
        (b'{"prompt": "x", "prompt": "y"}', "a key comes twice"),
        (b'{"seed": ' + b"9" * 10_000 + b"}", "no JSON"),
        (b'{"prompt": "\\ud800"}', "lone surrogate"),
        (b'{"prompt": "\\u0000"}', "NUL"),
        (b'{"prompt": null}', "request.prompt"),
        (b'{"promt": "x"}', "request"),
        (b"[" * 15_000, "no JSON"),
    ],
)
def test_what_is_no_request_is_refused_with_the_reason(
    client: BusClient, content: bytes, reason: str
) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        said(client, memory_file(content))


@pytest.mark.parametrize("many", [b"[0" + b",0" * 500_000 + b"]", b"[" * 500_000, b'"",' * 500_000])
def test_too_many_values_are_refused_before_they_are_made(client: BusClient, many: bytes) -> None:
    with pytest.raises(RequestTooLarge, match="values"):
        said(client, memory_file(b'{"stop": ' + many + b"}"))


def test_a_result_comes_as_a_sealed_file(client: BusClient) -> None:
    job, stream = client.create_job("one two")
    list(records(stream))
    files = []
    for _ in range(3):  # each call a file position of its own
        values, fds = client.call_with_fds(contract.JOB, "GetResultFd", None, job)
        files.append(fds[values[0]])
    found = []
    for fd in files:
        assert fcntl.fcntl(fd, fcntl.F_GET_SEALS) & SEALS == SEALS
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.write(fd, b"x")
        with os.fdopen(fd) as file:
            found.append(json.load(file))
    assert found == [client.call(contract.JOB, "GetResult", path=job)] * 3


def test_the_result_of_a_running_job_is_busy(client: BusClient) -> None:
    job, stream = client.create_job("hold")
    with pytest.raises(Busy, match="cannot pass the result: job"):
        client.call(contract.JOB, "GetResultFd", path=job)
    client.call(contract.JOB, "Cancel", path=job)
    list(records(stream))


@pytest.fixture
def lone(private_bus: PrivateBus, spawn: Spawn) -> Iterator[tuple[BusClient, int]]:
    """(client, pid of the server), on a bus of their own; results are kept for 0.3 s."""
    server = spawn("tests.fakes.dbus_server", private_bus.address, "--keep", "0.3", ready="ready")
    with BusClient(private_bus.address) as client:
        yield client, server.pid


def test_files_in_both_directions_leave_no_descriptor_behind(lone: tuple[BusClient, int]) -> None:
    client, pid = lone

    def rounds(count: int) -> None:
        for _ in range(count):
            said(client, memory_file(GOOD))
            with pytest.raises(InvalidRequest):
                said(client, memory_file(GOOD, 0))
            job, stream = client.create_job("done")
            list(records(stream))
            _values, fds = client.call_with_fds(contract.JOB, "GetResultFd", None, job)
            os.close(fds[0])

    rounds(5)
    until(lambda: not _memory_files(pid), "results forgotten", 5.0)
    before = open_files(pid)
    rounds(100)
    until(lambda: open_files(pid) == before, f"{before} open files again", 5.0)


def _memory_files(pid: int) -> int:
    folder = Path(f"/proc/{pid}/fd")
    return sum("memfd:" in str(path.readlink()) for path in folder.iterdir() if path.is_symlink())


def test_a_result_becomes_a_file_once_however_often_it_is_asked_for(client: BusClient) -> None:
    """Files that callers hoard are paid for with our memory."""
    jobs, inodes = [], set()
    for _ in range(OPEN_PER_USER + 1):
        job, stream = client.create_job("x")
        list(records(stream))
        jobs.append(job)
        for _again in range(3):
            _values, fds = client.call_with_fds(contract.JOB, "GetResultFd", None, job)
            inodes.add(os.fstat(fds[0]).st_ino)
            os.close(fds[0])
    assert len(inodes) == len(jobs)
    with pytest.raises(Busy, match="was passed before"):
        client.call_with_fds(contract.JOB, "GetResultFd", None, jobs[0])


def test_the_client_sends_a_large_question_as_a_file(
    session_bus: PrivateBus, fake_server: object
) -> None:
    words = "word " * 400_000  # two megabytes: no message may have so many
    with Stoker(session_bus.address) as stoker:
        with stoker.stream([{"role": "user", "content": "wait 1"}], system=words) as stream:
            assert next(stream).text == "late"
            assert next(stream).kind == "done"
        assert stoker.result(stream.job)["text"] == "late"


def test_the_client_goes_through_the_bus_where_the_agent_knows_no_files(
    session_bus: PrivateBus, fake_server: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    real = Bus._open

    def old(self: Bus, path: str, interface: str, method: str, *rest: Any) -> tuple[str, int]:
        asked.append(method)
        if method == "CreateJobFd":
            raise from_dbus("org.freedesktop.DBus.Error.UnknownMethod", "no such method")
        return real(self, path, interface, method, *rest)

    monkeypatch.setattr(Bus, "_open", old)
    with Stoker(session_bus.address) as stoker:
        assert stoker.ask("wait 1", system="s" * 70_000) == "late"
        assert stoker.ask("wait 2") == "late"
    assert asked == ["CreateJobFd", "CreateJob", "CreateJob"]
