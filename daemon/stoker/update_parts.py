"""The wiring of updates: which drivers stand behind the engine's ports, and what serves at
the start. Part of ``wiring``; decides nothing.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.config.schema import Config
from stoker.core.installed_set import InstalledSet, served
from stoker.errors import ConfigInvalid, StokerError, Unavailable
from stoker.ports.updates import Reports, Updater
from stoker.services.inference import InferenceService
from stoker.services.thermal import ThermalService
from stoker.services.updates import UpdateService

if TYPE_CHECKING:
    from stoker.services.model_health import ModelHealth
    from stoker_ota.values.deployment import Member

_log = logging.getLogger(__name__)
MAX_TRUST_BYTES = 256 << 10


class Installed:
    """Which set serves, and the configuration with it; any thread."""

    def __init__(self, config: Config) -> None:
        self.config = config  # as the files have it
        self.root = Path(config.daemon.state_dir) / "ota"
        self.present = config.updates.enabled and (self.root / "state.json").exists()
        self.now = _committed(self.root) if self.present else InstalledSet()

    def served(self) -> Config:
        return served(self.config, self.now)

    def locate(self, generation: int, members: tuple[Member, ...]) -> InstalledSet:
        """The set's models by name, under a path that no other generation has."""
        return _located(self.root, generation, members)


def build_updates(
    installed: Installed, inference: InferenceService, thermal: ThermalService, board: str
) -> UpdateService:
    config = installed.config.updates

    def build(reports: Reports) -> Updater:
        return _updater(installed, inference, thermal, board, reports)

    refusal: StokerError | None = None
    if not config.enabled:
        refusal = Unavailable(
            "cannot update: updates are switched off", hint="set enabled in [updates]"
        )
    return UpdateService(
        build,
        resume=installed.present,
        sources=config.sources,
        retry_s=config.retry_s,
        refusal=refusal,
    )


def _updater(
    installed: Installed,
    inference: InferenceService,
    thermal: ThermalService,
    board: str,
    reports: Reports,
) -> Updater:
    """Everything of the engine is imported here: an agent that never updates has none of it."""
    from stoker.drivers.device_facts import DeviceClock, DeviceIdentity, KnownFiles
    from stoker.drivers.state_file import JsonStateFile
    from stoker.services.update_engine import EngineUpdater, Parts
    from stoker.services.update_surroundings import DeviceSurroundings
    from stoker_ota.drivers.bundle_source import BundleFolder, BundleSource
    from stoker_ota.drivers.disk import RealDisk
    from stoker_ota.drivers.patcher import ChildPatcher

    root = installed.root
    root.mkdir(parents=True, exist_ok=True)
    root.chmod(0o755)  # the runner, which is another user, reads models here

    files = KnownFiles(
        lambda: [model.path for model in installed.config.models],
        JsonStateFile(root / "files.json"),
    )
    parts = Parts(
        RealDisk(root),
        ChildPatcher(root, cancelled=reports.cancelled),
        source=lambda path: BundleSource(Path(path), root, cancelled=reports.cancelled),
        folder=lambda path: BundleFolder(Path(path)),
        first_trust=lambda: first_trust(Path(installed.config.updates.trust)),
        around=lambda store: DeviceSurroundings(
            store,
            DeviceClock(),
            DeviceIdentity(),
            board=board,
            files=files.by_hash,
            inhibited=reports.inhibited,
        ),
        health=_health(installed, inference, thermal, reports),
        notes=JsonStateFile(root / "notes.json"),
    )
    return EngineUpdater(parts, reports)


def _health(
    installed: Installed,
    inference: InferenceService,
    thermal: ThermalService,
    reports: Reports,
) -> ModelHealth:
    from stoker.services.model_health import ModelHealth

    def serve(fresh: InstalledSet) -> None:
        installed.now = fresh
        inference.reconfigure(installed.served())

    return ModelHealth(
        lambda: installed.config,
        inference,
        thermal.snapshot,
        locate=installed.locate,
        serve=serve,
        cancelled=reports.cancelled,
    )


def first_trust(path: Path) -> bytes:
    """The document that the operator installed. ConfigInvalid when there is none."""
    from stoker.drivers.regular_file import read_regular

    try:
        return read_regular(path, MAX_TRUST_BYTES)
    except OSError as error:
        raise ConfigInvalid(
            f"cannot check signatures: {path}: {error.strerror or error}",
            hint="install your trust/1.json ('stoker-ota init-pki' makes it) as [updates] trust",
            details={"path": "updates.trust"},
        ) from error


def _committed(root: Path) -> InstalledSet:
    """The set to serve after a start; the package's own when what is there is damaged."""
    from stoker_ota.core.machine import serving
    from stoker_ota.drivers.disk import RealDisk
    from stoker_ota.errors import OtaError
    from stoker_ota.services.store import Store

    try:
        store = Store(RealDisk(root))
        generation = serving(store.journal(), store.current())
        if not generation:
            return InstalledSet()
        found = _located(root, generation, store.members(generation))
        missing = [path for path in found.models.values() if not _whole(Path(path))]
    except OtaError as error:
        _log.error("cannot use the installed set: %s; the package's own serves", error.message)
        return InstalledSet()
    if missing:
        _log.error("cannot use the installed set: %s is gone; the package's own serves", missing[0])
        return InstalledSet()
    return found


def _located(root: Path, generation: int, members: tuple[Member, ...]) -> InstalledSet:
    folder = root / "generations" / str(generation)
    models = {item.name: str(folder / item.name) for item in members if item.kind == "model"}
    return InstalledSet(generation, models if generation else {})


def _whole(path: Path) -> bool:
    """As far as a stat can say: the object was hashed from the disk before it got its name."""
    try:
        return path.is_file() and path.stat().st_size > 0
    except OSError:
        return False
