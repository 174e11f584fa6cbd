"""org.stoker.Job1: one object per accepted job, for its owner's user and administrators.

Signals go to the owner's unique name alone. The object lives as long as the service
remembers the job. For another user it is not found, as if it were not there.
"""

from __future__ import annotations

import json
import os
from typing import Any, Final

from gi.repository import GLib

from stoker.api import contract
from stoker.api.bus import Bus
from stoker.api.exports import Answer, Door, Exports, Later, bus_text, vardict
from stoker.api.handover import ResultFiles
from stoker.errors import Busy, NotFound
from stoker.events.inference import Owner
from stoker.ports.doors import InferenceDoor, JobView
from stoker.ports.system import Authority

_RESULT: Final = {
    "state": "s",
    "text": "s",
    "reasoning": "s",
    "finish_reason": "s",
    "truncated": "b",
    "prompt_tokens": "u",
    "completion_tokens": "u",
    "error_code": "s",
    "error_message": "s",
    "tool_calls": "s",
    "logprobs": "s",
}


class Jobs:
    """``accept`` runs in the thread that accepted the job, the rest in the main loop."""

    def __init__(
        self, bus: Bus, exports: Exports, service: InferenceDoor, authority: Authority
    ) -> None:
        self._bus = bus
        self._exports = exports
        self._service = service
        self._authority = authority
        self._held: dict[str, tuple[str, int]] = {}  # the owner's unique name, the registration
        self._files = ResultFiles()

    def accept(self, view: JobView) -> str:
        """Publish the job's object; returns its path, to be told after it answers."""
        path = contract.job_path(view.id)
        room = JobRoom(view, self._service, self._authority, self._files)
        number = self._exports.add_rare(path, contract.JOB, room)
        self._held[view.id] = view.owner.unique_name, number
        return path

    def started(self, view: JobView) -> None:
        self._emit(view, "Started", None)

    def finished(self, view: JobView) -> None:
        body = GLib.Variant("(ss)", (bus_text(view.finish_reason), view.error_code))
        self._emit(view, "Finished", body)

    def forgotten(self, job: str) -> None:
        held = self._held.pop(job, None)
        if held is not None:
            self._exports.remove(held[1])
            self._files.forget(job)

    def _emit(self, view: JobView, signal: str, body: Any) -> None:
        held = self._held.get(view.id)  # jobs of Ask have no object, so no signals
        if held is not None:
            path = contract.job_path(view.id)
            self._bus.emit(path, contract.JOB, signal, body, to=held[0])


class JobRoom:
    __slots__ = ("_authority", "_files", "_id", "_service", "_uid")

    def __init__(
        self, view: JobView, service: InferenceDoor, authority: Authority, files: ResultFiles
    ) -> None:
        self._id = view.id
        self._files = files
        self._uid = view.owner.uid
        self._service = service
        self._authority = authority

    def door(self) -> Door:
        methods = {
            "Cancel": self.cancel,
            "GetResult": self.get_result,
            "GetResultFd": self.get_result_fd,
        }
        return Door(contract.JOB, methods, self.properties)

    def cancel(self, owner: Owner, _args: tuple[Any, ...]) -> Later:
        self._admit(owner)
        reason = "cancelled by its owner" if owner.uid == self._uid else "cancelled by an admin"
        return Later(self._service.cancel(self._id, reason), lambda _found: Answer())

    def get_result(self, owner: Owner, _args: tuple[Any, ...]) -> Later:
        self._admit(owner)
        return Later(self._service.job(self._id), lambda view: Answer((result(view),)))

    def get_result_fd(self, owner: Owner, _args: tuple[Any, ...]) -> Later:
        self._admit(owner)
        opened: list[int] = []

        def convert(view: JobView) -> Answer:
            if view.state not in ("done", "failed"):
                raise Busy(
                    f"cannot pass the result: job {self._id} is {view.state}",
                    hint="read its stream to the end first, or call GetResult",
                )
            opened.append(self._files.open(self._id, self._uid, result_json(view)))
            return Answer((0,), tuple(opened))

        return Later(self._service.job(self._id), convert, lambda: _close(opened))

    def properties(self, owner: Owner) -> Later:
        self._admit(owner)
        return Later(
            self._service.job(self._id),
            lambda view: {
                "State": view.state,
                "Class": view.job_class,
                "QueuePosition": view.queue_position,
                "EtaSeconds": view.eta_s,
            },
        )

    def _admit(self, owner: Owner) -> None:
        if owner.uid != self._uid and not self._authority.may_manage(owner.uid):
            raise NotFound(f"cannot find job {self._id}: no such job of yours")


def _close(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


def result(view: JobView) -> dict[str, Any]:
    return vardict(**{key: (kind, getattr(view, key)) for key, kind in _RESULT.items()})


def result_json(view: JobView) -> bytes:
    """The same as one JSON object; text as a D-Bus string would carry it."""
    facts = {key: getattr(view, key) for key in _RESULT}
    clean = {key: bus_text(it) if isinstance(it, str) else it for key, it in facts.items()}
    return json.dumps(clean, ensure_ascii=False).encode()
