"""A plain GDBus client for tests: calls by name, typed errors back, streams read to the end."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from gi.repository import Gio, GLib

from stoker.api import contract, errormap
from stoker.errors import StokerError


class BusClient:
    """One connection of its own; ``path`` and ``destination`` default to the agent's."""

    def __init__(self, address: str) -> None:
        flags = Gio.DBusConnectionFlags
        self.con = Gio.DBusConnection.new_for_address_sync(
            address, flags.AUTHENTICATION_CLIENT | flags.MESSAGE_BUS_CONNECTION, None, None
        )
        self.con.set_exit_on_close(False)
        self.name: str = self.con.get_unique_name()

    def __enter__(self) -> BusClient:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        if not self.con.is_closed():
            self.con.close_sync(None)

    def call(
        self,
        interface: str,
        method: str,
        args: Any = None,
        path: str = contract.AGENT_PATH,
        timeout_ms: int = 10_000,
    ) -> Any:
        """``args`` is a tuple variant. One out argument is unwrapped. Raises typed errors."""
        values, _fds = self.call_with_fds(interface, method, args, path, timeout_ms)
        return values[0] if len(values) == 1 else values or None

    def call_with_fds(
        self,
        interface: str,
        method: str,
        args: Any = None,
        path: str = contract.AGENT_PATH,
        timeout_ms: int = 10_000,
        *sent: int,
    ) -> tuple[tuple[Any, ...], list[int]]:
        """``sent`` are duplicated, not taken."""
        held = Gio.UnixFDList.new()
        for fd in sent:
            held.append(fd)
        try:
            reply, fds = self.con.call_with_unix_fd_list_sync(
                contract.BUS_NAME, path, interface, method, args, None, 0, timeout_ms, held, None
            )
        except GLib.Error as error:
            raise typed(error) from error
        return reply.unpack(), list(fds.steal_fds()) if fds else []

    def get(self, interface: str, name: str, path: str = contract.AGENT_PATH) -> Any:
        args = GLib.Variant("(ss)", (interface, name))
        return self.call(contract.PROPERTIES, "Get", args, path)

    def get_all(self, interface: str, path: str = contract.AGENT_PATH) -> dict[str, Any]:
        args = GLib.Variant("(s)", (interface,))
        found: dict[str, Any] = self.call(contract.PROPERTIES, "GetAll", args, path)
        return found

    def create_job(self, prompt: str = "", **keys: Any) -> tuple[str, int]:
        """(job path, read end); ``keys`` are variants; ``option_…`` go to the options."""
        options = {k[7:]: v for k, v in keys.items() if k.startswith("option_")}
        request = {k: v for k, v in keys.items() if not k.startswith("option_")}
        if prompt:
            request["prompt"] = GLib.Variant("s", prompt)
        args = GLib.Variant("(a{sv}a{sv})", (request, options))
        values, fds = self.call_with_fds(contract.INFERENCE, "CreateJob", args)
        return values[0], fds[values[1]]

    def create_job_fd(self, fd: int, index: int = 0, **options: Any) -> tuple[str, int]:
        """(job path, read end) of CreateJobFd; ``options`` are variants."""
        args = GLib.Variant("(ha{sv})", (index, options))
        method = (contract.INFERENCE, "CreateJobFd", args, contract.AGENT_PATH, 10_000)
        values, fds = self.call_with_fds(*method, fd)
        return values[0], fds[values[1]]

    def ask(self, question: str, timeout_ms: int = 10_000) -> str:
        args = GLib.Variant("(s)", (question,))
        answer: str = self.call(contract.INFERENCE, "Ask", args, timeout_ms=timeout_ms)
        return answer


def typed(error: GLib.Error) -> StokerError:
    """The typed error of a failed GDBus call."""
    name = Gio.DBusError.get_remote_error(error) or "org.freedesktop.DBus.Error.Failed"
    text = error.message.removeprefix(f"GDBus.Error:{name}: ")
    return errormap.from_dbus(name, text)


def records(fd: int) -> Iterator[dict[str, Any]]:
    """NDJSON records of a stream until its end; closes it."""
    with os.fdopen(fd, "rb") as stream:
        for line in stream:
            yield json.loads(line)
