"""Shaped jobs on the echo engine, turned by hand: budgets, calls, adapters, vectors."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from types import SimpleNamespace

import pytest

from stoker.errors import InsufficientMemory
from stoker.events.prompt import AdapterScale, Message, Shape
from stoker.events.runner import Adapt, Adapter, Answer, Delta, Embed, Event, Failed, Generate, Load
from stoker.runner.adapter_lanes import AdapterLanes
from stoker.runner.desk import MAX_EMBED_TOKENS, MAX_TEXTS, Desk
from stoker.runner.echo import EchoEngine
from stoker.runner.engine import Outcome, Run
from stoker.runner.grammar_rules import Grammar
from stoker.runner.steps import Steps

CALL = '<tool_call>{"name":"add","arguments":{"a":1}}</tool_call>'
TOOLS = json.dumps([{"type": "function", "function": {"name": "add"}}])


class Noting(EchoEngine):
    """Notes what shaped jobs ask of it."""

    def __init__(self) -> None:
        super().__init__()
        self.bound: list[int] = []
        self.acting: Sequence[tuple[str, float]] = ()
        self.steps: list[tuple[Sequence[tuple[str, float]], list[int]]] = []

    def constrain(self, seq: int, grammar: Grammar) -> None:
        assert grammar.rules
        self.bound.append(seq)

    def adapt(self, adapters: Sequence[tuple[str, float]]) -> None:
        self.acting = adapters

    def step(self, runs: Sequence[Run]) -> Outcome:
        self.steps.append((self.acting, [run.seq for run in runs]))
        return super().step(runs)


class Rig:
    def __init__(self) -> None:
        self.engine = Noting()
        self.out: list[Delta] = []
        self.steps = Steps(self.engine, self.out.extend, lambda: 0.0)
        adapters = (Adapter("one", "/1"), Adapter("two", "/2"))
        load = Load("l", "m", "p", slots=4, context_tokens=200, batch_tokens=64, adapters=adapters)
        self.steps.begin(load, self.engine.load(load, lambda _: True))
        self.engine.steps.clear()

    def run(self, *requests: Generate) -> None:
        for request in requests:
            self.steps.accept(request)
        for _ in range(200):
            self.steps.work()

    def last(self, job: str) -> Delta:
        return [delta for delta in self.out if delta.job == job][-1]

    def usage(self, job: str) -> Mapping[str, int]:
        done = self.last(job).done
        assert done is not None
        return done["usage"]  # type: ignore[return-value]

    def said(self, job: str) -> tuple[str, str]:
        mine = [delta for delta in self.out if delta.job == job]
        return "".join(d.t for d in mine), "".join(d.r for d in mine)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_reasoning_ends_at_its_budget_and_the_answer_goes_on(rig: Rig) -> None:
    shape = Shape(reasoning_tokens=2)
    rig.run(Generate("j", prompt="!think it is so", shape=shape))
    answer, reasoning = rig.said("j")
    assert reasoning.startswith("hm,")
    assert "well" not in reasoning  # the model's own third word comes too late
    assert answer.endswith("it is so")
    assert rig.usage("j")["reasoning_tokens"] <= 4
    assert rig.usage("j")["completion_tokens"] > rig.usage("j")["reasoning_tokens"]


def test_a_budget_that_is_not_reached_changes_nothing(rig: Rig) -> None:
    rig.run(
        Generate("free", prompt="!think it is so"),
        Generate("wide", prompt="!think it is so", shape=Shape(reasoning_tokens=50)),
    )
    assert rig.said("free") == rig.said("wide")
    assert rig.usage("free") == rig.usage("wide")


def test_a_grammar_waits_for_the_end_of_reasoning(rig: Rig) -> None:
    """Also when the model would end without an answer: one is owed."""
    shape = Shape(grammar='root ::= "x"')
    rig.steps.accept(Generate("j", prompt="<think>", raw=True, shape=shape))
    rig.steps.work()
    assert rig.engine.bound == []
    rig.run()
    assert len(rig.engine.bound) == 1
    rig.run(Generate("k", prompt="at once", shape=shape))
    assert len(rig.engine.bound) == 2


def test_calls_leave_the_text_and_name_the_finish(rig: Rig) -> None:
    messages = (Message("user", f"fine {CALL}"),)
    for choice, calls in (("auto", 1), ("none", 0)):
        shape = Shape(tools=TOOLS, tool_choice=choice)
        rig.run(Generate(choice, messages=messages, shape=shape))
        mine = [call for d in rig.out if d.job == choice for call in d.tools]
        done = rig.last(choice).done
        assert len(mine) == calls
        assert done is not None
        assert done["finish_reason"] == ("tool-calls" if calls else "stop")
        assert ("tool_call" in rig.said(choice)[0]) is not bool(calls)
    assert len({call.id for d in rig.out for call in d.tools}) == 1


def test_likelihoods_come_for_answer_tokens_only(rig: Rig) -> None:
    rig.run(Generate("j", prompt="!think one two", shape=Shape(logprobs=1)))
    content = [item for d in rig.out if d.lp for item in d.lp["content"]]  # type: ignore[attr-defined]
    assert [item["token"] for item in content] == [" one", " two"]
    assert content[0]["bytes"] == list(b" one")
    assert content[0]["top_logprobs"][0]["logprob"] == 0.0


@pytest.mark.parametrize(
    ("shape", "code"),
    [
        (Shape(schema="{", grammar=""), "grammar-invalid"),
        (Shape(grammar="root ::="[:4]), "grammar-invalid"),
        (Shape(schema="{}", grammar='root ::= "a"'), "invalid-request"),
        (Shape(tools="{"), "invalid-request"),
        (Shape(tools=TOOLS, tool_choice="sub"), "invalid-request"),
        (Shape(tools=TOOLS, tool_choice="required", schema="{}"), "invalid-request"),
        (Shape(logprobs=21), "invalid-request"),
        (Shape(adapters=(AdapterScale("three"),)), "invalid-request"),
        (Shape(adapters=(AdapterScale("one", math.nan),)), "invalid-request"),
    ],
)
def test_a_shape_that_makes_no_sense_is_refused_before_it_runs(
    rig: Rig, shape: Shape, code: str
) -> None:
    rig.run(Generate("j", prompt="x", shape=shape))
    error = rig.last("j").error
    assert error is not None
    assert error["code"] == code
    assert rig.engine.steps == []


def test_jobs_of_different_adapters_never_share_a_step_and_all_get_on(rig: Rig) -> None:
    shapes = {
        "plain": Shape(),
        "off": Shape(adapters=(AdapterScale("two", 0.0),)),
        "one": Shape(adapters=(AdapterScale("one"),)),
        "both": Shape(adapters=(AdapterScale("two", 0.5), AdapterScale("one"))),
    }
    rig.run(*(Generate(job, prompt="!long 20", shape=shape) for job, shape in shapes.items()))
    assert all(rig.last(job).done for job in shapes)
    sets: dict[tuple[tuple[str, float], ...], set[int]] = {}
    for acting, seqs in rig.engine.steps:
        sets.setdefault(tuple(acting), set()).update(seqs)
    assert {key: len(seqs) for key, seqs in sets.items()} == {
        (): 2,
        (("/1", 1.0),): 1,
        (("/1", 1.0), ("/2", 0.5)): 1,
    }
    turns = [tuple(acting) for acting, _ in rig.engine.steps[:30]]
    assert all(len(set(turns[at : at + 3])) == 3 for at in range(24))  # one after the other


def test_one_kind_of_job_pays_nothing_for_lanes() -> None:
    lanes = AdapterLanes()
    running = [SimpleNamespace(adapters=()) for _ in range(3)]
    assert lanes.pick(running) is running  # type: ignore[arg-type]
    assert lanes.key == ()


class Room:
    """A desk with an engine that may run out of memory once."""

    def __init__(self) -> None:
        self.engine = EchoEngine()
        self.sent: list[Event] = []
        self.made_room = 0
        self.desk = Desk(self.engine, self.sent.append, dict, make_room=self._make_room)
        self.engine.load(Load("l", "m", "p", context_tokens=4096), lambda _: True)

    def _make_room(self) -> bool:
        self.made_room += 1
        return True

    def answer(self, *texts: str) -> Event:
        self.desk.handle(Embed("e", texts))
        while self.desk.busy:
            self.desk.work()
        (event,) = self.sent
        return event


def test_each_text_gets_a_vector_of_length_one() -> None:
    event = Room().answer("a b", "c", "something longer")
    assert isinstance(event, Answer)
    vectors = event.result["vectors"]
    assert isinstance(vectors, list)
    assert len(vectors) == 3
    assert all(math.hypot(*vector) == pytest.approx(1.0, abs=1e-5) for vector in vectors)
    assert event.result["tokens"] == 5


@pytest.mark.parametrize(
    ("texts", "code"),
    [
        ([], "invalid-request"),
        (["a"] * (MAX_TEXTS + 1), "invalid-request"),
        (["a", ""], "invalid-request"),
        (["a " * 5000], "context-length-exceeded"),
        (["a " * 4000] * 3, "request-too-large"),
    ],
)
def test_texts_out_of_bounds_are_refused(texts: list[str], code: str) -> None:
    event = Room().answer(*texts)
    assert isinstance(event, Failed)
    assert event.code == code
    assert MAX_EMBED_TOKENS == 8192


def test_a_full_cache_gives_way_to_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room()
    good = room.engine.embed
    monkeypatch.setattr(room.engine, "embed", _Once(InsufficientMemory("full"), good))
    assert isinstance(room.answer("a", "b"), Answer)
    assert room.made_room == 1


class _Once:
    def __init__(self, error: Exception, then: object) -> None:
        self._errors, self._then = [error], then

    def __call__(self, *args: object) -> object:
        if self._errors:
            raise self._errors.pop()
        return self._then(*args)  # type: ignore[operator]


def test_a_job_ends_under_the_adapter_that_it_began_with(rig: Rig) -> None:
    """Another file takes the name while it runs: jobs from then on get that one."""
    shape = Shape(adapters=(AdapterScale("one"),))
    rig.steps.accept(Generate("old", prompt="!long 6", shape=shape))
    rig.steps.work()
    rig.engine.adapters().take((Adapter("one", "/other"),))
    rig.run(Generate("new", prompt="!long 6", shape=shape))
    assert rig.last("old").done
    assert rig.last("new").done
    acting = {seq: key for key, seqs in rig.engine.steps for seq in seqs}
    assert sorted(key[0][0] for key in acting.values()) == ["/1", "/other"]
    assert rig.engine.adapters().reasons() == {"one": ""}


def test_adapters_are_taken_on_request_and_bad_ones_named() -> None:
    sent: list[Event] = []
    engine = EchoEngine()
    desk = Desk(engine, sent.append, dict)
    desk.handle(Adapt("q", (Adapter("a", "/x"),)))
    assert isinstance(sent[0], Failed)  # no model is loaded
    engine.load(Load("l", "m", "p"), lambda _: True)
    desk.handle(Adapt("q", (Adapter("a", "/x"), Adapter("b", "/unusable"))))
    assert sent[1:] == [Answer("q", {"unusable": {"b": "it is no adapter"}})]
