"""org.stoker.Update1 and org.stoker.UpdateJob1: updates for administrators, facts for everyone.

Folders come as descriptors and belong to the service once the caller was let in. An
inhibitor is a pipe: it ends when its caller's end is closed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from gi.repository import GLib

from stoker.api import contract
from stoker.api.exports import Answer, Door, Exports, Later, bus_text, vardict
from stoker.api.managing import as_manager
from stoker.errors import Busy, InvalidRequest, NotFound, StokerError
from stoker.events.inference import Owner
from stoker.events.updates import Deployment, InstallOptions, UpdateJob, UpdateSnapshot
from stoker.getters import Table
from stoker.ports.system import Authority
from stoker.ports.updates import Record, UpdateDoor

MAX_RECORDS: Final = 500
MAX_WHO_BYTES: Final = 256
_RECORD: Final = {
    "time": "s", "what": "s", "deployment": "s", "version": "t", "generation": "t", "code": "s",
    "reason": "s",
}  # fmt: skip


class UpdateRoom:
    """Main loop only, but for ``publish``."""

    def __init__(self, exports: Exports, service: UpdateDoor, authority: Authority) -> None:
        self._exports, self._service, self._authority = exports, service, authority
        self._lock = threading.Lock()
        self._held: dict[str, int] = {}  # job → registration
        self._pipes: dict[int, int] = {}  # our end of an inhibitor → GLib's watch

    def door(self) -> Door:
        return Door(
            contract.UPDATE,
            {
                "CheckNow": self.check_now,
                "ListDeployments": self.list_deployments,
                "Inspect": self.inspect,
                "InstallBundle": self.install_bundle,
                "Install": self.install,
                "Rollback": self.rollback,
                "Confirm": self.confirm,
                "Inhibit": self.inhibit,
                "GetHistory": self.get_history,
            },
            lambda _owner: properties(self._service.snapshot(), self._service.current_job),
        )

    def close(self) -> None:
        for fd, watch in self._pipes.items():
            GLib.source_remove(watch)
            os.close(fd)
        self._pipes.clear()

    def check_now(self, owner: Owner, _args: tuple[Any, ...]) -> Later:
        found = as_manager(self._authority, owner, "check for updates", self._service.check)
        return Later(found, _listed)

    def list_deployments(self, _owner: Owner, _args: tuple[Any, ...]) -> Answer:
        return _listed(self._service.deployments())

    def inspect(self, owner: Owner, args: tuple[Any, ...]) -> Later:
        folder = os.dup(args[0])  # the call's own is closed when we return
        found = as_manager(
            self._authority, owner, "look into the bundle",
            lambda: self._service.inspect(folder), lambda: os.close(folder),
        )  # fmt: skip
        return Later(found, _listed)

    def install_bundle(self, owner: Owner, args: tuple[Any, ...]) -> Later:
        options = parse_options(args[1])
        folder = os.dup(args[0])
        job = as_manager(
            self._authority, owner, "install the bundle",
            lambda: self._service.install(folder, options), lambda: os.close(folder),
        )  # fmt: skip
        return Later(job, self._accept)

    def install(self, owner: Owner, args: tuple[Any, ...]) -> Later:
        options = parse_options({**args[1], "deployment": str(args[0])})
        job = as_manager(
            self._authority, owner, "install an update",
            lambda: self._service.install_listed(options),
        )  # fmt: skip
        return Later(job, self._accept)

    def rollback(self, owner: Owner, _args: tuple[Any, ...]) -> Later:
        job = as_manager(self._authority, owner, "roll back", self._service.rollback)
        return Later(job, self._accept)

    def confirm(self, owner: Owner, args: tuple[Any, ...]) -> Later:
        name = str(args[0])
        done = as_manager(
            self._authority, owner, "confirm the update", lambda: self._service.confirm(name)
        )
        return Later(done, lambda _done: Answer())

    def inhibit(self, owner: Owner, args: tuple[Any, ...]) -> Later:
        who, why = (str(word) for word in args)
        if not who or not why or len((who + why).encode()) > MAX_WHO_BYTES:
            raise InvalidRequest(f"cannot hold updates back: who and why have 1..{MAX_WHO_BYTES}"
                                 " bytes together")  # fmt: skip

        def hold() -> Future[int]:
            held: Future[int] = Future()
            held.set_result(self._hold(who, why))
            return held

        writer = as_manager(self._authority, owner, "hold updates back", hold)
        return Later(writer, lambda fd: Answer((0,), (fd,)), lambda: _close(writer))

    def get_history(self, _owner: Owner, args: tuple[Any, ...]) -> Later:
        found = self._service.history(args[0], min(args[1], MAX_RECORDS))
        return Later(found, lambda records: Answer(([_record(item) for item in records],)))

    def _hold(self, who: str, why: str) -> int:
        """The caller's end; we hear when all copies of it are closed."""
        number = self._service.inhibit(who, why)
        try:
            reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            self._service.release(number)
            raise Busy(f"cannot open a pipe: {error.strerror}", hint="try again") from error

        def closed(fd: int, _condition: Any) -> bool:
            self._pipes.pop(fd, None)
            os.close(fd)
            self._service.release(number)
            return False

        flags = GLib.IOCondition.HUP | GLib.IOCondition.ERR
        self._pipes[reader] = GLib.unix_fd_add_full(0, reader, flags, closed)
        return writer

    def _accept(self, job: UpdateJob) -> Answer:
        """Its object is there before the caller hears of it. Any thread."""
        return Answer((self.publish(job.id),))

    def publish(self, job: str) -> str:
        """Its path; once is enough, more do no harm. Any thread."""
        path = contract.update_path(job)
        with self._lock:
            for old in [key for key in self._held if self._service.job(key) is None]:
                self._exports.remove(self._held.pop(old))
            if job not in self._held:
                room = JobRoom(job, self._service, self._authority)
                self._held[job] = self._exports.add(path, room.door())
        return path


