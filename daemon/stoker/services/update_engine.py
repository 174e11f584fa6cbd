"""``stoker_ota``'s engine as the agent's ``Updater``: judged bundles in, snapshots out.

Only the update thread uses it (``history`` and ``inspect`` without ``keep`` only read).
Documents are judged by ``stoker_ota.services.intake``, which is loaded when a bundle comes:
it needs cryptography, and going on after a restart does not.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from stoker import errors
from stoker.events.updates import Deployment, InstallOptions, UpdateSnapshot
from stoker.ports.system import StateFile
from stoker.ports.updates import Record, Reports
from stoker_ota.core import listing, routes, targeting
from stoker_ota.core.manifest import Manifest
from stoker_ota.errors import OtaError, SourceMismatch
from stoker_ota.ports.disk import Disk
from stoker_ota.ports.files import Progress
from stoker_ota.ports.updates import Health, Patcher, Sources, Surroundings
from stoker_ota.services.engine import Engine, Ports
from stoker_ota.services.store import Store
from stoker_ota.values.deployment import Journal, Phase
from stoker_ota.values.fetching import Wanted
from stoker_ota.values.moves import Event, What

if TYPE_CHECKING:
    from stoker_ota.services.intake import Folder, Intake, Judged, Listed

ACTIVATED: Final = ("model", "adapter", "runtime", "policy")
"""Kinds of artifacts that this agent can put to use."""
LEAST_CRYPTOGRAPHY: Final = 45
_FREE: Final = (Phase.IDLE, Phase.FAILED, Phase.OFFERED, Phase.WAIT_WINDOW, Phase.WAIT_SPACE)
_BUNDLE, _EXPIRES = "bundle", "catalog_expires"


@dataclass(frozen=True, slots=True)
class Parts:
    """What stands behind the engine's ports. ``source``, ``folder``: of a bundle's path or address;
    a folder at an address is copied, its trust documents after a version.
    """

    disk: Disk
    patcher: Patcher
    source: Callable[[str], Sources]
    folder: Callable[[str, int], Folder]
    first_trust: Callable[[], bytes]
    around: Callable[[Store], Surroundings]
    health: Health
    notes: StateFile  # where the bundle is, for the time after a restart


DAMAGED: Final[Record] = {
    "time": "", "what": "damaged", "deployment": "", "version": 0, "generation": 0,
    "code": "storage-failed",
    "reason": "the chain of hashes is broken: lines were changed or are gone; what could not be "
    "read lies in history.jsonl.broken",
}  # fmt: skip
"""The newest line of a history that is not whole."""


class _Bundle:
    """The engine's source: whatever bundle was given last."""

    def __init__(self, make: Callable[[str], Sources], path: str) -> None:
        self._make, self.path = make, path

    def fetch(self, wanted: Wanted, part: str, progress: Progress) -> None:
        self._make(self.path).fetch(wanted, part, progress)


