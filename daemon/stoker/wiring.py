"""All wiring in one place: which drivers stand behind which ports, in which order things
start and, in reverse, stop. Knows every class; decides nothing.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.api.bus import Bus, on_main
from stoker.api.doors import Published, Services, publish
from stoker.config.changes import diff
from stoker.config.schema import Config, ModelConfig, ThermalConfig
from stoker.drivers import runner_unit
from stoker.drivers.authority import GroupAuthority
from stoker.drivers.clock import MonotonicClock, asleep_s
from stoker.drivers.cpu_share import read_cpu_share
from stoker.drivers.instance_lock import InstanceLock
from stoker.drivers.memory import LinuxMemory
from stoker.drivers.model_files import LocalModelFiles
from stoker.drivers.notify import SystemdNotifier
from stoker.drivers.pipe_sink import PipeSinks
from stoker.drivers.polkit import PolkitAuthority
from stoker.drivers.poller import EpollPoller
from stoker.drivers.realtime_facts import realtime_facts
from stoker.drivers.runner_child import ChildLauncher
from stoker.drivers.session_store import SqliteSessionStore
from stoker.drivers.standings import NamedStandings
from stoker.drivers.state_file import JsonStateFile
from stoker.drivers.systemd_units import SystemdUnits
from stoker.fleet_parts import build_fleet
from stoker.heat_parts import HeatParts, build_heat
from stoker.installed import Installed
from stoker.metrics_parts import build_history, build_metrics
from stoker.placement_parts import Placing, placing, runs_units
from stoker.ports.doors import CpuShare, InferenceListener
from stoker.ports.runner import RunnerLauncher
from stoker.ports.system import Authority, Clock, Part, Standings
from stoker.services import fit_report
from stoker.services.agent import AgentService
from stoker.services.history import HistoryService
from stoker.services.inference import InferenceService
from stoker.services.inference_loop import InferenceLoop
from stoker.services.measures import Measures
from stoker.services.no_fleet import NoFleet
from stoker.services.sessions import SessionService
from stoker.services.updates import UpdateService
from stoker.units import Seconds
from stoker.update_parts import build_updates

if TYPE_CHECKING:
    from stoker.services.fleet import FleetService

_log = logging.getLogger(__name__)
_PAGE_BYTES, _SPARE_PAGES = 4096, 1024  # of sessions.db
_FLEET_STOP_S = 5.0  # for a last word to a broker that may be far
_STOP_MARGIN_S = 4.0  # beyond the runner's three deadlines, for readers to drain

ReadConfig = Callable[[Path | None], Config]
"""The files as they are now, with this policy among them."""


@dataclass
class Agent:
    """Everything that runs. ``start`` in order, ``stop`` in reverse."""

    config: Config
    bus: Bus
    inference: InferenceService
    heat: HeatParts
    service: AgentService
    notifier: SystemdNotifier
    authority: PolkitAuthority
    standings: NamedStandings
    sessions: SessionService
    lock: InstanceLock
    updates: UpdateService
    history: HistoryService
    installed: Installed
    fleet: FleetService | NoFleet
    parts: tuple[Part, ...] = ()
    published: Published | None = None

    def start(self) -> None:
        """Heat is watched before work begins; the name is ours before READY."""
        self.heat.start()
        self.inference.start()
        self.sessions.start()
        self.updates.start()
        self.fleet.start()
        services = Services(
            self.inference, self.heat.thermal, self.heat.calibration, self.service, self.sessions,
            self.updates, self.history, self.fleet,
        )  # fmt: skip
        self.published = publish(self.bus, services, self.authority, self.config)
        for part in self.parts:
            part.start()
        self.notifier.ready()

    def stop(self) -> None:
        """Safe after a start that failed half-way."""
        self.notifier.stopping()
        for part in self.parts:
            part.stop()
        limit = Seconds(3 * self.config.runner.stop_timeout_s + _STOP_MARGIN_S)
        if self.published is not None:
            self.published.close()
        self.fleet.stop(Seconds(_FLEET_STOP_S))
        self.heat.calibration.stop(limit)
        self.updates.stop(limit)
        self.inference.stop(limit)
        self.sessions.stop(limit)
        self.heat.stop()
        self.bus.close()
        self.lock.release()


def build(config: Config, read_config: ReadConfig) -> Agent:
    """Wire the agent. Raises StokerError: another stokerd, bad board, no bus."""
    lock = InstanceLock(Path(config.daemon.runtime_dir))
    lock.take()  # before anybody looks into the directory
    clock, notifier = MonotonicClock(), SystemdNotifier()
    standings = NamedStandings(config)
    installed = Installed(config, read_config)
    config = installed.config
    placed = placing(config)
    inference = build_inference(installed.served(), clock, standings=standings, placed=placed)
    heat = build_heat(config, clock, inference)
    bus = Bus.connect(config.daemon.bus)
    group = GroupAuthority(config.access.admin_group, config.access.gateway_user)
    authority = PolkitAuthority(bus.con, group)
    agent: Agent

    def apply() -> tuple[str, ...]:
        return _apply(agent, installed.read(installed.now))

    installed.apply = lambda fresh: on_main(lambda: _apply(agent, fresh))

    service = AgentService(
        clock=clock,
        notifier=notifier,
        turns={
            "inference": inference.last_turn_s,
            "thermal": lambda: heat.thermal.last_tick_s() or Seconds(0.0),
        },
        apply=apply,
        cpu_share=read_cpu_share if runs_units(config) else CpuShare,
        realtime=partial(realtime_facts, units=runs_units(config), unheld=placed.unheld),
    )
    inference.listen(InferenceListener(changed=service.report))
    sessions = build_sessions(config, clock, inference, authority)
    preset = heat.thermal.plan.board
    updates = build_updates(installed, inference, heat.thermal, preset, units=runs_units(config))
    measures = Measures(clock)
    measures.listen_to(inference, heat.thermal)
    history = build_history(config, measures, inference, heat.thermal, updates)
    fleet = build_fleet(
        installed, inference, heat.thermal, updates, service.reload, preset, measures.counted
    )
    metrics = build_metrics(config, measures, inference, heat.thermal, updates, service, fleet)
    agent = Agent(
        config, bus, inference, heat, service, notifier, authority, standings, sessions, lock,
        updates, history, installed, fleet, (history, *metrics),
    )  # fmt: skip
    return agent


def build_inference(
    config: Config,
    clock: Clock,
    launcher: RunnerLauncher | None = None,
    standings: Standings | None = None,
    placed: Placing | None = None,
) -> InferenceService:
    """The inference service on real drivers; benchmarks use it without a bus."""
    placed = placed or placing(config)
    loop = InferenceLoop(
        config,
        launcher=launcher or runner_launcher(config, placed),
        poller=EpollPoller(),
        sinks=PipeSinks(),
        files=LocalModelFiles(),
        clock=clock,
        memory=JsonStateFile(Path(config.daemon.state_dir) / "inference.json"),
        threads=placed.threads,
        new_id=lambda: secrets.token_hex(16),
        device=LinuxMemory(pressure_file=config.memory.pressure_file),
    )
    return InferenceService(loop, ask_timeout_s=config.inference.ask_timeout_s, standings=standings)


def build_sessions(
    config: Config, clock: Clock, inference: InferenceService, authority: Authority
) -> SessionService:
    """Conversations in the state directory. The file has room for twice what may be kept."""
    pages = 2 * config.sessions.max_bytes // _PAGE_BYTES + _SPARE_PAGES
    return SessionService(
        config,
        store=SqliteSessionStore(Path(config.daemon.state_dir) / "sessions.db", max_pages=pages),
        inference=inference,
        authority=authority,
        clock=clock,
        wall_s=time.time,
        new_id=lambda: secrets.token_hex(16),
        asleep_s=asleep_s,
    )


def runner_launcher(config: Config, placed: Placing | None = None) -> RunnerLauncher:
    """As units of their own where stokerd is a service and the package is installed, else as
    children. STOKER_ECHO_FAULTS lets the test engine crash and hang on demand.
    """
    runner = config.runner
    faults = runner.engine == "echo" and "STOKER_ECHO_FAULTS" in os.environ
    placed = placed or placing(config)
    if placed.no_fifo:
        _log.warning("runner.realtime = fifo is not used: %s", placed.no_fifo)
    extra = (("--echo-faults",) if faults else ()) + placed.options
    extra += ("--frame-ms", str(runner.frame_ms))
    spins = 0 if "--fifo" in extra else runner.gomp_spincount  # FIFO that spins is a deadlock
    if not runs_units(config):
        scratch = ("--scratch", str(Path(config.daemon.state_dir) / "runner"))
        return ChildLauncher(
            runner.engine,
            gomp_spincount=spins,
            extra=(*extra, *scratch),
            huge_pages=config.memory.huge_pages,
        )
    return runner_unit.UnitLauncher(
        runner.engine,
        runtime_dir=Path(config.daemon.runtime_dir),
        gomp_spincount=spins,
        systemd=SystemdUnits(),
        extra=extra,
        huge_pages=config.memory.huge_pages,
    )


def inspect_fit(config: Config, model: ModelConfig) -> dict[str, object]:
    """What of a model fits this device; a runner of its own reads the file."""
    runner = ChildLauncher("llama", gomp_spincount=config.runner.gomp_spincount).start()
    try:
        return fit_report.report(runner, LinuxMemory(), model, config, LocalModelFiles().size_bytes)
    finally:
        runner.close()
        runner.signal(signal.SIGTERM)
        runner.release()


def _apply(agent: Agent, fresh: Config) -> tuple[str, ...]:
    """Take over what can change while running; the names of what cannot."""
    changes = diff(agent.config, fresh)
    later = tuple(change.key for change in changes if change.needs_restart)
    logging.getLogger().setLevel(fresh.daemon.log_level.upper())
    agent.installed.config = fresh
    agent.inference.reconfigure(agent.installed.served())
    agent.sessions.reconfigure(fresh)
    thermal = _live_heat(agent.config, fresh)
    agent.heat.thermal.reconfigure(thermal)
    agent.authority.configure(fresh.access.admin_group, fresh.access.gateway_user)
    agent.standings.configure(fresh)
    if agent.published is not None:
        agent.published.reconfigure(fresh)
    agent.config = replace(
        agent.config,
        daemon=replace(agent.config.daemon, log_level=fresh.daemon.log_level),
        device=replace(fresh.device, id=agent.config.device.id),
        swap=fresh.swap,
        restart=fresh.restart,
        inference=fresh.inference,
        sampling=fresh.sampling,
        sessions=fresh.sessions,
        thermal=thermal,
        access=fresh.access,
        quotas=fresh.quotas,
        users=fresh.users,
        groups=fresh.groups,
    )
    _log.info("configuration read again; restart needed for: %s", ", ".join(later) or "nothing")
    return later


def _live_heat(old: Config, fresh: Config) -> ThermalConfig:
    """What the heat loop takes while it runs; sensors and actuators stay as they are."""
    return replace(
        old.thermal,
        wall_c=fresh.thermal.wall_c,
        law=fresh.thermal.law,
        margin_k=fresh.thermal.margin_k,
        gain_w_per_k=fresh.thermal.gain_w_per_k,
        reset_s=fresh.thermal.reset_s,
    )
