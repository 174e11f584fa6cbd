"""One policy's ``scaling_max_freq`` as Linux keeps it, with everything that can go wrong, and the
real thermal loop over it.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.plant_ports import MemoryJournal
from tests.fakes.thermal import HandClock, preset

from stoker.config.schema import ThermalConfig
from stoker.events.thermal import CapRecord, FrequencyPolicy, Reading, Sensor, Trip
from stoker.services.thermal import ThermalPorts, ThermalService
from stoker.units import Celsius, KiloHertz

STEPS = tuple(KiloHertz(khz) for khz in range(600_000, 1_500_001, 100_000))
TOP = STEPS[-1]
POLICY = FrequencyPolicy("policy0", (0, 1, 2, 3), STEPS[0], TOP, STEPS, True)
ZONE = Sensor("cpu-thermal", "zone", "", (Trip("critical", Celsius(110)),))


class Killed(BaseException):
    """SIGKILL in the middle of a write."""


class Slot:
    """``khz`` is the user's request, ``limit_khz`` the lowest of all others. ``write``: "" |
    refused | lies (done, but told refused) | dies before | dies after. ``late``: reads that
    still show the value of before, since the kernel applies a write in a thread of its own."""

    def __init__(self, owner_khz: KiloHertz = TOP) -> None:
        self.khz, self.limit_khz = owner_khz, TOP
        self.online, self.readable, self.write = True, True, ""
        self.late, self._stale = 0, (0, TOP)
        self.writes: list[KiloHertz] = []

    @property
    def effective(self) -> KiloHertz:
        return min(self.khz, self.limit_khz, TOP)

    def settle(self) -> None:
        """Time enough for the kernel: a process starts slower than that."""
        self._stale = (0, TOP)

    def discover(self) -> tuple[FrequencyPolicy, ...]:
        return (POLICY,) if self.online else ()

    def cap_khz(self, policy: FrequencyPolicy) -> KiloHertz | None:
        if not self.online or not self.readable:
            return None
        left, old_khz = self._stale
        if left:
            self._stale = (left - 1, old_khz)
            return old_khz
        return self.effective

    def set_cap(self, policy: FrequencyPolicy, cap: KiloHertz) -> bool:
        if self.write == "dies before":
            raise Killed
        if not self.online or self.write == "refused":
            return False
        self._stale = (self.late, self.effective)
        self.khz = cap
        self.writes.append(cap)
        if self.write == "dies after":
            raise Killed
        return self.write != "lies"

    def fault(self, policy: FrequencyPolicy) -> str:
        return "/sys/…/scaling_max_freq: EBUSY"


class Journal(MemoryJournal):
    """``fault``: "" | refused | lies (written, but told refused) | unreadable."""

    def __init__(self) -> None:
        super().__init__()
        self.fault = ""

    def load(self) -> tuple[CapRecord, ...]:
        if self.fault == "unreadable":
            raise OSError(5, "EIO")
        return super().load()

    def write(self, records: Sequence[CapRecord]) -> None:
        if self.fault != "refused":
            super().write(records)
        if self.fault in ("refused", "lies"):
            raise OSError(28, "no space left")

    def clear(self) -> None:
        if self.fault in ("refused", "lies"):
            raise OSError(28, "no space left")
        super().clear()


class Device:
    """Its sensor reads ``temperature_c``; the loop ticks by hand."""

    def __init__(self, owner_khz: KiloHertz = TOP) -> None:
        self.slot, self.journal, self.clock = Slot(owner_khz), Journal(), HandClock()
        self.temperature_c = 40.0
        ports = ThermalPorts(
            self, self.slot, self.journal, self.clock, "boot", rest=lambda _s: None
        )
        self.ports = ports
        self.service = self.new_service()

    def new_service(self) -> ThermalService:
        return ThermalService(ThermalConfig(), preset("raspberrypi-4"), self.ports)

    def discover(self) -> tuple[Sensor, ...]:
        return (ZONE,)

    def read(self, sensor: Sensor) -> Reading:
        return Reading(sensor.name, Celsius(self.temperature_c))

    def tick(self, seconds: float = 0.25) -> None:
        self.clock.now_s += seconds
        self.service.tick()

    def run(self, temperature_c: float, seconds: float = 30.0) -> None:
        """Goes there no faster than heat moves."""
        end_s = self.clock.now_s + seconds
        while self.clock.now_s < end_s:
            away_k = temperature_c - self.temperature_c
            self.temperature_c += max(-1.0, min(1.0, away_k))
            self.tick()

    def start(self) -> None:
        """A new stokerd; what the old one left is there still."""
        self.slot.settle()
        self.service = self.new_service()
        self.service._guard("restore caps", self.service._writer.restore)
        self.tick()

    def recover(self) -> None:
        """Every fault is over; one good start and stop."""
        slot = self.slot
        slot.online, slot.readable, slot.write, slot.late = True, True, "", 0
        self.journal.fault = ""
        self.temperature_c = 40.0
        self.start()
        self.service.stop()