class EngineUpdater:
    """See ``ports.updates.Updater``."""

    def __init__(self, parts: Parts, reports: Reports) -> None:
        self._parts, self._reports = parts, reports
        with typed():
            self._store = Store(parts.disk)
        self._around = parts.around(self._store)
        self._notes: dict[str, object] = dict(parts.notes.load())
        self._bundle = _Bundle(parts.source, str(self._notes.get(_BUNDLE, "")))
        ports = Ports(parts.disk, self._bundle, parts.patcher, parts.health, self._around)
        with typed():
            self._engine = Engine(self._store, ports, report=self._report, progress=self._progress)

    def begin(self) -> None:
        with typed():
            self._engine.start()

    @property
    def phase(self) -> str:
        return self._engine.journal.phase.value

    @property
    def waiting(self) -> bool:
        return self._engine.waiting or self._engine.journal.phase is Phase.WAIT_SPACE

    @property
    def replaceable(self) -> bool:
        phase = self._engine.journal.phase
        fetching = phase in (Phase.PREFLIGHT, Phase.FETCHING) and self._engine.waiting
        return phase in _FREE or fetching

    def snapshot(self) -> UpdateSnapshot:
        with typed():
            return self._snapshot()

    def _snapshot(self) -> UpdateSnapshot:
        journal, offer, now = self._engine.journal, self._engine.journal.offer, self._around.now()
        expires = str(self._notes.get(_EXPIRES, ""))
        return UpdateSnapshot(
            state=journal.phase.value,
            deployment=offer.deployment if offer is not None else "",
            version=offer.version if offer is not None else 0,
            current=self._store.current(),
            previous=journal.previous,
            clock_trusted=now.trusted,
            frozen=bool(expires) and now.trusted and now.moment.isoformat() > expires,
        )

    def install(self, folder: str, options: InstallOptions) -> tuple[str, int]:
        with typed():
            intake, module = self._intake()
            judged = intake.accept(self._folder(folder, intake), self._around.now())
            self._note(judged, folder)
            found = module.choose(judged, options.deployment)
            self._check(found, options)
            offer = module.offer(found, forced=options.forced)
            self._bundle.path = folder
            under_way = self._engine.journal.offer
            if under_way is not None and under_way.manifest == offer.manifest and self.waiting:
                self.retry()
            else:
                if under_way is not None and self._engine.cancel():
                    self._engine.run()
                self._engine.offer(found.document, offer)
            return offer.deployment, offer.version

    def renew_trust(self, steps: Sequence[bytes]) -> int:
        with typed():
            intake, _ = self._intake()
            return intake.renew(steps, self._around.now()).version

    def rollback(self) -> None:
        with typed():
            journal, current = self._engine.journal, self._store.current()
            if journal.phase is not Phase.IDLE:
                raise errors.Busy(f"cannot roll back: an update is {journal.phase.value}")
            if current == journal.previous:
                raise errors.InvalidRequest("cannot roll back: there is no earlier set")
            self._engine.go_back()

    def confirm(self, deployment: str) -> None:
        offer, journal = self._engine.journal.offer, self._engine.journal
        if offer is None or offer.deployment != deployment or not journal.healthy:
            raise errors.InvalidRequest(f"cannot confirm {deployment}: it does not wait for that")
        with typed():
            self._engine.take(Event(What.CONFIRMED))

    def cancel(self) -> bool:
        with typed():
            return self._engine.cancel()

    def step(self) -> bool:
        with typed():
            return self._engine.step()

    def retry(self) -> None:
        with typed():
            if self._engine.journal.phase is Phase.WAIT_SPACE:
                self._engine.take(Event(What.SPACE_FREED))
            else:
                self._engine.go_on()

    def inspect(self, folder: str, *, keep: bool) -> Sequence[Deployment]:
        with typed():
            intake, _ = self._intake()
            look = intake.accept if keep else intake.inspect
            judged = look(self._folder(folder, intake), self._around.now())
            if keep:
                self._note(judged, folder)
            return [self._describe(item) for item in judged.listed.values()]

    def history(self) -> Sequence[Record]:
        with typed():
            found = self._store.history()
        return found.records if found.whole else (*found.records, DAMAGED)

    def _check(self, found: Listed, options: InstallOptions) -> None:
        """What the gate does not know: this device, and what was tried on it before."""
        assert found.manifest is not None, "chosen"
        targeting.check(found.manifest, self._around.device())
        targeting.check_bases(found.manifest, self._around.package_files)
        strange = {item.kind for item in found.manifest.artifacts} - set(ACTIVATED)
        if strange:
            raise errors.Dependency(
                f"cannot install {found.deployment}: this agent cannot activate a "
                f"{' or a '.join(sorted(strange))} yet",
                hint="upgrade the package stoker with apt first",
            )
        if options.forced:
            return
        if found.sha256 in self._engine.journal.failed:
            raise errors.Unhealthy(
                f"cannot install {found.deployment} {found.version}: it failed here before "
                "or was left for the set before it",
                hint="the history says why; --force tries it again",
            )
        if self._installed(found):
            raise errors.InvalidRequest(
                f"cannot install {found.deployment} {found.version}: it is installed already",
                hint="--force installs it anew",
            )

    def _installed(self, found: Listed) -> bool:
        return self._store.manifest(self._store.current()) == found.document

    def _describe(self, found: Listed) -> Deployment:
        manifest, refusal = found.manifest, found.refusal
        if manifest is None:
            state = "refused" if refusal is not None else "absent"
            reason, code = (refusal.message, refusal.code) if refusal is not None else ("", "")
            return Deployment(found.deployment, found.version, state, reason, code)
        state, reason, code = "new", "", ""
        if self._installed(found):
            state = "installed"
        elif found.sha256 in self._engine.journal.failed:
            state = "failed"
        try:
            targeting.check(manifest, self._around.device())
            targeting.check_bases(manifest, self._around.package_files)
            wire = sum(route.wire_bytes for route in self._routes(manifest))
        except OtaError as error:
            state, reason, code, wire = "refused", error.message, error.code, 0
        size = sum(item.size for item in manifest.artifacts)
        return Deployment(found.deployment, found.version, state, reason, code, size, wire)

    def _routes(self, manifest: Manifest) -> tuple[routes.Route, ...]:
        here = set(self._around.package_files())
        wanted = {item.sha256 for item in manifest.artifacts}
        wanted |= {delta.from_sha256 for item in manifest.artifacts for delta in item.deltas}
        here |= {sha for sha in wanted if self._store.has(sha)}
        with contextlib.suppress(SourceMismatch):
            return routes.choose(manifest, here, whole=False)
        return ()

    def _intake(self) -> tuple[Intake, Any]:
        module = load_intake()
        return module.Intake(self._store, self._parts.first_trust()), module

    def _folder(self, folder: str, intake: Intake) -> Folder:
        return self._parts.folder(folder, listing.version_of(intake.known()))

    def _note(self, judged: Judged, folder: str) -> None:
        """A descriptor's name says where the folder is, as long as it is there."""
        with contextlib.suppress(OSError):
            folder = os.readlink(folder)  # noqa: PTH115 (of a descriptor)
        self._notes |= {_BUNDLE: folder, _EXPIRES: judged.catalog.expires.isoformat()}
        self._parts.notes.save(self._notes)

    def _report(self, journal: Journal) -> None:
        self._reports.phase(journal.phase.value, journal.code, journal.reason)

    def _progress(self, phase: str, done: int, total: int) -> None:  # noqa: ARG002
        self._reports.progress(done, total)


@contextlib.contextmanager
def typed() -> Iterator[None]:
    """The engine's errors as the agent's, by their codes."""
    try:
        yield
    except OtaError as error:
        cls = errors.by_code(error.code)
        raise cls(error.message, hint=error.hint, details=error.details) from error


def load_intake() -> Any:
    """The module that judges documents. Dependency where cryptography is missing or too old."""
    try:
        import cryptography

        have = cryptography.__version__
    except ImportError:
        have = ""
    if not have or int(have.split(".")[0]) < LEAST_CRYPTOGRAPHY:
        raise errors.Dependency(
            "cannot check signatures: Python's cryptography is "
            + (f"{have}, {LEAST_CRYPTOGRAPHY} is needed" if have else "not installed"),
            hint=f"install cryptography {LEAST_CRYPTOGRAPHY} or newer for this Python",
        )
    from stoker_ota.services import intake

    return intake
