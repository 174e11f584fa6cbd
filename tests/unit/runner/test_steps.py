"""Jobs and slots, turned by hand on the echo engine: no process, no socket, no clock."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from stoker.errors import EngineFailed
from stoker.events.prompt import Sampling
from stoker.events.runner import Delta, Generate, Load
from stoker.runner.echo import EchoEngine
from stoker.runner.engine import Outcome, Run
from stoker.runner.steps import MAX_WAITING, Steps


class Trouble(EchoEngine):
    """Ends chosen steps as the real engine may."""

    def __init__(self) -> None:
        super().__init__()
        self.endings: list[Outcome | None] = []
        self.batches: list[list[Run]] = []

    def step(self, runs: Sequence[Run]) -> Outcome:
        self.batches.append(list(runs))
        ending = self.endings.pop(0) if self.endings else Outcome.DONE
        if ending is None:
            raise EngineFailed("cannot run a step: broken")
        return super().step(runs) if ending is Outcome.DONE else ending


class Rig:
    def __init__(
        self,
        *,
        slots: int = 2,
        context_tokens: int = 100,
        batch_tokens: int = 64,
        cached_prefixes: int = 0,
    ) -> None:
        self.now_s = 1000.0
        self.engine = Trouble()
        self.out: list[Delta] = []
        self.steps = Steps(self.engine, self.out.extend, lambda: self.now_s)
        request = Load(
            "load",
            "m",
            "p",
            slots=slots,
            context_tokens=context_tokens,
            batch_tokens=batch_tokens,
            cached_prefixes=cached_prefixes,
        )
        self.steps.begin(request, self.engine.load(request, lambda _: True))
        self.engine.batches.clear()

    def ask(self, job: str, prompt: str, **settings: object) -> None:
        self.steps.accept(Generate(job, prompt=prompt, **settings))  # type: ignore[arg-type]

    def work(self, times: int = 60) -> None:
        for _ in range(times):
            self.steps.work()

    def text(self, job: str) -> str:
        return "".join(item.t for item in self.out if item.job == job)

    def reason(self, job: str) -> object:
        """finish_reason, or the code of the error; there must be exactly one last word."""
        (last,) = [i for i in self.out if i.job == job and (i.done or i.error)]
        assert [i for i in self.out if i.job == job][-1] is last
        return last.done["finish_reason"] if last.done else (last.error or {})["code"]


def test_two_jobs_share_each_step() -> None:
    rig = Rig()
    rig.ask("a", "one two three")
    rig.ask("b", "four five six")
    rig.work()
    assert (rig.text("a"), rig.text("b")) == ("one two three", "four five six")
    assert any(len(batch) == 2 and all(len(r.tokens) == 1 for r in batch)
               for batch in rig.engine.batches)  # fmt: skip


def test_third_job_waits_for_a_slot_in_order() -> None:
    rig = Rig(slots=1)
    for name in "abc":
        rig.ask(name, f"{name} {name}")
    assert (rig.steps.active, rig.steps.waiting) == (0, 3)
    rig.work()
    ends = [item.job for item in rig.out if item.done]
    assert ends == ["a", "b", "c"]


def test_cancel_frees_the_slot_and_says_so() -> None:
    rig = Rig(slots=1)
    rig.ask("a", "!long 50")
    rig.ask("b", "hello")
    rig.work(5)
    rig.steps.cancel("a")
    rig.work()
    assert (rig.reason("a"), rig.reason("b")) == ("cancelled", "stop")


def test_cancel_of_an_unknown_or_finished_job_says_nothing() -> None:
    rig = Rig()
    rig.steps.cancel("ghost")
    assert rig.out == []


def test_cancel_of_the_only_running_job_aborts_the_step() -> None:
    rig = Rig()
    rig.ask("a", "one two")
    rig.steps.doom("a")
    rig.steps.work()
    assert rig.engine.batches == [], "a doomed job must not cost a step"


def test_a_job_cancelled_before_it_is_looked_at_is_not_tokenized() -> None:
    rig = Rig()
    rig.engine.tokenize = None  # type: ignore[method-assign, assignment]
    rig.steps.doom("a")
    rig.ask("a", "one two three")
    rig.steps.cancel("a")
    assert rig.reason("a") == "cancelled"


def test_cancel_of_one_of_two_jobs_aborts_nothing() -> None:
    rig = Rig()
    rig.ask("a", "one two")
    rig.ask("b", "one two")
    rig.steps.doom("a")
    rig.work()
    assert rig.text("b") == "one two"


def test_aborted_step_is_repeated_without_loss() -> None:
    rig = Rig()
    rig.ask("a", "one two three four")
    rig.engine.endings = [Outcome.ABORTED, Outcome.DONE, Outcome.ABORTED, Outcome.DONE]
    rig.work()
    assert rig.text("a") == "one two three four"


def test_full_cache_ends_the_newest_job_only() -> None:
    rig = Rig()
    rig.ask("old", "one two three")
    rig.work(1)
    rig.ask("new", "four five six")
    rig.engine.endings = [Outcome.FULL]
    rig.work()
    assert rig.reason("new") == "busy"
    assert rig.text("old") == "one two three"


def test_broken_step_ends_its_jobs_and_leaves_the_waiting_ones() -> None:
    rig = Rig(slots=1)
    rig.ask("a", "one two")
    rig.ask("b", "three four")
    rig.engine.endings = [None]
    rig.work()
    assert (rig.reason("a"), rig.text("b")) == ("engine-failed", "three four")


def test_paused_job_keeps_its_place_and_goes_on_later() -> None:
    rig = Rig()
    rig.ask("a", "!long 20")
    rig.work(5)
    before = rig.text("a")
    rig.steps.pause("a", paused=True)
    rig.work(20)
    assert rig.text("a") == before
    assert not rig.steps.busy
    rig.steps.pause("a", paused=False)
    rig.work(30)
    assert rig.text("a").endswith("word19")


def test_deadline_counts_in_the_queue_too() -> None:
    rig = Rig(slots=1)
    rig.ask("a", "!long 60", deadline_ms=500)
    rig.ask("b", "hello", deadline_ms=400)
    rig.work(3)
    rig.now_s += 0.6
    rig.work()
    assert (rig.reason("a"), rig.reason("b")) == ("deadline-exceeded", "deadline-exceeded")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [({"max_tokens": 3}, "length"), ({"stop": (" two",)}, "stop-string"), ({}, "stop")],
)
def test_finish_reason_says_why_it_ended(settings: dict[str, object], reason: str) -> None:
    rig = Rig()
    rig.ask("a", "one two three four", **settings)
    rig.work()
    assert rig.reason("a") == reason
    assert ("two" in rig.text("a")) == (reason != "stop-string")


def test_generation_that_reaches_the_context_ends_with_length() -> None:
    rig = Rig(context_tokens=12)
    rig.ask("a", "!long 50")
    rig.work()
    assert rig.reason("a") == "length"
    (last,) = [item for item in rig.out if item.done]
    assert last.done is not None
    usage = last.done["usage"]
    assert usage == {
        "prompt_tokens": 2, "cached_tokens": 0, "completion_tokens": 10, "reasoning_tokens": 0,
    }  # fmt: skip


def test_prompt_over_the_context_is_refused_with_the_numbers() -> None:
    rig = Rig(context_tokens=5)
    rig.ask("a", "1 2 3 4 5 6")
    (item,) = rig.out
    assert item.error is not None
    assert item.error["code"] == "context-length-exceeded"
    assert item.error["details"] == {"prompt_tokens": 6, "context_tokens": 5}


@pytest.mark.parametrize(
    "settings",
    [
        {"prompt": ""},
        {"prompt": "x", "max_tokens": 0},
        {"prompt": "x", "max_tokens": 1 << 40},
        {"prompt": "x", "deadline_ms": -1},
        {"prompt": "x", "stop": ("",)},
        {"prompt": "x", "sampling": Sampling(temperature=-1.0)},
        {"prompt": "x", "sampling": Sampling(top_p=float("nan"))},
        {"prompt": "x", "sampling": Sampling(top_k=-5)},
        {"prompt": "x", "sampling": Sampling(seed=1 << 40)},
    ],
)
def test_bad_requests_end_at_once(settings: dict[str, object]) -> None:
    rig = Rig()
    rig.steps.accept(Generate("a", **settings))  # type: ignore[arg-type]
    assert rig.reason("a") == "invalid-request"
    assert rig.steps.waiting == 0


def test_queue_is_bounded() -> None:
    rig = Rig()
    for index in range(MAX_WAITING + 1):
        rig.ask(f"job{index}", "x")
    assert rig.reason(f"job{MAX_WAITING}") == "busy"


def test_long_prompt_is_fed_in_chunks_and_reports_progress() -> None:
    rig = Rig(context_tokens=4000, batch_tokens=64)
    rig.ask("a", " ".join(["w"] * 600), max_tokens=1)
    for _ in range(12):
        rig.now_s += 0.3
        rig.steps.work()
    marks = [item.p for item in rig.out if item.p]
    assert marks
    assert marks == sorted(marks)
    assert all(total == 600 for _, total in marks)
    assert len(marks) <= 12 * 0.3 / 0.5 + 1, "at most twice a second"
    assert all(sum(len(r.tokens) for r in b) <= 64 for b in rig.engine.batches)


def test_given_seed_is_reported_and_a_missing_one_is_drawn() -> None:
    rig = Rig()
    rig.ask("a", "x", sampling=Sampling(seed=7))
    rig.ask("b", "x")
    rig.work()
    seeds = {item.job: item.done["seed"] for item in rig.out if item.done}
    assert seeds["a"] == 7
    assert isinstance(seeds["b"], int)
    assert seeds["b"] >= 0


def test_shift_goes_on_in_a_full_context_and_tells_how_much_went() -> None:
    rig = Rig(context_tokens=12)
    rig.ask("a", "!long 50", overflow="shift", max_tokens=30)
    rig.work()
    (last,) = [item for item in rig.out if item.done]
    assert last.done is not None
    assert last.done["finish_reason"] == "length"
    assert last.done["usage"]["completion_tokens"] == 30  # type: ignore[index]
    assert last.done["shifted_tokens"] % 3 == 0  # type: ignore[operator]
    assert rig.text("a").endswith("word29")
    assert all(run.start + len(run.tokens) <= 12 for batch in rig.engine.batches for run in batch)


def test_full_cells_let_cached_prefixes_go_before_a_job_ends() -> None:
    rig = Rig(cached_prefixes=2)
    rig.ask("old", "one two three", scope="7")
    rig.work()
    rig.engine.endings = [Outcome.FULL]
    rig.ask("new", "four five six", scope="7")
    rig.work()
    assert rig.reason("new") == "stop"
    assert rig.text("new") == "four five six"
