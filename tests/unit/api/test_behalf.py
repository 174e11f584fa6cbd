"""Only the gateway speaks for others, and what it says is a user ID."""

from __future__ import annotations

import pytest
from tests.fakes.doors import FakeAuthority

from stoker.api.behalf import KEY, MAX_UID, speaker
from stoker.errors import InvalidRequest, NotAuthorized
from stoker.events.inference import Owner

GATEWAY = Owner(":1.7", 4711, 99)
AUTHORITY = FakeAuthority(frozenset({0}), gateway=4711)


def test_a_request_that_names_nobody_is_the_callers() -> None:
    options = {"deadline_ms": 5}
    assert speaker(GATEWAY, options, AUTHORITY) == (GATEWAY, options)


def test_the_gateway_asks_as_another_user_and_stays_its_own_connection() -> None:
    owner, options = speaker(GATEWAY, {KEY: 1000, "format": "text"}, AUTHORITY)
    assert owner == Owner(":1.7", 1000, 99)
    assert options == {"format": "text"}


@pytest.mark.parametrize("uid", [0, 1000])
def test_nobody_else_may_not_even_root_and_not_even_as_itself(uid: int) -> None:
    with pytest.raises(NotAuthorized, match="on_behalf_of_uid"):
        speaker(Owner(":1.8", uid), {KEY: uid}, AUTHORITY)


@pytest.mark.parametrize("uid", [-1, MAX_UID + 1, True, "1000", 1.0, None])
def test_what_is_no_user_id_is_refused(uid: object) -> None:
    with pytest.raises(InvalidRequest):
        speaker(GATEWAY, {KEY: uid}, AUTHORITY)
