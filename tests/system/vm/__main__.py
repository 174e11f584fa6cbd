"""The field test: a Debian in an emulated machine, the packages installed by apt, a table of steps.

    python -m tests.system.vm [--debian 12|13] [--steps a,b] [--debs DIR] [--keep] [--resume]

Usually run by ``make vm``, which builds the packages first. Exit 0 only if every step passed.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import sys
import textwrap
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

from tests.system.vm import bundles, image, packages
from tests.system.vm.field import Field
from tests.system.vm.machine import Hardware, Machine
from tests.system.vm.report import VmError, say
from tests.system.vm.steps import STEPS
from tests.system.vm.table import Outcome, Step, by_machine, chosen, in_time, render, run_steps

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]

# What the guest finds in /media/stoker.
HARNESS = {
    "agent.py": HERE / "agent.py",
    "intruder.py": HERE / "intruder.py",
    "bench/simulated_board.py": ROOT / "bench/simulated_board.py",
    **{
        f"source/{file.relative_to(ROOT)}": file
        for file in sorted((ROOT / "debian/tests").iterdir())
    },
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make vm", description="Test the packages in an emulated Debian."
    )
    cache = os.environ.get("STOKER_CACHE") or "~/.cache/stoker"
    parser.add_argument("--debian", choices=sorted(image.SUITES), default="12")
    parser.add_argument(
        "--steps", default="", help="names, separated by commas; their needs run too"
    )
    parser.add_argument("--debs", type=Path, default=ROOT / "build/deb", help="where the .debs are")
    parser.add_argument("--cache", type=Path, default=Path(cache).expanduser())
    parser.add_argument("--accel", choices=("tcg", "kvm"), default="tcg", help="how qemu runs it")
    parser.add_argument("--keep", action="store_true", help="keep the disk when all is over")
    parser.add_argument(
        "--resume", action="store_true", help="go on with a kept disk: only the named steps run"
    )
    parser.add_argument(
        "--limit-min", type=float, default=25.0, metavar="MIN", help="all steps take longer: a miss"
    )
    parser.add_argument("--list", action="store_true", help="the steps, and nothing else")
    return parser


def _show(steps: Sequence[Step[Field]]) -> None:
    for step in steps:
        say(f"{step.name:<18}{step.what}")


def _dump(machine: Machine, name: str) -> None:
    """What a person needs to see why a step missed; at the end, all of it."""
    if not machine.running:
        return
    try:
        boots = "" if name == "end" else "-b"
        done = machine.guest.run(
            f"journalctl {boots} --no-pager -o short-monotonic -n 9000; "
            "systemctl --failed --no-pager; "
            "systemctl status --no-pager --full 'stoker*' || true",
            timeout_s=90,
        )
        log = machine.home / f"journal-{name}.log"
        log.write_text(done.out)
        say(f"        journal: {log}")
    except VmError as error:
        say(f"        no journal: {error}")


def _alone(home: Path) -> IO[bytes]:
    """Holds ``home`` for this run: a second one would write over the first one's disk."""
    held = (home / "lock").open("wb")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        held.close()
        raise VmError(f"cannot start: another field test is at work in {home}") from error
    return held


def _field_test(
    options: argparse.Namespace, groups: dict[str, list[Step[Field]]]
) -> dict[str, list[Outcome]]:
    """All machines at the same time; a disk that is kept or gone on with is that of one."""
    home = ROOT / "build/vm" / f"debian-{options.debian}"
    home.mkdir(parents=True, exist_ok=True)
    lock = _alone(home)
    for old in home.rglob("*.log"):
        old.unlink()
    began = time.monotonic()
    debs = packages.find(options.debs)
    made = image.prepare(options.cache, options.debian, debs.depends, home)
    media = packages.carry(debs, HARNESS | dict(bundles.prepare(options.cache)), options.cache)
    say(f"Debian {options.debian}, {', '.join(debs.names)} {debs.version}; logs in {home}")
    say(f"image and packages ready after {time.monotonic() - began:.0f} s")

    def work(name: str) -> list[Outcome]:
        own = home / name
        own.mkdir(exist_ok=True)
        machine = Machine(made, media, own, Hardware(options.accel))
        return _on_machine(options, machine, Field(machine, debs), groups[name], name)

    try:
        with ThreadPoolExecutor(len(groups)) as pool:
            return dict(zip(groups, pool.map(work, groups), strict=True))
    finally:
        lock.close()


def _on_machine(
    options: argparse.Namespace, machine: Machine, field: Field, steps: Sequence[Step[Field]],
    name: str,
) -> list[Outcome]:  # fmt: skip
    def tell(text: str) -> None:
        say(textwrap.indent(text, f"{name + ': ':10}") if name else text)

    try:
        if not options.resume:
            machine.unbox()
        return run_steps(steps, field, tell, lambda step: _dump(machine, step))
    finally:
        _dump(machine, "end")
        machine.away(keep=options.keep)


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    if options.list:
        _show(STEPS)
        return 0
    began = time.monotonic()
    try:
        names = options.steps.split(",") + (["boot"] if options.resume else [])
        picked = chosen(STEPS, names, needs=not options.resume)
        one = options.resume or options.keep
        found = _field_test(options, {"": picked} if one else by_machine(STEPS, picked))
    except VmError as error:
        sys.stderr.write(f"vm: {error}\n")
        return 2
    limit_s = options.limit_min * 60
    outcomes = [
        outcome for group in found.values() for outcome in (*group, *in_time(group, limit_s))
    ]
    say("\n" + render(outcomes))
    say(f"in all {(time.monotonic() - began) / 60:.1f} min")
    return 0 if all(outcome.verdict == "PASS" for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
