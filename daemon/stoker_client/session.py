"""A conversation that the agent keeps: ask in it, read it, copy it, delete it.

It holds only the id: the text is the agent's, and the same id works tomorrow and from
another program of the same user.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar, Unpack

from stoker_client import requests
from stoker_client.bus import Bus
from stoker_client.errors import StokerClientError
from stoker_client.requests import Options, Settings
from stoker_client.stream import Stream

INFERENCE: Final = "org.stoker.Inference1"
SESSION: Final = "org.stoker.Session1"
T = TypeVar("T")
_PAGE: Final = 500
_GONE: Final = ("UnknownObject", "UnknownMethod", "UnknownInterface")


class Session:
    """Made by ``Stoker.session``. Every method is one D-Bus call."""

    def __init__(self, bus: Bus, path: str) -> None:
        self._bus = bus
        self._path = path

    @property
    def id(self) -> str:
        return self._path.rsplit("/", 1)[-1]

    def ask(self, question: str, **options: Unpack[Options]) -> str:
        """The whole answer, without the model's reasoning."""
        with self.stream(question, **options) as stream:
            return "".join(record.text for record in stream if record.kind == "text")

    def stream(self, question: str, **options: Unpack[Options]) -> Stream:
        """The answer as it is made; earlier turns go along by themselves.

        The first record is of kind ``session``; its ``omitted_turns`` says how many did not.
        """
        request, delivery = requests.build(question, options)

        def begin() -> tuple[str, int]:
            return self._bus.open_stream(self._path, SESSION, "Append", request, delivery)

        job, descriptor = self._living(begin)
        return Stream(self._bus, job, descriptor)

    def facts(self) -> dict[str, Any]:
        """The properties of Session1: Id, Title, Turns, Created, LastUsed, Window, …"""
        return self._living(lambda: self._bus.properties(SESSION, path=self._path))

    def turns(self) -> Iterator[dict[str, Any]]:
        """All turns, oldest first; keys are in org.stoker.Session1.xml."""
        offset = 0
        while True:
            page = self._call("GetTurns", "(uu)", (offset, _PAGE), "(aa{sv})")
            yield from (dict(turn) for turn in page)
            if len(page) < _PAGE:
                return
            offset += _PAGE

    def configure(self, **settings: Unpack[Settings]) -> None:
        """Change settings; what is not given stays."""
        pairs = requests.build_settings(settings)
        self._living(lambda: self._bus.call_dict(self._path, SESSION, "Configure", pairs))

    def fork(self) -> Session:
        """A copy that goes its own way."""
        return Session(self._bus, str(self._call("Fork", "()", (), "(o)")))

    def export(self) -> str:
        """The whole conversation as JSON."""
        return str(self._call("Export", "()", (), "(s)"))

    def close(self) -> None:
        """Free what the agent holds for it; the text stays."""
        self._call("Close", "()", (), "()")

    def delete(self) -> None:
        """Forget it for good."""
        self._call("Delete", "()", (), "()", timeout_s=60.0)

    def _call(
        self, method: str, signature: str, args: tuple[object, ...], out: str,
        timeout_s: float = 25.0,
    ) -> Any:  # fmt: skip
        call = (self._path, SESSION, method, signature, args, out)
        return self._living(lambda: self._bus.call_at(*call, timeout_s=timeout_s))

    def _living(self, call: Callable[[], T]) -> T:
        """Once more behind OpenSession when the object is gone (a restart, a long rest)."""
        try:
            return call()
        except StokerClientError as error:
            if error.dbus_name not in _GONE:
                raise
        self._path = open_path(self._bus, self.id)
        return call()


def open_path(bus: Bus, key: str) -> str:
    """The path of a kept session's object, which is there from now on; not-found."""
    return str(bus.call(INFERENCE, "OpenSession", requests.text(key, "the id")))
