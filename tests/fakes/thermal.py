"""Parts for tests of the thermal loop: a hand-moved clock, a tree of a board, faults."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

from stoker.config.schema import ThermalConfig
from stoker.core.boards import BoardFacts, BoardPreset, choose_board
from stoker.drivers.attribute import read_attribute, write_attribute
from stoker.drivers.board_files import load_boards
from stoker.drivers.cap_journal import FileCapJournal
from stoker.drivers.cpufreq import Cpufreq
from stoker.drivers.plants import PLANTS, Plant
from stoker.drivers.simulated_board import SimulatedBoard
from stoker.drivers.sysfs_thermal import SysfsThermal
from stoker.services.thermal import ThermalPorts, ThermalService
from stoker.units import Seconds

TOP_KHZ = 1_500_000  # what the simulated Pi 4 runs at when it is cool
BOARDS = Path(__file__).resolve().parents[2] / "policies" / "boards"


class HandClock:
    """Moves only when told."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic_s(self) -> Seconds:
        return Seconds(self.now_s)


class FaultyFiles:
    """Reads and writes like the drivers do, until a path is told to fail."""

    def __init__(self) -> None:
        self.faults: dict[str, int] = {}  # end of the path -> errno
        self.texts: dict[str, str] = {}  # end of the path -> what it says instead
        self.limits: dict[str, int] = {}  # end of the path -> what it reads as at most
        self.writes: list[tuple[str, str]] = []

    def read(self, path: Path) -> str:
        self._check(path)
        for end, text in self.texts.items():
            if str(path).endswith(end):
                return text
        text = read_attribute(path)
        for end, limit in self.limits.items():  # as the kernel: the lowest request of all
            if str(path).endswith(end):
                return str(min(int(text), limit))
        return text

    def write(self, path: Path, text: str) -> None:
        self._check(path, "write:")
        self.writes.append((path.parent.name, text.strip()))
        write_attribute(path, text)

    def _check(self, path: Path, prefix: str = "") -> None:
        for end, number in self.faults.items():
            if (prefix and not end.startswith(prefix)) or (not prefix and ":" in end):
                continue
            if str(path).endswith(end.removeprefix(prefix)):
                raise OSError(number, errno.errorcode[number], str(path))


def preset(name: str) -> BoardPreset:
    return choose_board(load_boards(BOARDS), BoardFacts(), name)


class Rig:
    """The real service on the real drivers on a simulated tree, in hand-moved time."""

    def __init__(
        self, directory: Path, plant: str = "pi4-bare", config: ThermalConfig | None = None
    ) -> None:
        self.plant = Plant(PLANTS[plant], seed=1)
        self.board = SimulatedBoard(self.plant, directory / "sys")
        self.clock = HandClock()
        self.files = FaultyFiles()
        self.journal = FileCapJournal(directory / "run" / "caps.json")
        self.pauses: list[bool] = []
        self.ports = ThermalPorts(
            sensors=SysfsThermal(self.board.root, self.files.read),
            policies=Cpufreq(self.board.root, self.files.read, self.files.write),
            journal=self.journal,
            clock=self.clock,
            boot_id="this-boot",
            rest=lambda _s: None,
        )
        self.service = self.new_service(config)
        self.peak_c = 0.0

    def new_service(self, config: ThermalConfig | None = None) -> ThermalService:
        return ThermalService(
            config or ThermalConfig(),
            preset(self.plant.spec.board),
            self.ports,
            pause=lambda paused, _reason: self.pauses.append(paused),
        )

    def warm_to(self, junction_c: float) -> None:
        self.plant.warm_to(junction_c)
        self.board.publish()

    def run(
        self, seconds: float, load: float = 1.0, each: Callable[[], None] = lambda: None
    ) -> None:
        """Tick and simulate in turn, at the service's own period."""
        end_s = self.clock.now_s + seconds
        while self.clock.now_s < end_s - 1e-9:
            self.service.tick()
            period_s = self.service.snapshot().period_s
            self.board.advance(period_s, load)
            self.peak_c = max(self.peak_c, self.plant.junction_c)
            self.clock.now_s += period_s
            each()

    def limit_khz(self, policy: str = "policy0") -> int:
        return int((self.board.policy_dir(policy) / "scaling_max_freq").read_text())

    def write_limit(self, khz: int, policy: str = "policy0") -> None:
        (self.board.policy_dir(policy) / "scaling_max_freq").write_text(f"{khz}\n")
