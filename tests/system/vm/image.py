"""Makes the guest: a minimal Debian as an ext4 image with its kernel beside it, cached by content.

mmdebstrap to a tar, then mke2fs -d: no mounts, no loop devices, no boot loader. The mirror is the
one the host's apt uses. The guest has no network; what the packages depend on is baked in.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.system.vm.report import VmError, say

SUITES = {"12": "bookworm", "13": "trixie"}
DISK_BYTES = 3 << 30

# What a small Debian device has, and what the steps look with.
_BASE = (
    "systemd-sysv", "dbus", "polkitd", "udev", "kmod", "linux-image-cloud-amd64", "initramfs-tools",
    "zstd", "python3", "iproute2", "procps", "libglib2.0-bin", "ca-certificates", "autopkgtest",
    "mosquitto", "openssl",
)  # fmt: skip

# Of no use to a test that boots and leaves, and slow under emulation.
_MASKED = (
    "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "fstrim.timer",
    "e2scrub_all.timer", "man-db.timer", "systemd-timesyncd.service", "getty@tty1.service",
    "serial-getty@ttyS0.service", "systemd-update-utmp.service", "e2scrub_reap.service",
    "systemd-networkd.service", "systemd-firstboot.service",
    "mosquitto.service",  # the fleet steps start one of their own
)  # fmt: skip

_AGENT_UNIT = """\
[Unit]
Description=Hands of the field test
RequiresMountsFor=/media/stoker
After=dbus.socket
[Service]
ExecStartPre=/bin/sh -c 'until test -e /dev/virtio-ports/org.stoker.vm; do sleep 0.2; done'
ExecStart=/usr/bin/python3 /media/stoker/agent.py
Restart=always
RestartSec=1
OOMScoreAdjust=-900
[Install]
WantedBy=multi-user.target
"""

_FSTAB = """\
/dev/vda / ext4 errors=remount-ro 0 1
/dev/vdb /media/stoker ext4 ro 0 0
"""

# Only what the disk needs: the early user space is unpacked by an emulated processor.
_EARLY = r"""set -eu
mkdir -p "$1/etc/initramfs-tools/conf.d"
printf 'MODULES=list\nCOMPRESS=zstd\nFSTYPE=ext4\n' >"$1/etc/initramfs-tools/conf.d/stoker-vm"
printf 'virtio_pci\nvirtio_blk\n' >"$1/etc/initramfs-tools/modules"
"""


@dataclass(frozen=True, slots=True)
class Image:
    """Files of one cached image."""

    disk: Path
    kernel: Path
    initrd: Path


def sources(suite: str) -> str:
    """One-line apt sources for ``suite``, from what the host's apt uses for Debian itself."""
    asked = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT) $(CODENAME)",
         "Created-By: Packages", "Origin: Debian"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    lines: list[str] = []
    for found in asked.stdout.splitlines():
        uri, release, component, codename = found.split()
        host_suite = codename.partition("-")[0]
        if component == "main" and not release.endswith("-backports"):
            lines.append(f"deb {uri} {release.replace(host_suite, suite)} main")
    if not lines:
        raise VmError("cannot find a Debian mirror: run apt-get update, then try again")
    return "\n".join(dict.fromkeys(lines)) + "\n"


def _customize() -> str:
    """The hook script that turns a Debian into the test's guest; $1 is its root."""
    masks = " ".join(_MASKED)
    return f"""set -eu
cat >"$1/etc/systemd/system/vm-agent.service" <<'EOF'
{_AGENT_UNIT}EOF
cat >"$1/etc/fstab" <<'EOF'
{_FSTAB}EOF
mkdir -p "$1/media/stoker" "$1/etc/systemd/system/multi-user.target.wants"
ln -s ../vm-agent.service "$1/etc/systemd/system/multi-user.target.wants/vm-agent.service"
for unit in {masks}; do ln -sf /dev/null "$1/etc/systemd/system/$unit"; done
chroot "$1" useradd --create-home --shell /bin/sh tester
chroot "$1" useradd --create-home --shell /bin/sh other
echo stoker-vm >"$1/etc/hostname"
printf '127.0.0.1 localhost\\n127.0.1.1 stoker-vm\\n' >"$1/etc/hosts"
rm -f "$1"/etc/apt/sources.list "$1"/etc/apt/sources.list.d/*
rm -f "$1/etc/apt/apt.conf.d/99mmdebstrap" "$1/etc/dpkg/dpkg.cfg.d/99mmdebstrap"
echo 'deb [trusted=yes] file:/media/stoker/debs ./' >"$1/etc/apt/sources.list.d/stoker.list"
mkdir -p "$1/etc/systemd/journald.conf.d"
printf '[Journal]\\nStorage=persistent\\nSyncIntervalSec=2s\\n' \\
    >"$1/etc/systemd/journald.conf.d/vm.conf"
"""


def prepare(cache: Path, debian: str, depends: frozenset[str], logs: Path) -> Image:
    """The image from the cache, or a new one. Takes two to four minutes when new."""
    suite = SUITES[debian]
    wanted = sorted({*_BASE, *depends})
    facts = [suite, sources(suite), *wanted, _EARLY, _customize(), str(DISK_BYTES)]
    key = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]
    home = cache / "vm" / f"{suite}-{key}"
    if not home.is_dir():
        say(f"  image of Debian {debian} ({suite}): building, two to four minutes …")
        for old in _older(cache / "vm", suite):
            shutil.rmtree(old)
        _build(home, suite, wanted, logs / f"image-{suite}.log")
    home.touch()
    return Image(home / "disk.img", home / "vmlinuz", home / "initrd")


def _older(folder: Path, suite: str) -> list[Path]:
    """All images of the suite but the newest: one for the last state of the sources stays."""
    return sorted(folder.glob(f"{suite}-*"), key=lambda path: path.stat().st_mtime)[:-1]


def _build(home: Path, suite: str, packages: list[str], log: Path) -> None:
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="making.", dir=home.parent) as made:
        work = Path(made)
        work.chmod(0o755)  # apt's own user reads the sources
        (work / "early").write_text(_EARLY)
        (work / "customize").write_text(_customize())
        (work / "sources.list").write_text(sources(suite))
        script = _script(work, suite, packages)
        with log.open("wb") as output:
            done = subprocess.run(["bash", "-c", script], stdout=output, stderr=output, check=False)
        if done.returncode != 0:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise VmError(f"cannot build the image of {suite}: see {log}\n{tail}")
        out = work / "out"
        out.mkdir()
        for name in ("disk.img", "vmlinuz", "initrd"):
            shutil.move(work / name, out / name)
        out.rename(home)


def _script(work: Path, suite: str, packages: list[str]) -> str:
    """Root or not: mmdebstrap finds its way; the second half needs at least fakeroot."""
    as_root = "" if os.geteuid() == 0 else "fakeroot -- "
    return f"""set -euo pipefail
cd {work}
mmdebstrap --variant=minbase --include={",".join(packages)} \
    --aptopt='Apt::Install-Recommends "false"' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --essential-hook='bash {work}/early "$1"' --customize-hook='bash {work}/customize "$1"' \
    {suite} root.tar sources.list
{as_root}bash -ec '
mkdir root
tar -C root -xf root.tar --numeric-owner
cp root/boot/vmlinuz-* vmlinuz
cp root/boot/initrd.img-* initrd
truncate -s {DISK_BYTES} disk.img
mke2fs -q -F -t ext4 -L root -d root disk.img
rm -rf root root.tar'
"""
