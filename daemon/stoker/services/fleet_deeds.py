"""Commands as calls of the services that are there: each is begun, looked after, ended.

No shell, no file that a command could name. Arguments are parsed here and unknown ones
refused. ``fleet_desk`` says when; what a command means stands in docs/fleet.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from stoker.core import fleet_words
from stoker.errors import DeadlineExceeded, InvalidRequest, StokerError, TooLarge
from stoker.events.fleet import UPLOAD, Record
from stoker.getters import Table
from stoker.ports.doors import InferenceDoor
from stoker.ports.fleet import Letter
from stoker.ports.updates import UpdateDoor
from stoker.services.fleet_outcome import Deed, Outcome, SteppedDeed, ending
from stoker.services.fleet_update_deeds import InstallDeed, RollbackDeed

RESTART_LIMIT_S: Final = 300.0
MAX_LINES: Final = 5000
Note = Callable[[Mapping[str, object]], None]


@dataclass(frozen=True, slots=True)
class Services:
    """What commands may reach. Futures complete in other threads."""

    updates: UpdateDoor
    inference: InferenceDoor
    set_policy: Callable[[Mapping[str, object]], Future[Sequence[str]]]
    keep_model: Callable[[str], None]  # so that a restart serves it too
    pause: Callable[[bool], None]
    report: Callable[[], None]
    diagnostics: Callable[[], Future[bytes]]
    log: Callable[[int], Future[bytes]]
    settings: Callable[[], Mapping[str, object]]  # redacted
    fetch: Callable[[str], Future[bytes]]  # a retained document; b"" = there is none
    trust_topic: Callable[[int], str]
    trust_version: Callable[[], int]
    cancel: Callable[[str], None]
    upload_topic: Callable[[str, int], str]
    upload_room: Callable[[], int]  # bytes that the outbox keeps for sure
    monotonic_s: Callable[[], float]


class CommandDeeds:
    """See ``fleet_outcome.Deeds``."""

    def __init__(self, services: Services) -> None:
        self._with = services
        self._begins: Mapping[str, Callable[[Record, Table, Note], Deed]] = {
            "update.check": self._check,
            "update.install": self._install,
            "update.rollback": self._rollback,
            "update.confirm": self._confirm,
            "model.activate": self._activate,
            "policy.set": self._policy,
            "runtime.restart": self._restart,
            "runtime.pause": lambda _r, args, _n: self._paused(args, held=True),
            "runtime.resume": lambda _r, args, _n: self._paused(args, held=False),
            "report.state": self._report,
            "report.diagnostics": self._diagnostics,
            "log.upload": self._log,
            "config.get": self._config,
            "trust.refresh": self._trust,
            "cancel": self._cancel,
        }

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._begins)

    def begin(self, record: Record, note: Note) -> Deed:
        begin = self._begins.get(record.command)
        if begin is None:
            raise InvalidRequest(
                f"cannot do {record.command}: this agent does not know it",
                hint="upgrade the package stoker with apt first",
            )
        return begin(record, Table(record.args, _fail), note)

    def _check(self, _record: Record, args: Table, _note: Note) -> Deed:
        args.finish()

        def listed(found: Sequence[Any]) -> Outcome:
            facts = [
                {"name": item.name, "version": item.version, "state": item.state,
                 "reason": item.reason, "wire_bytes": item.wire_bytes}
                for item in found
            ]  # fmt: skip
            return Outcome("done", data={"deployments": facts})

        return Waiting(self._with.updates.check(), listed)

    def _install(self, _record: Record, args: Table, note: Note) -> Deed:
        return InstallDeed(self._with.updates, args, note, self._with.monotonic_s)

    def _rollback(self, record: Record, args: Table, note: Note) -> Deed:
        args.finish()
        return RollbackDeed(self._with.updates, record.notes, note)

    def _confirm(self, record: Record, args: Table, _note: Note) -> Deed:
        name = args.text("deployment", max_bytes=128)
        args.finish()

        def not_waiting(error: Exception) -> Outcome:
            if isinstance(error, InvalidRequest) and record.attempts > 1:
                return Outcome("done", data={"deployment": name})  # before the cut
            return ending(error)

        confirmed = self._with.updates.confirm(name)
        return Waiting(confirmed, lambda _n: Outcome("done", data={"deployment": name}),
                       not_waiting)  # fmt: skip

    def _activate(self, _record: Record, args: Table, _note: Note) -> Deed:
        name = args.text("model", max_bytes=64)
        args.finish()

        def serves(result: Any) -> Outcome:
            self._with.keep_model(result.model)
            return Outcome("done", data={"model": result.model, "previous": result.previous})

        return Waiting(self._with.inference.select_model(name), serves)

    def _policy(self, _record: Record, args: Table, _note: Note) -> Deed:
        values = args.raw("values")
        if not isinstance(values, Mapping):
            args.refuse("values", "expected a table")
        args.finish()

        def applied(later: Sequence[str]) -> Outcome:
            return Outcome("done", data={"needs_restart": list(later)})

        return Waiting(self._with.set_policy(values), applied)

    def _restart(self, record: Record, args: Table, _note: Note) -> Deed:
        args.finish()
        if record.attempts > 1:  # the agent itself was restarted, and the runner with it
            return Ended(Outcome("done", text="the agent was restarted meanwhile"))
        return RestartDeed(self._with.inference, self._with.monotonic_s)

    def _paused(self, args: Table, *, held: bool) -> Deed:
        args.finish()
        self._with.pause(held)
        return Ended(Outcome("done", data={"paused": held}))

    def _report(self, _record: Record, args: Table, _note: Note) -> Deed:
        args.finish()
        self._with.report()
        return Ended(Outcome("done"))

    def _diagnostics(self, record: Record, args: Table, _note: Note) -> Deed:
        args.finish()
        return Waiting(self._with.diagnostics(), self._sent(record, "diagnostics.tar.gz"))

    def _log(self, record: Record, args: Table, _note: Note) -> Deed:
        lines = args.whole("lines", 1000, low=1, high=MAX_LINES)
        args.finish()
        return Waiting(self._with.log(lines), self._sent(record, "stokerd.log.gz"))

    def _sent(self, record: Record, name: str) -> Callable[[bytes], Outcome]:
        def send(data: bytes) -> Outcome:
            transfer = fleet_words.transfer_id(record.id)
            parts = fleet_words.upload(transfer, name, data, record.id)
            letters = [
                Letter(UPLOAD, self._with.upload_topic(transfer, number), payload)
                for number, payload in parts
            ]
            size, room = sum(len(letter.payload) for letter in letters), self._with.upload_room()
            if size > room:  # the outbox would give up a part of it
                text = f"cannot send {name}: {size} bytes, the outbox has room for {room}"
                return Outcome("refused", TooLarge.code, f"{text} (raise [fleet] outbox_bytes)")
            facts = {"transfer": transfer, "size": len(data), "chunks": len(parts) - 1}
            return Outcome("done", data=facts, letters=letters)

        return send

    def _config(self, _record: Record, args: Table, _note: Note) -> Deed:
        wanted = args.texts("keys", (), max_items=256)
        args.finish()
        found = self._with.settings()
        if wanted:
            found = {key: value for key, value in found.items() if key.startswith(wanted)}
        return Ended(Outcome("done", data={"settings": dict(found)}))

    def _trust(self, _record: Record, args: Table, _note: Note) -> Deed:
        args.finish()
        return TrustDeed(self._with)

    def _cancel(self, _record: Record, args: Table, _note: Note) -> Deed:
        identity = args.text("id", max_bytes=64)
        args.finish()
        self._with.cancel(identity)
        return Ended(Outcome("done", data={"id": identity}))


class Ended:
    """Done when it was begun."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def poll(self) -> Outcome | None:
        return self._outcome

    def cancel(self) -> bool:
        return False


