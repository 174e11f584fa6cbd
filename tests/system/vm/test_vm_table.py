"""The table of the field test, without a machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.system.vm.__main__ import _alone
from tests.system.vm.report import Miss, VmError
from tests.system.vm.steps import STEPS
from tests.system.vm.table import Outcome, Step, by_machine, chosen, in_time, render, run_steps


def _fine(_: object) -> str:
    return "fine"


def _missing(_: object) -> str:
    raise Miss("not there")


def _run(steps: list[Step[object]]) -> list[tuple[str, str]]:
    missed: list[str] = []
    outcomes = run_steps(steps, object(), lambda _: None, missed.append)
    assert missed == [o.name for o in outcomes if o.verdict == "MISS"]
    return [(o.name, o.verdict) for o in outcomes]


def test_a_chosen_step_brings_what_it_needs_in_the_tables_order() -> None:
    steps = [
        Step("a", "", _fine),
        Step("b", "", _fine),
        Step("c", "", _fine, ("a",)),
        Step("d", "", _fine, ("c",)),
    ]
    assert [step.name for step in chosen(steps, ["d"])] == ["a", "c", "d"]
    assert chosen(steps, [""]) == steps


def test_steps_of_another_machine_take_along_what_they_need_and_no_machine_only_prepares() -> None:
    steps = [
        Step("boot", "", _fine),
        Step("ask", "", _fine, ("boot",)),
        Step("update", "", _fine, ("boot",), "updates"),
    ]

    def names(*wanted: str) -> dict[str, list[str]]:
        found = by_machine(steps, chosen(steps, wanted))
        return {machine: [step.name for step in group] for machine, group in found.items()}

    assert names() == {"": ["boot", "ask"], "updates": ["boot", "update"]}
    assert names("update") == {"updates": ["boot", "update"]}
    assert names("ask") == {"": ["boot", "ask"]}


def test_an_unknown_step_is_refused() -> None:
    with pytest.raises(VmError, match="no such step"):
        chosen([Step("a", "", _fine)], ["b"])


def test_what_needs_a_missed_step_is_skipped_and_the_rest_runs() -> None:
    steps = [
        Step("a", "", _missing),
        Step("b", "", _fine, ("a",)),
        Step("c", "", _fine, ("b",)),
        Step("d", "", _fine),
    ]
    assert _run(steps) == [("a", "MISS"), ("b", "SKIP"), ("c", "SKIP"), ("d", "PASS")]


def test_a_dead_machine_is_a_miss_of_its_step() -> None:
    def dead(_: object) -> str:
        raise VmError("gone")

    assert _run([Step("a", "", dead)]) == [("a", "MISS")]


def test_the_print_counts_every_verdict() -> None:
    steps = [Step("a", "", _missing), Step("b", "", _fine, ("a",)), Step("c", "", _fine)]
    text = render(run_steps(steps, object(), lambda _: None, lambda _: None))
    assert "1 PASS, 1 MISS, 1 SKIP" in text


def test_steps_that_take_too_long_together_are_a_miss() -> None:
    outcomes = [Outcome("a", "", "PASS", 40.0, ""), Outcome("b", "", "PASS", 30.0, "")]
    assert in_time(outcomes, 70.0) == []
    (late,) = in_time(outcomes, 60.0)
    assert late.verdict == "MISS"
    assert "1.2 min, more than 1" in late.fact


def test_names_are_unique_and_needs_come_first() -> None:
    seen: set[str] = set()
    for step in STEPS:
        assert step.name not in seen
        assert set(step.needs) <= seen
        seen.add(step.name)


def test_a_second_run_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    first = _alone(tmp_path)
    with pytest.raises(VmError, match="another field test"):
        _alone(tmp_path)
    first.close()
    _alone(tmp_path).close()
