"""What the packaged runner tells systemd."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from stoker.events.runner import Answer, Beat, LoadProgress
from stoker.runner.notice import WatchedChannel, notify


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    sock.bind(str(tmp_path / "notify"))
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    return sock


def said(manager: socket.socket) -> list[bytes]:
    out: list[bytes] = []
    try:
        while True:
            out.append(manager.recv(100))
    except BlockingIOError:
        return out


def channel() -> tuple[WatchedChannel, socket.socket]:
    ours, theirs = socket.socketpair()
    return WatchedChannel(ours, lambda letter: None), theirs


def test_each_beat_and_each_step_of_a_load_feeds_the_watchdog(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "1000000")
    link, _other = channel()
    link.send(Beat(1, 2, 0, 0))
    link.send(LoadProgress("q1", 0.5))
    assert said(manager) == [b"WATCHDOG=1"] * 2
    link.send(Answer("q1", {}))
    assert said(manager) == []


def test_without_a_watchdog_nothing_is_said(manager: socket.socket) -> None:
    link, _other = channel()
    link.send(Beat(1, 2, 0, 0))
    assert said(manager) == []


def test_a_manager_that_is_gone_is_no_fault_of_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    notify("READY=1")
    monkeypatch.delenv("NOTIFY_SOCKET")
    notify("READY=1")


def test_an_abstract_socket_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        name = f"stoker-test-{id(sock)}"
        sock.bind("\0" + name)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + name)
        notify("READY=1")
        assert sock.recv(100) == b"READY=1"
