"""The wiring of heat: the board, its sensors or its simulation, the loop over it and the operating
points. Part of ``wiring``; decides nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from stoker.config.schema import Config
from stoker.core import simulation
from stoker.core.boards import BoardFacts, BoardPreset, choose_board
from stoker.core.thermal_plan import check_devfreq, check_sensors
from stoker.drivers.board_files import load_boards, read_board_facts
from stoker.drivers.cpu_load import busy_cpu_s
from stoker.drivers.heat_ports import heat_root, held_files, thermal_ports
from stoker.drivers.simulated_board import BoardThread, plant_of
from stoker.drivers.state_file import JsonStateFile
from stoker.drivers.sysfs_thermal import SysfsThermal
from stoker.drivers.text_files import SysfsText
from stoker.events.operating import Measured, Setting
from stoker.events.thermal import Sensor, ThermalSnapshot
from stoker.ports.doors import InferenceListener, InferenceSnapshot, ThermalListener
from stoker.ports.operating import SpeedMeter
from stoker.ports.system import Clock
from stoker.services.calibration import CalibrationService
from stoker.services.feed_forward import FeedForward
from stoker.services.held_files import HeldFiles
from stoker.services.inference import InferenceService
from stoker.services.other_knobs import DEVFREQ, PERFORMANCE, OtherKnobs
from stoker.services.thermal import ThermalService
from stoker.units import Seconds

_log = logging.getLogger(__name__)


class Paced(Protocol):
    """Inference, as heat limits it."""

    def headroom(self, fraction: float) -> None: ...

    def pace(self, threads: int, threads_batch: int, duty: float) -> None: ...


@dataclass(frozen=True, slots=True)
class HeatParts:
    thermal: ThermalService
    calibration: CalibrationService
    knobs: OtherKnobs
    held: HeldFiles
    simulated: BoardThread | None

    def start(self) -> None:
        """The board, then the loop over it."""
        if self.simulated is not None:
            self.simulated.start()
        try:
            self.held.restore()
        except Exception:  # whatever it is: the loop must watch the heat and give caps back
            _log.exception("cannot give back what an earlier stokerd held")
        self.thermal.start()

    def stop(self) -> None:
        """Every clock and governor is given back. Safe after a start that failed half-way."""
        self.thermal.stop()
        self.knobs.stop()
        if self.simulated is not None:
            self.simulated.stop()


def build_heat(config: Config, clock: Clock, inference: InferenceService) -> HeatParts:
    """The board, the loop that holds its wall, and what measures its operating points."""
    simulated = simulated_board(config, inference.activity)
    thermal = build_thermal(config, clock, inference)
    meter: SpeedMeter = inference
    if simulated is not None:
        meter = SimulatedSpeed(simulated, lambda: inference.snapshot().most_threads)
    store = JsonStateFile(Path(config.daemon.state_dir) / "operating-points.json")
    calibration = CalibrationService(thermal, meter, store, clock, busy_cpu_s=busy_cpu_s)
    forward = FeedForward(thermal, governs=config.thermal.governor == PERFORMANCE)

    def heard(now: InferenceSnapshot) -> None:
        calibration.heard(now)
        forward.heard(now.phase)

    inference.listen(InferenceListener(changed=heard))
    held = held_files(config)
    knobs = OtherKnobs(config.thermal, held)
    thermal.listen(ThermalListener(knobs.changed))
    return HeatParts(thermal, calibration, knobs, held, simulated)


def build_thermal(config: Config, clock: Clock, inference: InferenceService) -> ThermalService:
    """The heat loop, which paces and pauses inference."""
    ports = thermal_ports(config, clock)
    _check_names(config, ports.sensors.discover())
    thermal = ThermalService(
        config.thermal, board(config), ports, pause=inference.hold, work=inference.work
    )

    thermal.listen(ThermalListener(Limits(inference).changed))
    return thermal


class Limits:
    """Tells inference what heat leaves it, when that changes: each word wakes its loop, and a
    tick changes little but the temperature."""

    def __init__(self, inference: Paced) -> None:
        self._inference = inference
        self._headroom = 1.0
        self._pace = (0, 0, 1.0)

    def changed(self, seen: ThermalSnapshot) -> None:
        headroom, pace = pacing(seen), (seen.threads, seen.threads_batch, float(seen.duty))
        if headroom != self._headroom:
            self._headroom = headroom
            self._inference.headroom(headroom)
        if pace != self._pace:
            self._pace = pace
            self._inference.pace(*pace)


def pacing(seen: ThermalSnapshot) -> float:
    """Headroom as the scheduler must use it: 1 while clocks and threads alone hold the wall."""
    paced = "pacing" in seen.actuator or seen.state in ("safe", "stop")
    return seen.headroom if paced else 1.0


class SimulatedSpeed:
    """``SpeedMeter`` of a simulated board: its clock slows nothing down here, so its token model
    tells what a real one would give. ``most_threads`` stand for all its CPUs."""

    def __init__(self, board: BoardThread, most_threads: Callable[[], int]) -> None:
        self._board, self._most_threads = board, most_threads

    def measure(self, setting: Setting, limit_s: Seconds) -> Future[Measured]:
        part = setting.threads / max(1, self._most_threads())
        rate, busy_cpus = self._board.speed(setting.phase, part)
        found: Future[Measured] = Future()
        long_s = Seconds(1000 * limit_s)  # whole tokens hide nothing then
        found.set_result(Measured(max(1, round(rate * long_s)), long_s, busy_cpus))
        return found


def check_board(config: Config) -> BoardPreset:
    """As ``board``, and the sensors that the configuration names are there. A simulated board
    has its own, which are not there before it is."""
    if simulation.parse(config.thermal.board) is None:
        _check_names(config, SysfsThermal(heat_root(config)).discover())
    return board(config)


def _check_names(config: Config, sensors: Sequence[Sensor]) -> None:
    check_sensors(config.thermal, sensors)
    check_devfreq(config.thermal, SysfsText(heat_root(config)).names(DEVFREQ))


def board(config: Config) -> BoardPreset:
    """The preset of this board; ConfigInvalid if a preset file or the wanted name is wrong."""
    own = Path(config.folder) / "boards" if config.folder else None
    presets = load_boards(board_directory(), own)
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