class Waiting:
    """For one answer of a service."""

    def __init__(
        self,
        asked: Future[Any],
        convert: Callable[[Any], Outcome],
        failed: Callable[[Exception], Outcome] = ending,
    ) -> None:
        self._asked, self._convert, self._failed = asked, convert, failed

    def poll(self) -> Outcome | None:
        if not self._asked.done():
            return None
        try:
            return self._convert(self._asked.result())
        except Exception as error:
            return self._failed(error)

    def cancel(self) -> bool:
        return False


class RestartDeed:
    """Over when another runner serves."""

    def __init__(self, inference: InferenceDoor, monotonic_s: Callable[[], float]) -> None:
        self._inference, self._now_s = inference, monotonic_s
        self._pid = inference.snapshot().runner_pid
        self._until_s = monotonic_s() + RESTART_LIMIT_S
        self._asked = inference.restart_runner()

    def poll(self) -> Outcome | None:
        if not self._asked.done():
            return None
        try:
            self._asked.result()
        except Exception as error:
            return ending(error)
        now = self._inference.snapshot()
        if now.runner_pid != self._pid and now.state in ("ready", "no-model", "asleep"):
            return Outcome("done", data={"state": now.state})
        if self._now_s() > self._until_s:
            return ending(DeadlineExceeded(f"cannot restart the runner: it is {now.state}"))
        return None

    def cancel(self) -> bool:
        return False


class TrustDeed(SteppedDeed):
    """Fetches trust documents one after the other; the update service walks them."""

    def __init__(self, services: Services) -> None:
        self._with = services
        self._steps: list[bytes] = []
        self._next = services.trust_version() + 1
        self._fetched: Future[bytes] | None = services.fetch(services.trust_topic(self._next))
        self._walked: Future[int] | None = None

    def _step(self) -> Outcome | None:
        if self._walked is not None:
            if not self._walked.done():
                return None
            return Outcome("done", data={"version": self._walked.result()})
        assert self._fetched is not None
        if not self._fetched.done():
            return None
        found = self._fetched.result()
        if found:
            self._steps.append(found)
            self._next += 1
            self._fetched = self._with.fetch(self._with.trust_topic(self._next))
        elif self._steps:
            self._walked = self._with.updates.renew_trust(self._steps)
        else:
            return Outcome("done", data={"version": self._next - 1})
        return None


def _fail(path: str, reason: str) -> StokerError:
    return InvalidRequest(f"cannot read command: args.{path}: {reason}", details={"path": path})
