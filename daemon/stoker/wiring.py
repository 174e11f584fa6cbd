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

from stoker.api.bus import Bus
from stoker.api.doors import Published, publish
from stoker.config.changes import diff
from stoker.config.schema import Config, ModelConfig
from stoker.core import simulation
from stoker.core.boards import BoardFacts, BoardPreset, choose_board
from stoker.core.thermal_plan import check_sensors
from stoker.drivers import runner_unit
from stoker.drivers.authority import GroupAuthority
from stoker.drivers.board_files import load_boards, read_board_facts
from stoker.drivers.clock import MonotonicClock
from stoker.drivers.cpu_share import read_cpu_share
from stoker.drivers.cpus import usable_cpus
from stoker.drivers.heat_ports import heat_root, thermal_ports
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
from stoker.drivers.simulated_board import BoardThread, plant_of
from stoker.drivers.standings import NamedStandings
from stoker.drivers.state_file import JsonStateFile
from stoker.drivers.sysfs_thermal import SysfsThermal
from stoker.drivers.systemd_units import SystemdUnits
from stoker.events.thermal import ThermalSnapshot
from stoker.metrics_parts import build_history, build_metrics
from stoker.ports.doors import CpuShare, InferenceListener, ThermalListener
from stoker.ports.runner import RunnerLauncher
from stoker.ports.system import Authority, Clock, Part, Standings
from stoker.services import fit_report
from stoker.services.agent import AgentService
from stoker.services.history import HistoryService
from stoker.services.inference import InferenceService
from stoker.services.inference_loop import InferenceLoop
from stoker.services.measures import Measures
from stoker.services.sessions import SessionService
from stoker.services.thermal import ThermalService
from stoker.services.updates import UpdateService
from stoker.units import Seconds
from stoker.update_parts import Installed, build_updates

_log = logging.getLogger(__name__)
_PAGE_BYTES, _SPARE_PAGES = 4096, 1024  # of sessions.db
_STOP_MARGIN_S = 4.0  # beyond the runner's three deadlines, for readers to drain

ReadConfig = Callable[[], Config]


@dataclass
class Agent:
    """Everything that runs. ``start`` in order, ``stop`` in reverse."""

    config: Config
    bus: Bus
    inference: InferenceService
    thermal: ThermalService
    service: AgentService
    notifier: SystemdNotifier
    authority: PolkitAuthority
    standings: NamedStandings
    sessions: SessionService
    lock: InstanceLock
    updates: UpdateService
    history: HistoryService
    installed: Installed
    simulated: BoardThread | None = None
    parts: tuple[Part, ...] = ()
    published: Published | None = None

    def start(self) -> None:
        """Heat is watched before work begins; the name is ours before READY."""
        if self.simulated is not None:
            self.simulated.start()
        self.thermal.start()
        self.inference.start()
        self.sessions.start()
        self.updates.start()
        self.published = publish(
            self.bus,
            self.inference,
            self.thermal,
            self.service,
            self.authority,
            self.config,
            self.sessions,
            self.updates,
            self.history,
        )
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
        self.updates.stop(limit)
        self.inference.stop(limit)
        self.sessions.stop(limit)
        self.thermal.stop()
        if self.simulated is not None:
            self.simulated.stop()
        self.bus.close()
        self.lock.release()


def build(config: Config, read_config: ReadConfig) -> Agent:
    """Wire the agent. Raises StokerError: another stokerd, bad board, no bus."""
    lock = InstanceLock(Path(config.daemon.runtime_dir))
    lock.take()  # before anybody looks into the directory
    clock, notifier = MonotonicClock(), SystemdNotifier()
    standings = NamedStandings(config)
    installed = Installed(config)
    inference = build_inference(installed.served(), clock, standings=standings)
    simulated = simulated_board(config, inference.activity)
    thermal = build_thermal(config, clock, inference)
    bus = Bus.connect(config.daemon.bus)
    group = GroupAuthority(config.access.admin_group, config.access.gateway_user)
    authority = PolkitAuthority(bus.con, group)
    agent: Agent

    def apply() -> tuple[str, ...]:
        return _apply(agent, read_config())

    service = AgentService(
        clock=clock,
        notifier=notifier,
        turns={
            "inference": inference.last_turn_s,
            "thermal": lambda: thermal.last_tick_s() or Seconds(0.0),
        },
        apply=apply,
        cpu_share=read_cpu_share if runs_units(config) else CpuShare,
        realtime=partial(realtime_facts, units=runs_units(config)),
    )
    inference.listen(InferenceListener(changed=service.report))
    sessions = build_sessions(config, clock, inference, authority)
    updates = build_updates(installed, inference, thermal, board(config).name)
    measures = Measures(clock)
    measures.listen_to(inference, thermal)
    history = build_history(config, measures, inference, thermal, updates)
    parts = (history, *build_metrics(config, measures, inference, thermal, updates, service))
    agent = Agent(
        config, bus, inference, thermal, service, notifier, authority, standings, sessions, lock,
        updates, history, installed, simulated, parts,
    )  # fmt: skip
    return agent


def build_thermal(config: Config, clock: Clock, inference: InferenceService) -> ThermalService:
    """The heat loop, which paces and pauses inference."""
    ports = thermal_ports(config, clock)
    check_sensors(config.thermal, ports.sensors.discover())
    thermal = ThermalService(
        config.thermal,
        board(config),
        ports,
        pause=inference.hold,
        activity=inference.activity,
    )
    thermal.listen(ThermalListener(lambda seen: inference.headroom(pacing(seen))))
    return thermal


