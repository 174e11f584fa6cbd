"""Sequences that outlive their jobs, turned by hand on the echo engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from stoker.events.prompt import AdapterScale, Message, Shape
from stoker.events.runner import Adapter, Delta, Generate, Load
from stoker.runner.cache import SequenceCache
from stoker.runner.echo import EchoEngine
from stoker.runner.engine import Outcome, Run
from stoker.runner.steps import Steps

WORDS = "".join(f" w{n}" for n in range(40))  # the echo's answer goes on in the same tokens


class SmallMemory(EchoEngine):
    """Has as many cells as it says, and counts the tokens it evaluated."""

    evaluated = 0
    truncates = True

    def step(self, runs: Sequence[Run]) -> Outcome:
        facts = self.facts()
        held = sum(len(tokens) for tokens in self._held.values())
        fresh = sum(len(run.tokens) for run in runs)
        if facts is not None and held + fresh > facts.cells:
            return Outcome.FULL
        self.evaluated += fresh
        return super().step(runs)

    def truncate(self, seq: int, length: int) -> bool:
        return self.truncates and super().truncate(seq, length)


class Rig:
    def __init__(self, scratch: Path | None = None, **settings: object) -> None:
        self.now_s = 1000.0
        self.engine = SmallMemory()
        self.out: list[Delta] = []
        self.written: list[Callable[[], None]] = []
        cache = SequenceCache(self.engine, lambda: self.now_s, scratch, self._run)
        self.steps = Steps(self.engine, self.out.extend, lambda: self.now_s, cache)
        self.load(**settings)

    def load(self, **settings: object) -> None:
        wanted: dict[str, object] = {
            "slots": 2, "context_tokens": 200, "cached_prefixes": 3, "batch_tokens": 256,
            "state_bytes": 1 << 20,
        }  # fmt: skip
        request = Load("load", "m", "model", **(wanted | settings))  # type: ignore[arg-type]
        self.steps.leave()
        self.steps.begin(request, self.engine.load(request, lambda _: True))

    def _run(self, work: Callable[[], None]) -> None:
        work()

    def ask(self, prompt: str, scope: str = "7", **settings: object) -> dict[str, object]:
        """Runs one job to its end; its usage."""
        name = f"j{len(self.out)}"
        words: dict[str, object] = {"prompt": prompt, "raw": True, "scope": scope, "max_tokens": 3}
        if "messages" in settings:
            del words["prompt"], words["raw"]
        self.steps.accept(Generate(name, **(words | settings)))  # type: ignore[arg-type]
        for _ in range(300):
            self.steps.work()
        (last,) = [item for item in self.out if item.job == name and (item.done or item.error)]
        assert last.done is not None, last.error
        usage = last.done["usage"]
        assert isinstance(usage, dict)
        return {**usage, **last.done}

    def counts(self) -> dict[str, object]:
        counts = self.steps.counters()["prefix_cache"]
        assert isinstance(counts, dict)
        return counts


def test_the_second_turn_evaluates_only_what_is_new() -> None:
    rig = Rig()
    rig.ask(WORDS)
    before = rig.engine.evaluated
    usage = rig.ask(f"{WORDS} w0 w1 and more")
    assert usage["cached_tokens"] == 42
    assert usage["prompt_tokens"] == 44
    assert rig.engine.evaluated - before == 2 + 2  # two new ones; of the answer all but the last
    assert (rig.counts()["hits"], rig.counts()["reused_tokens"]) == (1, 42)


def test_the_same_prompt_again_leaves_one_token_to_evaluate() -> None:
    rig = Rig()
    rig.ask(WORDS)
    assert rig.ask(WORDS)["cached_tokens"] == 39


@pytest.mark.parametrize("scope", ["8", ""])
def test_another_scope_and_no_scope_reuse_nothing(scope: str) -> None:
    rig = Rig()
    rig.ask(WORDS)
    assert rig.ask(WORDS, scope=scope)["cached_tokens"] == 0


def test_what_had_no_scope_is_not_kept() -> None:
    rig = Rig()
    rig.ask(WORDS, scope="")
    assert rig.counts()["entries"] == 0


def test_other_adapters_reuse_nothing() -> None:
    rig = Rig(adapters=(Adapter("style", "file"),))
    rig.ask(WORDS)
    shape = Shape(adapters=(AdapterScale("style", 0.5),))
    assert rig.ask(WORDS, shape=shape)["cached_tokens"] == 0
    assert rig.ask(WORDS, shape=shape)["cached_tokens"] == 39


def test_without_room_for_prefixes_nothing_is_kept() -> None:
    rig = Rig(cached_prefixes=0)
    rig.ask(WORDS)
    assert rig.ask(WORDS)["cached_tokens"] == 0
    assert rig.counts()["caches"] is False


def test_a_public_system_prompt_is_shared_but_nothing_after_it() -> None:
    rig = Rig()
    rig.engine.render = (  # type: ignore[method-assign]
        lambda messages, **_tools: " ".join(m.content for m in messages)
    )
    public = "be kind and brief to all"
    for shared, cached in (((), 0), ((public,), 6)):
        rig.load(shared_prefixes=shared)
        talk = (Message("system", public), Message("user", "same words of both users"))
        rig.ask("", messages=talk)
        assert rig.ask("", messages=talk, scope="8")["cached_tokens"] == cached


def test_a_running_job_lends_its_prompt_to_its_owner() -> None:
    rig = Rig()
    rig.steps.accept(Generate("a", prompt=WORDS, raw=True, scope="7", max_tokens=30))
    for _ in range(5):
        rig.steps.work()
    assert rig.steps.active == 1
    assert rig.ask(WORDS)["cached_tokens"] == 39


def test_full_cells_let_prefixes_go_before_any_job_fails() -> None:
    rig = Rig(slots=1, context_tokens=100)
    for first in "abc":
        rig.ask(f"{first} {WORDS}")
    assert rig.counts()["evictions"], "three of 43 do not fit in 100 cells"
    rig.ask(" ".join(f"x{n}" for n in range(90)))
    assert isinstance(rig.counts()["cells"], int)


def test_a_cancelled_job_leaves_its_prefix() -> None:
    rig = Rig()
    rig.steps.accept(Generate("a", prompt=WORDS, raw=True, scope="7", max_tokens=30))
    for _ in range(5):
        rig.steps.work()
    rig.steps.cancel("a")
    assert rig.ask(WORDS)["cached_tokens"] == 39


def test_a_memory_that_cannot_truncate_starts_again() -> None:
    rig = Rig()
    rig.ask(WORDS)
    rig.engine.truncates = False
    usage = rig.ask(WORDS, keep="")
    assert usage["cached_tokens"] in (0, 39)  # a copy is whole; what is taken over is cut
    assert usage["completion_tokens"] == 3


def test_forgotten_conversations_and_scopes_are_gone(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.ask(WORDS, keep="talk")
    assert rig.steps.cache.rest()
    assert rig.steps.forget("7", "talk") == 2  # of the cells and of the disk
    assert list(tmp_path.iterdir()) == []
    assert rig.ask(WORDS)["cached_tokens"] == 0


def test_a_conversation_forgotten_while_it_is_answered_leaves_nothing(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.steps.accept(Generate("a", prompt=WORDS, raw=True, scope="7", keep="talk"))
    rig.steps.work()
    rig.steps.forget("7", "talk")
    for _ in range(100):
        rig.steps.work()
    assert not rig.steps.cache.rest()
    assert rig.counts()["entries"] == 0


def test_an_idle_conversation_is_saved_once_and_restored_after_a_restart(tmp_path: Path) -> None:
    rig = Rig(tmp_path, state_idle_ms=5000)
    rig.ask(WORDS, keep="talk")
    assert not rig.steps.cache.rest(), "not yet idle for long"
    rig.now_s += 5.0
    assert rig.steps.cache.rest()
    assert not rig.steps.cache.rest()
    again = Rig(tmp_path)
    assert again.steps.cache.owners() == [("7", "talk")]
    usage = again.ask(f"{WORDS} w0 w1 and more", keep="talk")
    assert usage["cached_tokens"] == 42
    assert again.counts()["restores"] == 1
    assert Rig(tmp_path).ask(WORDS, keep="other")["cached_tokens"] == 0
    assert Rig(tmp_path).ask(WORDS, scope="8", keep="talk")["cached_tokens"] == 0


def test_the_end_saves_what_was_not_idle_long_enough(tmp_path: Path) -> None:
    rig = Rig(tmp_path, state_idle_ms=60_000)
    rig.ask(WORDS, keep="talk")
    rig.steps.cache.settle(rig.now_s + 1.0)
    assert Rig(tmp_path).ask(WORDS, keep="talk")["cached_tokens"] == 39


def test_an_evicted_conversation_is_saved(tmp_path: Path) -> None:
    rig = Rig(tmp_path, cached_prefixes=1)
    rig.ask(WORDS, keep="talk")
    rig.ask(f"other {WORDS}")
    assert rig.counts()["saves"] == 1
    assert rig.ask(WORDS, keep="talk")["cached_tokens"] == 39


def test_an_evicted_conversation_does_not_wait_for_the_one_being_written(tmp_path: Path) -> None:
    rig = Rig(tmp_path, cached_prefixes=1)
    rig.ask(WORDS, keep="talk")
    rig._run = rig.written.append  # type: ignore[method-assign,assignment]
    rig.steps.cache._states._run = rig._run  # type: ignore[union-attr]
    rig.ask(f"other {WORDS}", keep="more")
    rig.ask(f"third {WORDS}")
    assert len(rig.written) == 1
    assert rig.counts()["evicted_unsaved"] == 1
    rig.written[0]()
    assert rig.counts()["saves"] == 1


def test_the_cells_are_preferred_to_the_disk(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.ask(WORDS, keep="talk")
    rig.steps.cache.rest()
    rig.ask(WORDS, keep="talk")
    assert rig.counts()["restores"] == 0


def test_a_state_of_another_model_waits_for_it(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.ask(WORDS, keep="talk")
    rig.steps.cache.rest()
    other = Rig(tmp_path)
    request = Load("l", "m2", "other", slots=1, cached_prefixes=1, state_bytes=1 << 20)
    other.steps.leave()
    other.steps.begin(request, other.engine.load(request, lambda _: True))
    assert other.ask(WORDS, keep="talk")["cached_tokens"] == 0
    assert len(Rig(tmp_path).steps.cache.owners()) >= 1
    assert Rig(tmp_path).ask(WORDS, keep="talk")["cached_tokens"] == 39


def test_a_state_the_engine_does_not_take_is_removed_and_the_job_runs(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.ask(WORDS, keep="talk")
    rig.steps.cache.rest()
    again = Rig(tmp_path)
    again.engine.restore = lambda seq, state: False  # type: ignore[method-assign]
    assert again.ask(WORDS, keep="talk")["cached_tokens"] == 0
    assert again.counts()["states_dropped"] == 1
    assert list(tmp_path.iterdir()) == []