class JobRoom:
    def __init__(self, job: str, service: UpdateDoor, authority: Authority) -> None:
        self._id, self._service, self._authority = job, service, authority

    def door(self) -> Door:
        return Door(contract.UPDATE_JOB, {"Cancel": self.cancel}, lambda _o: self.properties())

    def cancel(self, owner: Owner, _args: tuple[Any, ...]) -> Later:
        def act() -> Future[None]:
            done: Future[None] = Future()
            self._service.cancel(self._id)
            done.set_result(None)
            return done

        done = as_manager(self._authority, owner, "cancel the update", act)
        return Later(done, lambda _done: Answer())

    def properties(self) -> dict[str, Any]:
        job = self._service.job(self._id)
        if job is None:
            raise NotFound(f"cannot find update {self._id}: it is forgotten")
        return {
            "Kind": job.kind,
            "Deployment": job.deployment,
            "Version": job.version,
            "State": job.state,
            "Phase": job.phase,
            "Done": job.done,
            "Total": job.total,
            "Eta": job.eta_s,
            "BytesOnWire": job.wire_bytes,
            "Error": (job.error_code, bus_text(job.error_text)),
        }


def properties(now: UpdateSnapshot, job: str) -> dict[str, Any]:
    return {
        "State": now.state,
        "Current": now.current,
        "Previous": now.previous,
        "Job": contract.update_path(job) if job else "/",
        "ClockTrusted": now.clock_trusted,
        "Frozen": now.frozen,
        "LastError": (now.error_code, bus_text(now.error_text)),
    }


def parse_options(options: Mapping[str, object]) -> InstallOptions:
    """Raises InvalidRequest."""

    def fail(path: str, reason: str) -> StokerError:
        return InvalidRequest(
            f"cannot read request: options.{path}: {reason}", details={"path": f"options.{path}"}
        )

    table = Table(options, fail)
    out = InstallOptions(
        deployment=table.text("deployment", "", max_bytes=128), forced=table.flag("force", False)
    )
    table.finish()
    return out


def _listed(found: Sequence[Deployment]) -> Answer:
    facts = [
        vardict(
            name=("s", item.name),
            version=("t", item.version),
            state=("s", item.state),
            reason=("s", item.reason),
            code=("s", item.code),
            size_bytes=("t", item.size_bytes),
            wire_bytes=("t", item.wire_bytes),
            source=("s", item.source),
        )
        for item in found
    ]
    return Answer((facts,))


def _record(record: Record) -> dict[str, Any]:
    empty: Mapping[str, object] = {"s": "", "t": 0}
    return vardict(**{key: (kind, record.get(key, empty[kind])) for key, kind in _RECORD.items()})


def _close(writer: Future[int]) -> None:
    """The reply has duplicated it."""
    if writer.exception() is None:
        os.close(writer.result())
