"""One emulated machine: qemu with a private copy of the image, started, cut from power, cleaned.

Emulation alone (TCG) is enough and the default; the guest has no network device at all.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.system.vm.guest import Guest
from tests.system.vm.image import Image
from tests.system.vm.report import VmError

CPUS = 3
MEMORY_MIB = 1536
_BOOT_S = 300.0
_KERNEL_LINE = (
    "root=/dev/vda rw console=ttyS0 quiet loglevel=4 systemd.show_status=0 mitigations=off nokaslr "
    "random.trust_cpu=on net.ifnames=0 fsck.mode=auto fsck.repair=yes"
)


@dataclass(frozen=True, slots=True)
class Hardware:
    accelerator: str = "tcg"  # tcg | kvm
    cpus: int = CPUS
    memory_mib: int = MEMORY_MIB


class Machine:
    def __init__(self, image: Image, media: Path, home: Path, hardware: Hardware) -> None:
        self._image = image
        self._media = media
        self.home = home
        self._hardware = hardware
        self._disk = home / "disk.img"
        # A short path: a unix socket's name holds about 100 bytes.
        self._short = Path(tempfile.mkdtemp(prefix="stoker-vm."))
        self._qemu: subprocess.Popen[bytes] | None = None
        self._guest: Guest | None = None
        self._boots = 0

    def unbox(self) -> None:
        """A fresh disk: the image itself is never written."""
        subprocess.run(
            ["cp", "--reflink=auto", "--sparse=always", self._image.disk, self._disk], check=True
        )

    @property
    def guest(self) -> Guest:
        if self._guest is None:
            raise VmError("the machine is off")
        return self._guest

    @property
    def running(self) -> bool:
        return self._qemu is not None and self._qemu.poll() is None

    @property
    def emulated(self) -> bool:
        return self._hardware.accelerator == "tcg"

    def boot(self) -> float:
        """Seconds from power on to the agent's first word."""
        began = time.monotonic()
        self._boots += 1
        door = self._short / f"agent-{self._boots}"
        log = (self.home / f"qemu-{self._boots}.log").open("wb")
        self._qemu = subprocess.Popen(self._command(door), stdout=log, stderr=log)
        log.close()
        try:
            self._guest = Guest(door)
            self._guest.greeted(_BOOT_S)
        except VmError as error:
            told = Path(log.name).read_text(errors="replace").strip()[-400:]
            raise VmError(f"cannot boot: {error}; see {self._console()}\n{told}") from error
        return time.monotonic() - began

    def cut_power(self) -> None:
        """SIGKILL: what the guest had not written to the disk is lost."""
        if self._guest is not None:
            self._guest.close()
            self._guest = None
        if self._qemu is not None:
            self._qemu.kill()
            self._qemu.wait(30)
            self._qemu = None

    def shut_down(self) -> None:
        """As a person would; what does not end in time is cut off."""
        with contextlib.suppress(VmError):
            self.guest.start(["systemctl", "poweroff"])
            with contextlib.suppress(subprocess.TimeoutExpired):
                if self._qemu is not None:
                    self._qemu.wait(60)
        self.cut_power()

    def away(self, *, keep: bool) -> None:
        if keep and self.running:
            self.shut_down()
        self.cut_power()
        shutil.rmtree(self._short, ignore_errors=True)
        if not keep:
            with contextlib.suppress(FileNotFoundError):
                self._disk.unlink()

    def _console(self) -> Path:
        return self.home / f"console-{self._boots}.log"

    def _command(self, door: Path) -> list[str]:
        hardware = self._hardware
        multi = ",thread=multi" if self.emulated else ""
        return [
            "nice", "-n", "5", "qemu-system-x86_64", "-accel", hardware.accelerator + multi,
            "-machine", "q35", "-cpu", "max", "-smp", str(hardware.cpus),
            "-m", str(hardware.memory_mib), "-nodefaults", "-no-user-config", "-display", "none",
            "-nic", "none", "-serial", f"file:{self._console()}",
            "-kernel", str(self._image.kernel), "-initrd", str(self._image.initrd),
            "-append", _KERNEL_LINE,
            # A power cut kills qemu, not the host: what the guest wrote is in the host's memory.
            "-drive", f"file={self._disk},format=raw,if=virtio,cache=unsafe",
            "-drive", f"file={self._media},format=raw,if=virtio,readonly=on",
            "-device", "virtio-rng-pci", "-device", "virtio-serial-pci",
            "-chardev", f"socket,id=agent,path={door},server=on,wait=off",
            "-device", "virtserialport,chardev=agent,name=org.stoker.vm",
        ]  # fmt: skip
