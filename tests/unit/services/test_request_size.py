"""What a request takes in memory counts in full, for its user and for all together."""

from __future__ import annotations

import sys
from dataclasses import fields
from typing import Any

import pytest
from tests.unit.services.inference_rig import ALICE, BOB, Rig, config

from stoker import errors
from stoker.events.inference import Ask, Quota, Standing
from stoker.events.prompt import AdapterScale, Message, Shape
from stoker.services.job_queue import text_bytes
from stoker.units import Bytes

BIG = "x" * 10_000


def every_text() -> list[Ask]:
    """One request for each place that takes a text."""
    places = [Ask(prompt=BIG), Ask(model=BIG), Ask(keep=BIG), Ask(stop=(BIG,))]
    for spec in fields(Message):
        texts = {"role": "user", "content": "hi", spec.name: BIG}
        places += [Ask(messages=(Message(**texts),))]
    texts_of_shape = [spec.name for spec in fields(Shape) if spec.type == "str"]
    for name in texts_of_shape:
        shape: Any = {name: BIG}
        places += [Ask(shape=Shape(**shape))]
    return [*places, Ask(shape=Shape(adapters=(AdapterScale(BIG),)))]


@pytest.mark.parametrize("ask", every_text())
def test_every_text_of_a_request_counts(ask: Ask) -> None:
    assert len(BIG) <= text_bytes(ask) < len(BIG) + 500


@pytest.mark.parametrize(("wide", "width"), [("", 1), ("é", 1), ("Ω", 2), ("\U0001f600", 4)])
def test_a_text_counts_with_the_width_of_its_widest_character(wide: str, width: int) -> None:
    calls = wide + BIG
    size = text_bytes(Ask(messages=(Message("assistant", "", tool_calls=calls),)))
    assert width * len(calls) <= size <= width * len(calls) + 200
    assert size >= sys.getsizeof(calls)


def test_all_users_requests_together_are_bounded_answered_or_waiting() -> None:
    rig = Rig(config(queue_limit=99, queue_bytes=Bytes(50_000)))
    rig.start()
    taken = [rig.ask("x" * 11_000, owner=owner) for owner in (ALICE, BOB, ALICE, BOB)]
    assert all(asked.id for asked in taken)
    with pytest.raises(errors.Busy) as caught:
        rig.ask("x" * 11_000).future.result(0)
    assert int(caught.value.details["retry_after_ms"]) > 0
    rig.runner.stream(taken[0].id, "x", done=True)
    rig.turn()
    assert rig.ask("x" * 11_000).id


def test_a_users_quota_counts_what_memory_holds() -> None:
    rig = Rig(config(queue_limit=99))
    rig.start()

    class Policy:
        def of(self, uid: int) -> Standing:
            return Standing(quota=Quota(queued_bytes=Bytes(20_000)))

    rig.service._standings = Policy()
    for owner in (BOB, BOB):
        rig.ask(owner=owner)
    assert rig.ask("x" * 6_000).id
    with pytest.raises(errors.QuotaExceeded):
        rig.ask("\U0001f600" + "x" * 6_000).future.result(0)
