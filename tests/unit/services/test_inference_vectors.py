"""Vectors beside answers: whose quota they count against, and what ends them early."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
from tests.unit.services.inference_rig import ALICE, BOB, Rig

from stoker import errors
from stoker.events.inference import Owner, Quota, Standing, TokenTotals
from stoker.events.runner import Answer, Cancel, Delta, Deltas, Embed

Vectors = Future[tuple[list[list[float]], int]]


class Sixty:
    """A token a second for everybody."""

    def of(self, uid: int) -> Standing:
        return Standing(quota=Quota(tokens_per_minute=60))


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    made.start()
    return made


def embed(rig: Rig, owner: Owner = ALICE) -> Vectors:
    future = rig.service.embed(["some text"], owner)
    rig.turn()
    return future


def answer(rig: Rig, tokens: int) -> None:
    request = rig.runner.of_kind(Embed)[-1]
    assert isinstance(request, Embed)
    rig.runner.say(Answer(request.id, {"vectors": [[1.0]], "tokens": tokens}))
    rig.turn()


def test_vectors_count_in_the_tokens_a_minute(rig: Rig) -> None:
    rig.service._standings = Sixty()
    first = embed(rig)
    answer(rig, 90)  # taken while the bucket was full, and 30 tokens in debt now
    assert first.result(0)[1] == 90
    with pytest.raises(errors.QuotaExceeded) as caught:
        embed(rig).result(0)
    assert caught.value.details["quota"] == "tokens_per_minute"
    assert caught.value.details["retry_after_ms"] == 31_000
    assert not embed(rig, BOB).done()
    for _ in range(4):
        rig.runner.greet()  # any word is a sign of life
        rig.pass_time(8)
    assert not embed(rig).done()


def test_no_vectors_are_made_when_it_is_too_hot(rig: Rig) -> None:
    under_way = embed(rig)
    rig.service.hold(True, "at the wall")
    rig.turn()
    for future in (under_way, embed(rig)):
        with pytest.raises(errors.Throttled):
            future.result(0)
    assert len(rig.runner.of_kind(Cancel)) == 1
    rig.service.hold(False, "")
    rig.turn()
    assert not embed(rig).done()
    rig.service.headroom(0.0)
    rig.turn()
    with pytest.raises(errors.Throttled):
        embed(rig).result(0)


def test_the_hit_rate_of_the_prefix_cache_can_be_seen(rig: Rig) -> None:
    for cached in (0, 7):
        asked = rig.ask()
        usage = {"prompt_tokens": 10, "cached_tokens": cached, "completion_tokens": 2}
        done = {"finish_reason": "stop", "usage": usage}
        rig.runner.say(Deltas((Delta(asked.id, t="x"),)), Deltas((Delta(asked.id, done=done),)))
        rig.turn()
    assert rig.loop.snapshot.tokens == TokenTotals(prompt=20, cached=7, completion=4)
