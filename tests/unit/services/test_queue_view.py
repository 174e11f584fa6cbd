"""Who sees whom in the queue."""

from __future__ import annotations

from typing import Any, cast

import pytest
from tests.fakes.doors import FakeAuthority
from tests.unit.services.inference_rig import ALICE, BOB, Rig, config

from stoker.api.exports import Later
from stoker.api.inference import InferenceRoom
from stoker.api.requests import Limits
from stoker.events.inference import Owner
from stoker.ports.doors import OTHERS

ADMIN, CAROL = Owner(":1.9", 7), Owner(":1.3", 1002)


@pytest.fixture
def rig() -> Rig:
    made = Rig(config(queue_limit=99))
    made.start()
    for owner in (ALICE, BOB, BOB, CAROL):
        made.ask(owner=owner)
    return made


def seen(rig: Rig, owner: Owner) -> set[tuple[int, str, int, int]]:
    jobs = cast(Any, None)  # no object is made of a look
    authority = FakeAuthority(frozenset({0, ADMIN.uid}))
    room = InferenceRoom(rig.service, jobs, Limits(), {}, authority)
    later = room.list_queue(owner, ())
    assert isinstance(later, Later)
    rig.turn()
    return set(later.convert(later.future.result(0)).values[0])


def test_a_user_sees_himself_and_only_how_many_jobs_the_others_have(rig: Rig) -> None:
    assert seen(rig, ALICE) == {(1000, "normal", 1, 0), (OTHERS, "normal", 1, 2)}
    assert seen(rig, CAROL) == {(1002, "normal", 0, 1), (OTHERS, "normal", 2, 1)}
    assert seen(rig, Owner(":1.5", 1005)) == {(OTHERS, "normal", 2, 2)}


def test_an_administrator_sees_who_has_what(rig: Rig) -> None:
    everybody = {(1000, "normal", 1, 0), (1001, "normal", 1, 1), (1002, "normal", 0, 1)}
    assert seen(rig, ADMIN) == everybody
    assert seen(rig, Owner(":1.0", 0)) == everybody
