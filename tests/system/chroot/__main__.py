"""Installs the packages into a clean Debian, in a chroot, and tries them there.

    python -m tests.system.chroot [--arch amd64|arm64] [--debian 12|13] [--debs DIR]

Run by ``make chroot``, as root. Exit 0 only if every step passed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.system.chroot import debian
from tests.system.chroot.room import Room
from tests.system.chroot.site import Site
from tests.system.chroot.steps import STEPS, answer
from tests.system.chroot.steps_variants import VARIANTS
from tests.system.vm import packages
from tests.system.vm.image import SUITES
from tests.system.vm.report import VmError, expect, say
from tests.system.vm.table import Outcome, Step, render, run_steps

ROOT = Path(__file__).resolve().parents[3]
# What qemu plays, and the variant of llama.cpp that must be chosen on it: a Raspberry Pi 4, a
# Raspberry Pi 5 or RK3588, one that has all but SVE (Snapdragon X), and one that has everything.
BOARDS = {
    "arm64": (
        ("cortex-a72", "armv8.0_1"),
        ("cortex-a76", "armv8.2_2"),
        ("max,sve=off", "armv8.6_0"),
        ("max", "armv8.6_2"),
    ),
}

# What says nothing about a processor and takes minutes under qemu-user; "answer" is replaced.
_NATIVE = {"answer", "autopkgtest", "reconfigure"}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make chroot", description="Try the packages in a clean Debian, in a chroot."
    )
    cache = os.environ.get("STOKER_CACHE") or "~/.cache/stoker"
    parser.add_argument("--arch", choices=("amd64", "arm64"), default=debian.NATIVE)
    parser.add_argument("--debian", choices=sorted(SUITES), default="12")
    parser.add_argument("--debs", type=Path, default=ROOT / "build/deb", help="where the .debs are")
    parser.add_argument("--cache", type=Path, default=Path(cache).expanduser())
    return parser


def _steps(architecture: str) -> list[Step[Site]]:
    """All; of another architecture the answer comes once on each board that qemu can play."""
    if architecture == debian.NATIVE:
        known = [VARIANTS] if architecture == "amd64" else []
        return [*STEPS[:-1], *known, STEPS[-1]]
    boards = [
        Step(f"answer-{cpu}", f"on a {cpu} the model answers with {variant}", _on(cpu, variant),
             ("install",))
        for cpu, variant in BOARDS.get(architecture, ())
    ]  # fmt: skip
    steps = [step for step in STEPS if step.name not in _NATIVE]
    return [*steps[:-1], *boards, steps[-1]]


def _on(cpu: str, variant: str) -> Callable[[Site], str]:
    def run(site: Site) -> str:
        site.room.cpu = cpu
        fact = answer(site)
        expect(variant in fact, f"{variant} was not chosen: {fact}")
        return fact

    return run


def _test(options: argparse.Namespace) -> list[Outcome]:
    debs = packages.find(options.debs, options.arch)
    say(f"Debian {options.debian} for {options.arch}: {', '.join(debs.names)} {debs.version}")
    with debian.emulation(options.arch):
        tar = debian.prepare(options.cache, options.debian, options.arch, debs.depends)
        with tempfile.TemporaryDirectory(prefix="stoker-chroot.") as made:
            Path(made).chmod(0o755)
            room = Room.unpack(tar, Path(made) / "root")
            room.cpu = "" if options.arch == debian.NATIVE else "max"
            return run_steps(_steps(options.arch), Site(room, debs), say, lambda _name: None)


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    began = time.monotonic()
    try:
        outcomes = _test(options)
    except VmError as error:
        sys.stderr.write(f"chroot: {error}\n")
        return 2
    say("\n" + render(outcomes))
    say(f"in all {time.monotonic() - began:.0f} s")
    return 0 if all(outcome.verdict == "PASS" for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
