"""docs/peers-bugs.md against the tests it names, and the guards that have no better home."""

from __future__ import annotations

import ast
import re
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from stoker.events.inference import RunnerExit
from stoker.events.runner import Delta, Generate, Load
from stoker.runner.constraint import Constraint, Pieces
from stoker.runner.echo import EchoEngine
from stoker.runner.engine import Outcome, Run
from stoker.runner.gbnf import parse
from stoker.runner.steps import Steps

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/peers-bugs.md"
CLASSES_OF_THE_ISSUE_LIST = 34


def rows() -> list[list[str]]:
    found = [re.split(r" \| ", line.strip("| ")) for line in PAGE.read_text().splitlines()]
    return [cells for cells in found if len(cells) == 4 and cells[0].isdigit()]


def names_of_tests() -> set[str]:
    text = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    return set(re.findall(r"^(?:async )?def (test_\w+)\(", text, re.MULTILINE))


def test_every_class_has_a_row() -> None:
    numbers = [int(cells[0]) for cells in rows()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= CLASSES_OF_THE_ISSUE_LIST


def test_every_row_names_a_source_and_a_test_or_a_reason() -> None:
    for number, kind, source, here in rows():
        assert len(kind) > 10, number
        assert source.strip(), number
        assert re.search(r"`test_\w+`", here) or len(here.partition("Cannot happen: ")[2]) > 20, (
            f"row {number} says neither what guards it nor why it cannot happen"
        )


def test_every_test_that_is_named_is_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text()))
    assert named - names_of_tests() == set()


class OneSlot:
    """The runner's steps on an engine, turned by hand."""

    def __init__(self, engine: EchoEngine) -> None:
        self.out: list[Delta] = []
        self.steps = Steps(engine, self.out.extend, lambda: 1000.0)
        load = Load("load", "m", "p", slots=1, context_tokens=100, batch_tokens=64)
        self.steps.begin(load, engine.load(load, lambda _: True))

    def text(self, job: str) -> str:
        return "".join(item.t for item in self.out if item.job == job)

    def ended(self, job: str) -> bool:
        return any(item.job == job and (item.done or item.error) for item in self.out)


class Watched(EchoEngine):
    """Counts the calls that stop a step; ``during`` happens inside one."""

    aborts = 0
    during: Callable[[], None] = staticmethod(lambda: None)

    def step(self, runs: Sequence[Run]) -> Outcome:
        self.during()
        return super().step(runs)

    def raise_abort(self) -> None:
        self.aborts += 1


def test_a_waiting_job_that_is_cancelled_aborts_nobodys_step() -> None:
    engine = Watched()
    rig = OneSlot(engine)
    rig.steps.accept(Generate("a", prompt="one two three"))
    rig.steps.accept(Generate("b", prompt="never"))
    engine.during = lambda: rig.steps.doom("b")
    rig.steps.work()
    engine.during = lambda: None
    rig.steps.cancel("b")
    assert engine.aborts == 0
    for _ in range(20):
        rig.steps.work()
    assert rig.text("a") == "one two three"
    assert (rig.ended("b"), rig.text("b")) == (True, "")


def test_a_grammar_looks_at_the_drawn_token_and_not_at_the_vocabulary() -> None:
    looked: list[int] = []

    def piece(token: int) -> bytes:
        looked.append(token)
        return b"[" if token == 7 else b"x"

    def all_pieces() -> Pieces:
        raise AssertionError("the whole vocabulary was asked for")

    constraint = Constraint(parse('root ::= "["+'), piece, all_pieces, lambda: ())
    for _ in range(10):
        constraint.new_token()
        assert constraint.accept(7)
        assert not constraint.accept(8)
    assert looked == [7, 8] * 10


class Stubborn(EchoEngine):
    """As an NPU's runtime: one at a time, and what was begun is finished."""

    def raise_abort(self) -> None:
        pass

    def clear_abort(self) -> None:
        pass


def test_an_engine_of_one_slot_that_cannot_abort_serves_everybody() -> None:
    rig = OneSlot(Stubborn())
    for job in "abc":
        rig.steps.accept(Generate(job, prompt=f"{job} one two"))
    rig.steps.work()
    rig.steps.cancel("a")
    for _ in range(40):
        rig.steps.work()
    assert [rig.ended(job) for job in "abc"] == [True] * 3
    assert (rig.text("b"), rig.text("c")) == ("b one two", "c one two")


def test_a_build_for_another_processor_is_called_that() -> None:
    text = RunnerExit(signal=signal.SIGILL.value).text()
    assert "another processor" in text
    assert "processor" not in RunnerExit(signal=signal.SIGSEGV.value).text()


def test_llama_is_built_with_openmp_whose_wait_can_be_bounded() -> None:
    script = ROOT / ".ci/steps/llama.sh"
    if not script.exists():
        pytest.skip("a source package has no build steps")
    assert "-DGGML_OPENMP=ON" in script.read_text()


def test_nothing_reads_model_files_with_gguf_py() -> None:
    for folder in ("daemon", "ota", "bench"):
        for path in (ROOT / folder).rglob("*.py"):
            imported = {
                name.split(".")[0]
                for node in ast.walk(ast.parse(path.read_text()))
                for name in (
                    [alias.name for alias in node.names]
                    if isinstance(node, ast.Import)
                    else [node.module or ""]
                    if isinstance(node, ast.ImportFrom) and not node.level
                    else []
                )
            }
            assert "gguf" not in imported, path
