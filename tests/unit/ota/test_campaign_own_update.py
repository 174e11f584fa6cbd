"""A device with an update of its own: no campaign counts it, waits for it or fails by it."""

from __future__ import annotations

import json

from stoker_ota.core import campaign_count
from stoker_ota.core.campaign import Plan
from stoker_ota.core.campaign_count import Seen


def state(*, own: bool) -> bytes:
    return json.dumps(
        {"groups": ["blue"], "desired": {}, "results": [], "own_update": own}
    ).encode()


def test_devices_with_an_update_of_their_own_are_outside() -> None:
    plan = Plan("c-1", ("blue",), "chat", 2, steps=(100.0,))
    devices = {
        name: campaign_count.heard(Seen(), "state", state(own=name == "pinned"), "", 0.0)
        for name in ("a", "b", "pinned")
    }
    assert campaign_count.counts(plan, 100.0, devices, 0.0).reached == 2
    assert [name for name, _ in campaign_count.members(plan, devices)] == ["a", "b"]
    back = campaign_count.heard(devices["pinned"], "state", state(own=False), "", 0.0)
    assert campaign_count.counts(plan, 100.0, {**devices, "pinned": back}, 0.0).reached == 3