def build_inference(
    config: Config,
    clock: Clock,
    launcher: RunnerLauncher | None = None,
    standings: Standings | None = None,
) -> InferenceService:
    """The inference service on real drivers; benchmarks use it without a bus."""
    loop = InferenceLoop(
        config,
        launcher=launcher or runner_launcher(config),
        poller=EpollPoller(),
        sinks=PipeSinks(),
        files=LocalModelFiles(),
        clock=clock,
        memory=JsonStateFile(Path(config.daemon.state_dir) / "inference.json"),
        threads=config.runner.threads or usable_cpus(),
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
    )


def pacing(seen: ThermalSnapshot) -> float:
    """Headroom as the scheduler must use it: 1 while frequency caps alone hold the wall."""
    paced = seen.actuator in ("cpufreq+pacing", "pacing") or seen.state in ("safe", "stop")
    return seen.headroom if paced else 1.0


def runner_launcher(config: Config) -> RunnerLauncher:
    """As units of their own where stokerd is a service and the package is installed, else as
    children. STOKER_ECHO_FAULTS lets the test engine crash and hang on demand.
    """
    runner = config.runner
    faults = runner.engine == "echo" and "STOKER_ECHO_FAULTS" in os.environ
    extra = ("--echo-faults",) if faults else ()
    if not runs_units(config):
        scratch = ("--scratch", str(Path(config.daemon.state_dir) / "runner"))
        return ChildLauncher(
            runner.engine,
            gomp_spincount=runner.gomp_spincount,
            extra=(*extra, *scratch),
            huge_pages=config.memory.huge_pages,
        )
    return runner_unit.UnitLauncher(
        runner.engine,
        runtime_dir=Path(config.daemon.runtime_dir),
        gomp_spincount=runner.gomp_spincount,
        systemd=SystemdUnits(),
        extra=extra,
        huge_pages=config.memory.huge_pages,
    )


def inspect_fit(config: Config, model: ModelConfig) -> dict[str, object]:
    """What of a model fits this device; a runner of its own reads the file."""
    runner = ChildLauncher("llama", gomp_spincount=config.runner.gomp_spincount).start()
    try:
        return fit_report.report(runner, LinuxMemory(), model, config)
    finally:
        runner.close()
        runner.signal(signal.SIGTERM)
        runner.release()


def runs_units(config: Config) -> bool:
    """Runners are units of systemd's, in stoker.slice."""
    if config.runner.launcher != "auto":
        return config.runner.launcher != "child"
    service = "NOTIFY_SOCKET" in os.environ and config.daemon.bus == "system"
    return service and runner_unit.installed()


def check_board(config: Config) -> BoardPreset:
    """As ``board``, and the sensors that the configuration names are there. A simulated board
    has its own, which are not there before it is."""
    if simulation.parse(config.thermal.board) is None:
        check_sensors(config.thermal, SysfsThermal(heat_root(config)).discover())
    return board(config)


def board(config: Config) -> BoardPreset:
    """The preset of this board; ConfigInvalid if a preset file or the wanted name is wrong."""
    presets = load_boards(board_directory())
    wanted = simulation.parse(config.thermal.board)
    if wanted is not None:
        return choose_board(presets, BoardFacts(), plant_of(wanted.plant).board)
    facts = read_board_facts(Path(config.thermal.sysfs_root))
    return choose_board(presets, facts, config.thermal.board)


def simulated_board(config: Config, activity: Callable[[], float]) -> BoardThread | None:
    """Where ``thermal.board`` asks for one; its tree is there on return."""
    wanted = simulation.parse(config.thermal.board)
    if wanted is None:
        return None
    _log.warning("heat and clocks are simulated: %s", config.thermal.board)
    return BoardThread(wanted, heat_root(config), activity)


def board_directory() -> Path:
    """The checkout's presets when run from one, else the package's."""
    checkout = Path(__file__).parents[2] / "policies" / "boards"
    return checkout if checkout.is_dir() else Path("/usr/share/stoker/boards")


def _apply(agent: Agent, fresh: Config) -> tuple[str, ...]:
    """Take over what can change while running; the names of what cannot."""
    changes = diff(agent.config, fresh)
    later = tuple(change.key for change in changes if change.needs_restart)
    logging.getLogger().setLevel(fresh.daemon.log_level.upper())
    agent.installed.config = fresh
    agent.inference.reconfigure(agent.installed.served())
    agent.sessions.reconfigure(fresh)
    agent.authority.configure(fresh.access.admin_group, fresh.access.gateway_user)
    agent.standings.configure(fresh)
    if agent.published is not None:
        agent.published.reconfigure(fresh)
    agent.config = replace(
        agent.config,
        daemon=replace(agent.config.daemon, log_level=fresh.daemon.log_level),
        swap=fresh.swap,
        restart=fresh.restart,
        inference=fresh.inference,
        sampling=fresh.sampling,
        sessions=fresh.sessions,
        access=fresh.access,
        quotas=fresh.quotas,
        users=fresh.users,
        groups=fresh.groups,
    )
    _log.info("configuration read again; restart needed for: %s", ", ".join(later) or "nothing")
    return later
