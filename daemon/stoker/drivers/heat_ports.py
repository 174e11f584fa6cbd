"""The drivers behind the heat loop, together. Apart from the rest of the wiring, so that giving
caps back after a crash needs none of it: no bus, no model, a start in a moment.
"""

from __future__ import annotations

from pathlib import Path

from stoker.config.schema import Config
from stoker.core import simulation
from stoker.drivers.cap_journal import FileCapJournal, read_boot_id
from stoker.drivers.clock import asleep_s
from stoker.drivers.cpufreq import Cpufreq
from stoker.drivers.firmware_flags import SysfsFirmware
from stoker.drivers.heat_inventory import SysfsInventory
from stoker.drivers.power_meters import SysfsPower
from stoker.drivers.state_file import JsonStateFile
from stoker.drivers.sysfs_thermal import SysfsThermal
from stoker.drivers.text_files import SysfsText
from stoker.drivers.thread_nice import favour_this_thread
from stoker.ports.system import Clock
from stoker.services.caps import ThermalPorts
from stoker.services.held_files import HeldFiles


def heat_root(config: Config) -> Path:
    """Where sensors and clocks are: /sys, another tree, or a simulated board's own."""
    if _simulated(config):
        return Path(config.daemon.runtime_dir) / "board"
    return Path(config.thermal.sysfs_root)


def _simulated(config: Config) -> bool:
    """By the prefix alone: giving caps back must not fail for a wrong setting behind it."""
    return config.thermal.board.startswith(simulation.PREFIX)


def thermal_ports(config: Config, clock: Clock) -> ThermalPorts:
    """Real drivers below the configured root; the journal lives in the runtime directory."""
    root = heat_root(config)
    return ThermalPorts(
        sensors=SysfsThermal(root),
        policies=Cpufreq(root),
        journal=FileCapJournal(Path(config.daemon.runtime_dir) / "caps.json"),
        clock=clock,
        boot_id=thermal_boot_id(config),
        meters=SysfsPower(root, clock.monotonic_s),
        firmware=SysfsFirmware(root),
        inventory=SysfsInventory(root, clock.monotonic_s),
        asleep_s=asleep_s,
        hasten=favour_this_thread,
    )


def held_files(config: Config) -> HeldFiles:
    """Governors and devfreq limits; their journal lies beside that of the caps."""
    return HeldFiles(
        SysfsText(heat_root(config)),
        JsonStateFile(Path(config.daemon.runtime_dir) / "held.json"),
        thermal_boot_id(config),
    )


def thermal_boot_id(config: Config) -> str:
    """A simulated board is no boot of this machine: its values must never be looked for here."""
    return f"{read_boot_id()}{'-simulated' if _simulated(config) else ''}"
