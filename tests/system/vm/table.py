"""The table of steps: what a step is, which run, in which order, and what the print shows.

Pure but for ``run_steps``, which calls the steps and reads the clock. A later issue adds its
steps by a module with a tuple ``STEPS`` and a line in steps.py.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from tests.system.vm.report import Miss, VmError

Verdict = Literal["PASS", "MISS", "SKIP"]
F = TypeVar("F")


@dataclass(frozen=True, slots=True)
class Step(Generic[F]):
    """``run`` gives a short fact for the table or raises Miss. ``needs``: steps before it.
    ``machine``: steps of another name run at the same time in a machine of their own."""

    name: str
    what: str
    run: Callable[[F], str]
    needs: tuple[str, ...] = ()
    machine: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    name: str
    what: str
    verdict: Verdict
    seconds: float
    fact: str


def chosen(steps: Sequence[Step[F]], names: Iterable[str], *, needs: bool = True) -> list[Step[F]]:
    """The named steps and, unless a kept disk has it, all they need, in the table's order."""
    known = {step.name: step for step in steps}
    wanted = [name for name in names if name]
    if not wanted:
        return list(steps)
    unknown = sorted(set(wanted) - set(known))
    if unknown:
        raise VmError(f"cannot run {', '.join(unknown)}: no such step; --list shows them")
    picked: set[str] = set()
    while wanted:
        name = wanted.pop()
        if name not in picked:
            picked.add(name)
            wanted.extend(known[name].needs if needs else ())
    return [step for step in steps if step.name in picked]


def by_machine(steps: Sequence[Step[F]], picked: Sequence[Step[F]]) -> dict[str, list[Step[F]]]:
    """What each machine runs: its own of the picked steps with all they need. A machine that
    would only do what another one needs and does as well is left out."""
    groups: dict[str, list[Step[F]]] = {}
    for name in dict.fromkeys(step.machine for step in picked):
        groups[name] = chosen(steps, [step.name for step in picked if step.machine == name])
    sets = {name: {step.name for step in group} for name, group in groups.items()}
    return {
        name: group
        for name, group in groups.items()
        if not any(sets[name] < other for other in sets.values())
    }


def run_steps(
    steps: Sequence[Step[F]], field: F, tell: Callable[[str], None],
    missed: Callable[[str], None],
) -> list[Outcome]:  # fmt: skip
    """Runs all, whatever misses; a step whose needs missed is skipped, and counts as a miss."""
    outcomes: list[Outcome] = []
    passed: set[str] = set()
    names = {step.name for step in steps}
    for step in steps:
        began = time.monotonic()
        lacking = [need for need in step.needs if need in names and need not in passed]
        verdict: Verdict = "MISS"
        try:
            if lacking:
                verdict, fact = "SKIP", f"needs {', '.join(lacking)}"
            else:
                fact, verdict = step.run(field), "PASS"
        except Miss as miss:
            fact = str(miss)
        except VmError as error:
            fact = f"the machine: {error}"
        if verdict == "PASS":
            passed.add(step.name)
        outcome = Outcome(step.name, step.what, verdict, time.monotonic() - began, fact)
        outcomes.append(outcome)
        tell(line(outcome))
        if verdict == "MISS":
            missed(step.name)
    return outcomes


def in_time(outcomes: Sequence[Outcome], limit_s: float) -> list[Outcome]:
    """A miss where the steps took longer together: a test that takes too long is not run."""
    spent_s = sum(outcome.seconds for outcome in outcomes)
    if spent_s <= limit_s:
        return []
    fact = f"the steps took {spent_s / 60:.1f} min, more than {limit_s / 60:g}"
    return [Outcome("in-time", "all steps within the limit", "MISS", 0.0, fact)]


def line(outcome: Outcome) -> str:
    """One row; a miss's reason goes below it, whole."""
    head = f"{outcome.verdict}  {outcome.name:<18}{outcome.seconds:6.1f} s  {outcome.what}"
    if not outcome.fact:
        return head
    return head + "\n" + textwrap.indent(outcome.fact, " " * 8)


def render(outcomes: Sequence[Outcome]) -> str:
    """The table at the end: a row a step, then the sums."""
    rows = [
        f"{o.verdict}  {o.name:<18}{o.seconds:7.1f} s  {o.fact.partition(chr(10))[0][:110]}"
        for o in outcomes
    ]
    counts = {v: sum(o.verdict == v for o in outcomes) for v in ("PASS", "MISS", "SKIP")}
    total_s = sum(o.seconds for o in outcomes)
    sums = ", ".join(f"{n} {v}" for v, n in counts.items() if n)
    return "\n".join([*rows, "-" * 72, f"{sums} in {total_s / 60:.1f} min"])
