"""A minimal Debian as a tar, cached by content: what the packages are installed into.

It holds nothing but the essential packages and apt; what ours depend on lies in apt's own cache,
so that the installation itself needs no network. Another architecture runs under qemu-user.
"""

from __future__ import annotations

import hashlib
import platform
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.system.vm.image import SUITES, sources
from tests.system.vm.report import VmError, say

NATIVE: Final = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), "")
_BINFMT: Final = Path("/proc/sys/fs/binfmt_misc")
# ELF, 64 bit, little endian, AArch64. F: the interpreter is opened now, from outside the chroot.
_AARCH64: Final = (
    rb":stoker-aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
    rb":\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
    rb":/usr/bin/qemu-aarch64-static:F"
)
# Fills apt's cache without installing anything, and keeps services from being started.
_CUSTOMIZE: Final = """\
set -eu
printf '#!/bin/sh\\nexit 101\\n' >"$1/usr/sbin/policy-rc.d"
chmod 755 "$1/usr/sbin/policy-rc.d"
APT_CONFIG=$MMDEBSTRAP_APT_CONFIG apt-get -q -y --no-install-recommends --download-only \\
    install {depends}
"""


def prepare(cache: Path, debian: str, architecture: str, depends: frozenset[str]) -> Path:
    """The tar from the cache, or a new one. A minute when new; some under emulation."""
    suite = SUITES[debian]
    wanted = " ".join(sorted(depends))
    facts = [suite, architecture, sources(suite), wanted, _CUSTOMIZE]
    key = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]
    home = cache / "chroot"
    home.mkdir(parents=True, exist_ok=True)
    tar = home / f"{suite}-{architecture}-{key}.tar"
    if tar.is_file():
        tar.touch()
        return tar
    say(f"  a clean Debian {debian} for {architecture}: fetching …")
    older = sorted(
        home.glob(f"{suite}-{architecture}-*.tar"), key=lambda path: path.stat().st_mtime
    )
    for old in older[:-1]:
        old.unlink()
    with tempfile.TemporaryDirectory(prefix="making.", dir=home) as made:
        work = Path(made)
        work.chmod(0o755)  # apt's own user reads the sources
        (work / "sources.list").write_text(sources(suite))
        (work / "customize").write_text(_CUSTOMIZE.format(depends=wanted))
        log = cache / "logs" / f"chroot-{suite}-{architecture}.log"
        log.parent.mkdir(exist_ok=True)
        _bootstrap(work, suite, architecture, log)
        (work / "root.tar").rename(tar)
    return tar


def _bootstrap(work: Path, suite: str, architecture: str, log: Path) -> None:
    command = [
        "mmdebstrap", "--variant=minbase", f"--architectures={architecture}",
        "--skip=cleanup/apt", "--dpkgopt=path-exclude=/usr/share/locale/*",
        f'--customize-hook=sh {work}/customize "$1"',
        suite, str(work / "root.tar"), str(work / "sources.list"),
    ]  # fmt: skip
    with log.open("wb") as output:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False
        )
    if done.returncode != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise VmError(f"cannot make a clean {suite}: see {log}\n{tail}")


@contextmanager
def emulation(architecture: str) -> Iterator[None]:
    """The kernel starts programs of ``architecture``. As on any Debian with qemu-user-static; where
    no systemd-binfmt has done it, for the time of the test.
    """
    if architecture == NATIVE:
        yield
        return
    if not (_BINFMT / "register").exists():
        subprocess.run(["mount", "-t", "binfmt_misc", "none", _BINFMT], check=False)
    if any("aarch64" in entry.name for entry in _BINFMT.glob("*")):
        yield
        return
    try:
        (_BINFMT / "register").write_bytes(_AARCH64)
    except OSError as error:
        raise VmError(
            f"cannot run programs for {architecture}: {error}; on a machine of your own: "
            "apt install qemu-user-static, and start systemd-binfmt"
        ) from error
    try:
        yield
    finally:
        (_BINFMT / "stoker-aarch64").write_text("-1\n")
