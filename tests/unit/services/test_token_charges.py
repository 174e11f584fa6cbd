"""Who pays for which tokens: the runner's steps and its gathering between a job and its bill."""

from __future__ import annotations

import os

import pytest
from tests.unit.services.inference_rig import ALICE, Rig, config
from tests.unit.services.test_inference_vectors import answer, embed

from stoker import errors
from stoker.core import scheduler
from stoker.events.inference import Ask, Delivery, Owner, Quota, Standing
from stoker.events.prompt import Shape
from stoker.events.runner import Cancel, Delta, Deltas, Embed, Failed, Generate, Load
from stoker.runner.echo import EchoEngine
from stoker.runner.gather import Gather
from stoker.runner.steps import Steps

STEP_S = 0.006
MINUTE = 6000
TOOLS = '[{"type":"function","function":{"name":"sum","parameters":{"type":"object"}}}]'


class Sixty:
    """As many tokens a minute for everybody."""

    def of(self, uid: int) -> Standing:
        return Standing(quota=Quota(tokens_per_minute=MINUTE))


class Whole(Rig):
    """The inference loop with the steps of a real runner behind its link, and quick steps."""

    def __init__(self) -> None:
        super().__init__(config(max_tokens=5000))
        self.service._standings = Sixty()
        self.start()
        engine, self.gather, self.seen = EchoEngine(), Gather(), 0
        self.steps = Steps(engine, self.gathered, lambda: self.clock.now_s)
        request = Load("load", "m", "p", slots=2, context_tokens=4096, batch_tokens=64)
        self.steps.begin(request, engine.load(request, lambda _: True))
        self.seen = len(self.runner.sent)

    def gathered(self, items: list[Delta]) -> None:
        self.pass_on(self.gather.add(items, self.clock.now_s))

    def pass_on(self, items: tuple[Delta, ...]) -> None:
        if items:
            self.runner.say(Deltas(items))

    def work(self, steps: int) -> None:
        """Of the runner, each quicker than a frame; stokerd hears of it in between."""
        for _ in range(steps):
            for request in self.runner.sent[self.seen :]:
                if isinstance(request, Generate):
                    self.steps.accept(request)
                elif isinstance(request, Cancel):
                    self.steps.cancel(request.job)
            self.seen = len(self.runner.sent)
            self.steps.work()
            self.clock.advance(STEP_S)
            self.turn(1)
        self.pass_on(self.gather.take(self.clock.now_s) if not self.steps.active else ())
        self.turn()

    def charged(self, uid: int = 1000) -> float:
        """Off the bucket, which fills again meanwhile: time is stopped for the look."""
        self.loop.desk.queue.step(scheduler.Tick())
        return self.loop.desk.queue.state.lanes[1].tag(uid)

    @property
    def debt(self) -> float:
        bucket = self.loop.desk.queue.state.buckets[1000]
        return bucket.per_minute - bucket.level


@pytest.fixture
def rig() -> Whole:
    return Whole()


def test_who_hangs_up_pays_for_every_token_that_was_made(rig: Whole) -> None:
    asked = rig.ask("!long 3000")
    rig.work(201)
    assert rig.service.cancel(asked.id, "enough") is not None
    rig.turn()
    rig.work(3)
    made = rig.steps.sampled
    assert 190 < made < 3000
    filled = rig.steps._read
    assert rig.charged() == pytest.approx(made + filled / 4)
    assert rig.loop.desk.queue.totals.completion == made
    assert rig.loop.desk.queue.totals.prompt == filled
    assert not rig.loop.desk.queue._late


def test_a_prompt_is_paid_for_though_nobody_waited_for_a_word(rig: Whole) -> None:
    asked = rig.ask(" ".join(["word"] * 1000))
    rig.work(4)
    rig.service.cancel(asked.id, "enough")
    rig.turn()
    rig.work(3)
    filled = rig.steps._read
    assert filled >= 128
    assert not rig.steps.sampled
    assert rig.charged() == pytest.approx(filled / 4)


def test_tokens_of_text_that_is_held_back_are_paid_for(rig: Whole) -> None:
    words = '<tool_call>{"name": "sum", "arguments": {"a": "' + " x" * 1000
    writer = os.pipe2(os.O_CLOEXEC)[1]
    ask = Ask(prompt=words, shape=Shape(tools=TOOLS))
    asked = rig.service.submit(ask, Delivery(), ALICE, writer)
    rig.turn()
    rig.work(150)
    rig.loop.desk.queue.step(scheduler.Tick())
    meter = rig.loop.desk.queue._meters[asked.result(0).id]
    assert meter.decode > 50
    assert meter.decode == pytest.approx(rig.steps.sampled, abs=6)  # a frame's worth behind


def test_a_job_that_ends_in_an_error_is_paid_for(rig: Whole) -> None:
    rig.ask("!long 3000")
    rig.work(101)
    made = rig.steps.sampled
    rig.steps.drop_all()
    rig.turn()
    assert rig.charged() == pytest.approx(made + rig.steps._read / 4)
    assert rig.loop.desk.queue.totals.completion == made


def test_a_cancelled_job_counts_in_what_is_measured_and_shown(rig: Whole) -> None:
    asked = rig.ask("!long 3000")
    rig.work(101)
    rig.service.cancel(asked.id, "enough")
    view = rig.service.job(asked.id)
    rig.turn()
    made = view.result(0).completion_tokens
    assert made == pytest.approx(rig.steps.sampled, abs=6)
    assert view.result(0).prompt_tokens == rig.steps._read


def test_a_whole_answer_costs_what_its_usage_says(rig: Whole) -> None:
    asked = rig.ask("!long 50")
    rig.work(60)
    view = rig.service.job(asked.id)
    rig.turn()
    assert view.result(0).completion_tokens == 51  # with the end
    assert rig.charged() == pytest.approx(51 + view.result(0).prompt_tokens / 4)
    assert rig.loop.desk.queue.totals.completion == 51


def test_a_lost_runner_leaves_no_bill_open(rig: Whole) -> None:
    asked = rig.ask("!long 3000")
    rig.work(50)
    rig.service.cancel(asked.id, "enough")
    rig.turn()
    assert rig.loop.desk.queue._late
    rig.runner.die(signal=9)
    rig.turn()
    assert not rig.loop.desk.queue._late


def test_vectors_that_nobody_waits_for_are_paid_for(rig: Whole) -> None:
    rig.service.embed(["x" * 4000], Owner(":1.7", 1000))
    rig.turn()
    rig.service.caller_vanished(":1.7")
    rig.turn()
    assert rig.debt == pytest.approx(1001)


@pytest.mark.parametrize(
    ("code", "paid"), [("request-too-large", 0), ("busy", 0), ("cancelled", 1), ("internal", 0)]
)
def test_vectors_that_the_runner_refused_cost_nothing(rig: Whole, code: str, paid: int) -> None:
    future = rig.service.embed(["x" * 4000], ALICE)
    rig.turn()
    asked = rig.runner.of_kind(Embed)[-1]
    assert isinstance(asked, Embed)
    rig.runner.say(Failed(asked.id, code, "no"))
    rig.turn()
    assert isinstance(future.exception(0), errors.StokerError)
    assert rig.debt == pytest.approx(1001 * paid)


def test_vectors_cost_what_was_read_in_the_end(rig: Whole) -> None:
    embed(rig)
    answer(rig, 90)
    assert rig.debt == pytest.approx(90)
