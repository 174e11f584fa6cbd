"""The peers of the delta benchmark, and how a child is measured: time, CPU time, peak memory.

bsdiff4 is in our own environment, xdelta3 and zstd are Debian's; detools and HDiffPatch (and
numpy, which makes the weights) live in an environment of their own in the cache, pinned by hash.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.peers import cache_dir

_HDIFFPATCH: Final = (
    "import hdiffpatch; one, two = (open(name, 'rb').read() for name in files[:2]); "
    "open(files[2], 'wb').write(hdiffpatch.CALL(one, two))"
)
# The kernel counts as a child's peak what its parent had when it was begun: we may have grown to
# hundreds of MB, so that a small process begins it.
_SPAWN: Final = """\
import json, os, sys, time
began = time.monotonic()
pid = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(pid, 0)
row = time.monotonic() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
os.write(int(sys.argv[1]), json.dumps(row).encode())
sys.exit(os.waitstatus_to_exitcode(status))
"""
ROOT: Final = Path(__file__).resolve().parent.parent
LOCK: Final = ROOT / ".ci" / "lock" / "bench.txt"


@dataclass(frozen=True, slots=True)
class Cost:
    """What a child took and said. ``peak_bytes`` is the most that was resident."""

    seconds: float
    cpu_s: float
    peak_bytes: int
    said: bytes


@dataclass(frozen=True, slots=True)
class Peer:
    """Commands in which {old}, {new}, {delta} and {out} stand for files."""

    name: str
    make: tuple[str, ...]
    apply: tuple[str, ...]
    needs: str = ""


def peers_python() -> Path:
    """The interpreter of the peers' environment; made on first use, like llama-bench."""
    work = cache_dir() / "delta-peers"
    python = work / "bin" / "python"
    stamp = work / "locked"
    if python.is_file() and stamp.is_file() and stamp.read_text() == LOCK.read_text():
        return python
    venv.create(work, with_pip=True, clear=True)
    entries = re.split(r"\n(?=\S)", LOCK.read_text())
    builders = work / "builders.txt"  # detools is built here, and with pinned tools
    builders.write_text(
        "\n".join(e for e in entries if re.match(r"(packaging|setuptools|wheel)==", e))
    )
    for lock in (builders, LOCK):
        command = [
            str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
            "--no-build-isolation", "--require-hashes", "-r", str(lock),
        ]  # fmt: skip
        if subprocess.run(command, check=False).returncode != 0:
            raise SystemExit(f"cannot prepare the peers: pip cannot install {lock}")
    stamp.write_text(LOCK.read_text())
    return python


def peers() -> list[Peer]:
    """Those that are here; the others are named on standard error."""
    theirs = str(peers_python())
    wanted = [
        Peer(
            "bsdiff4",
            _python(sys.executable, "import bsdiff4; bsdiff4.file_diff(*files)", "new", "delta"),
            _python(sys.executable, "import bsdiff4; bsdiff4.file_patch(*files)", "out", "delta"),
        ),
        Peer(
            "xdelta3",
            _words("xdelta3 -e -9 -f -B 2147483648 -s {old} {new} {delta}"),
            _words("xdelta3 -d -f -B 2147483648 -s {old} {delta} {out}"),
            "xdelta3",
        ),
        Peer(
            "zstd --patch-from",
            _words("zstd -qf -19 --long=31 -T0 --patch-from={old} {new} -o {delta}"),
            _words("zstd -qfd --long=31 --patch-from={old} {delta} -o {out}"),
            "zstd",
        ),
        Peer(
            "detools",
            (theirs, *_words("-m detools create_patch -c bz2 {old} {new} {delta}")),
            (theirs, *_words("-m detools apply_patch {old} {delta} {out}")),
        ),
        Peer(
            "HDiffPatch",
            _python(theirs, _HDIFFPATCH.replace("CALL", "diff"), "new", "delta"),
            _python(theirs, _HDIFFPATCH.replace("CALL", "apply"), "delta", "out"),
        ),
    ]
    missing = [peer for peer in wanted if peer.needs and shutil.which(peer.needs) is None]
    for peer in missing:
        print(f"not here: {peer.name} (package {peer.needs})", file=sys.stderr)
    return [peer for peer in wanted if peer not in missing]


def _words(line: str) -> tuple[str, ...]:
    return tuple(line.split())


def _python(interpreter: str, code: str, second: str, third: str) -> tuple[str, ...]:
    start = f"import sys; files = sys.argv[1:]; {code}"
    return (interpreter, "-c", start, "{old}", f"{{{second}}}", f"{{{third}}}")


def run(command: Sequence[str], files: Mapping[str, Path], *, one_core: bool = False) -> Cost:
    """Runs a child with its words filled in; SystemExit when it fails."""
    words = [word.format(**files) for word in command]
    cores = os.sched_getaffinity(0)
    if one_core:
        os.sched_setaffinity(0, {max(cores)})
    heard, told = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", _SPAWN, str(told), *words],
            stdout=subprocess.PIPE, pass_fds=[told],
        )  # fmt: skip
    finally:
        os.sched_setaffinity(0, cores)
        os.close(told)
    said = process.communicate()[0]
    with os.fdopen(heard) as report:
        text = report.read()
    if process.returncode != 0:
        raise SystemExit(f"cannot measure: {' '.join(words)[:200]} ended with {process.returncode}")
    seconds, cpu_s, peak_bytes = json.loads(text)
    return Cost(seconds, cpu_s, peak_bytes, said)
