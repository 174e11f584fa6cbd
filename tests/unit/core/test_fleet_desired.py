"""Desired states: versions, merging, wishes that are tried once, campaigns."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.core import fleet_desired
from stoker.core.fleet_desired import Kept

ME = "dev-1"


def kept(audience: str, version: int = 1, **sections: dict[str, object]) -> Kept:
    groups = ("blue", "red") if audience == f"d:{ME}" else ()
    return Kept(audience, version, 1e10, sections, groups)


def known(*documents: Kept) -> dict[str, Kept]:
    return {item.audience: item for item in documents}


def test_the_devices_own_document_overrides_its_groups_section_by_section() -> None:
    all_of = known(
        kept("g:blue", policy={"a": 1}, runtime={"model": "x"}),
        kept("g:red", policy={"a": 2}),
        kept("g:green", policy={"a": 9}),
        kept(f"d:{ME}", runtime={"model": "y"}),
    )
    merged = fleet_desired.merged(all_of, ME)
    assert {name: dict(values) for name, (_, values) in merged.items()} == {
        "policy": {"a": 2},
        "runtime": {"model": "y"},
    }


def test_only_the_own_document_says_which_groups_count() -> None:
    stranger = Kept("g:blue", 1, 1e10, {"policy": {"a": 1}}, ("blue",))
    assert fleet_desired.groups(known(stranger), ME) == ()
    assert fleet_desired.wishes(known(stranger), ME) == ()


def test_a_document_that_only_grows_a_campaign_makes_the_same_wish() -> None:
    update: dict[str, object] = {"deployment": "chat", "version": 2}

    def wish(version: int, percent: int) -> list[str]:
        campaign: dict[str, object] = {"id": "c", "percent": percent}
        group = kept("g:blue", version, update=update, campaign=campaign)
        return [w.digest for w in fleet_desired.wishes(known(group, kept(f"d:{ME}")), ME)]

    assert wish(1, 0) == []
    assert wish(2, 100) == wish(3, 100)
    update["retry"] = "once more"
    assert wish(4, 100) != []


def test_a_paused_campaign_reaches_nobody() -> None:
    assert not fleet_desired.takes_part({"id": "c", "percent": 100, "paused": True}, ME)
    assert fleet_desired.takes_part({"id": "c", "percent": 100}, ME)
    assert fleet_desired.takes_part({}, ME)
    assert not fleet_desired.takes_part({"percent": "all"}, ME)


def test_who_takes_part_early_takes_part_later() -> None:
    ids = [f"dev-{n}" for n in range(2000)]

    def reached(percent: float) -> set[str]:
        campaign = {"id": "c-1", "percent": percent}
        return {i for i in ids if fleet_desired.takes_part(campaign, i)}

    assert reached(5) <= reached(10) <= reached(50)
    assert 160 < len(reached(10)) < 240


@given(st.lists(st.tuples(st.sampled_from(["d:dev-1", "g:blue", "g:red"]), st.integers(1, 20)),
                max_size=30))  # fmt: skip
def test_any_order_of_deliveries_ends_with_the_highest_versions(
    deliveries: list[tuple[str, int]],
) -> None:
    found: dict[str, Kept] = {}
    for audience, version in [*deliveries, *deliveries]:
        if fleet_desired.is_news(found, audience, version):
            found[audience] = kept(audience, version)
    highest: dict[str, int] = {}
    for audience, version in deliveries:
        highest[audience] = max(version, highest.get(audience, 0))
    assert {name: item.version for name, item in found.items()} == highest


def test_a_state_past_its_expiry_is_stale_only_if_it_counts() -> None:
    old = Kept("g:green", 1, 10.0, {"policy": {"a": 1}})
    own = Kept(f"d:{ME}", 1, 10.0, {"policy": {"a": 1}})
    assert not fleet_desired.stale(known(old), ME, 20.0)
    assert fleet_desired.stale(known(own), ME, 20.0)
    assert not fleet_desired.stale(known(own), ME, 5.0)


def test_an_update_of_ones_own_is_outside_the_groups_campaign() -> None:
    group = kept("g:blue", update={"deployment": "chat", "version": 2},
                 campaign={"id": "c", "percent": 100, "paused": True})  # fmt: skip
    own = kept(f"d:{ME}", update={"deployment": "chat", "version": 9})
    (wish,) = fleet_desired.wishes(known(group, own), ME)
    assert wish.args["version"] == 9
    assert fleet_desired.has_own_update(known(group, own), ME)
    held = kept(f"d:{ME}", update={"deployment": "x"}, campaign={"id": "me", "paused": True})
    assert fleet_desired.wishes(known(group, held), ME) == ()
    assert fleet_desired.wishes(known(group, kept(f"d:{ME}")), ME) == ()
    assert not fleet_desired.has_own_update(known(group, kept(f"d:{ME}")), ME)


def test_a_share_that_is_no_number_reaches_nobody() -> None:
    shares: tuple[object, ...] = (True, "100", None, [])
    for percent in shares:
        assert not any(fleet_desired.takes_part({"percent": percent}, str(n)) for n in range(99))
