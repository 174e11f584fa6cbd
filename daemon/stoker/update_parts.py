"""The wiring of updates: which drivers stand behind the engine's ports. Part of ``wiring``;
decides nothing.
"""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.config.schema import Config, ModelConfig
from stoker.errors import ConfigInvalid, StokerError, Unavailable
from stoker.installed import Installed
from stoker.ports.updates import Reports, Updater
from stoker.services.inference import InferenceService
from stoker.services.thermal import ThermalService
from stoker.services.update_polling import Polling
from stoker.services.updates import UpdateService

if TYPE_CHECKING:
    from stoker.services.model_health import ModelHealth
    from stoker_ota.ports.updates import Patcher

_log = logging.getLogger(__name__)
MAX_TRUST_BYTES = 256 << 10


def build_updates(
    installed: Installed,
    inference: InferenceService,
    thermal: ThermalService,
    board: str,
    *,
    units: bool,
) -> UpdateService:
    """``units``: this agent is a service that starts units, see ``wiring.runs_units``."""
    config = installed.config.updates

    def build(reports: Reports) -> Updater:
        return _updater(
            installed, inference, thermal, board, _patcher(installed, reports, units), reports
        )

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
        polling=Polling(config.poll_s, config.automatic),
        refusal=refusal,
    )


def _updater(
    installed: Installed,
    inference: InferenceService,
    thermal: ThermalService,
    board: str,
    patcher: Patcher,
    reports: Reports,
) -> Updater:
    """Everything of the engine is imported here: an agent that never updates has none of it."""
    from stoker.drivers.device_facts import DeviceClock, DeviceIdentity
    from stoker.drivers.state_file import JsonStateFile
    from stoker.services.update_engine import EngineUpdater, Parts
    from stoker.services.update_surroundings import DeviceSurroundings
    from stoker.update_origins import Origins
    from stoker_ota.drivers.disk import RealDisk

    root = installed.root
    root.mkdir(parents=True, exist_ok=True)
    root.chmod(0o755)  # the runner, which is another user, reads models here

    identity = DeviceIdentity(lambda: installed.config.device)
    origins = Origins(root, installed, identity.device_id, reports)
    parts = Parts(
        RealDisk(root),
        patcher,
        source=origins.source,
        folder=origins.folder,
        first_trust=lambda: first_trust(Path(installed.config.updates.trust)),
        around=lambda store: DeviceSurroundings(
            store,
            DeviceClock(),
            identity,
            board=board,
            files=installed.files.by_hash,
            inhibited=reports.inhibited,
        ),
        health=_health(installed, inference, thermal, reports),
        notes=JsonStateFile(root / "notes.json"),
    )
    return EngineUpdater(parts, reports)


def _patcher(installed: Installed, reports: Reports, units: bool) -> Patcher:
    """Where deltas are decoded: in the unit that may reach nothing, or in a child."""
    from stoker.drivers import apply_unit

    if units and apply_unit.installed():
        from stoker.drivers.systemd_units import SystemdUnits

        return apply_unit.UnitPatcher(
            installed.root,
            runtime_dir=Path(installed.config.daemon.runtime_dir),
            systemd=SystemdUnits(),
            cancelled=reports.cancelled,
        )
    from stoker_ota.drivers.patcher import ChildPatcher

    _log.log(
        logging.WARNING if units else logging.INFO,
        "deltas are applied in a child, which may reach whatever stokerd may: %s",
        "the unit stoker-apply@.service is not installed" if units else "no unit is used here",
    )
    return ChildPatcher(installed.root, cancelled=reports.cancelled)


def _health(
    installed: Installed,
    inference: InferenceService,
    thermal: ThermalService,
    reports: Reports,
) -> ModelHealth:
    from stoker.services.model_health import ModelHealth

    installed.reconfigure = inference.reconfigure
    installed.cancelled = reports.cancelled
    return ModelHealth(installed, inference, thermal.snapshot, cancelled=reports.cancelled)


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


def score_texts(config: Config, model: ModelConfig, texts: Sequence[str]) -> Iterator[str]:
    """JSON lines for ``stoker-ota probe make``; a runner of its own loads the model."""
    from stoker.drivers.cpus import usable_cpus
    from stoker.drivers.runner_child import ChildLauncher
    from stoker.services.score_report import scores

    runner_config = config.runner
    launcher = ChildLauncher(
        runner_config.engine, gomp_spincount=runner_config.gomp_spincount, extra=("--no-ping",)
    )
    runner = launcher.start(runner_config.libraries)
    try:
        threads = runner_config.threads or usable_cpus()
        for figure in scores(runner, model, config, threads, texts):
            yield json.dumps(figure, ensure_ascii=False)
    finally:
        runner.close()
        runner.signal(signal.SIGTERM)
        runner.release()
