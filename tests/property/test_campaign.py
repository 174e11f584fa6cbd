"""Any fleet and any story: thresholds hold, percentages never shrink, the same devices stay in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.core import fleet_desired
from stoker.core.fleet_desired import Kept
from stoker_ota.core import campaign, campaign_section, campaign_share, strict_json
from stoker_ota.core.campaign import Counts, Plan, State
from stoker_ota.errors import BadDocument, InvalidRequest

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789-_", min_size=1, max_size=20)
WORDS = ("unmet", "met", "due", "done", "failing", "pause", "resume", "abort")


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    steps = draw(st.lists(st.integers(1, 1000), min_size=1, max_size=6, unique=True))
    success = draw(st.integers(1, 99))
    return campaign.checked(
        Plan(
            draw(NAMES), ("blue",), "chat", 7, tuple(n / 10 for n in sorted(steps)),
            float(success), float(draw(st.integers(1, 100 - success))),
            draw(st.integers(0, 20)), draw(st.sampled_from(["", "01:00-05:00", "22:00-13:00"])),
        )
    )  # fmt: skip


@st.composite
def tallies(draw: st.DrawFn) -> Counts:
    members = draw(st.integers(0, 50))
    reached = draw(st.integers(0, members))
    succeeded = draw(st.integers(0, reached))
    return Counts(members, reached, succeeded, draw(st.integers(0, reached - succeeded)))


EVENTS = st.lists(st.one_of(tallies(), st.sampled_from(["pause", "resume", "abort"])), max_size=30)


@given(plans(), EVENTS)
def test_no_step_without_success_and_none_past_the_abort_threshold(
    plan: Plan, story: list[Counts | str]
) -> None:
    state, now = State(), NOW
    for event in story:
        now += timedelta(seconds=7)
        before = state
        if isinstance(event, str):
            try:
                state, _ = campaign.step(plan, state, event, now.timestamp())
            except InvalidRequest:
                assert campaign.TABLE.get((before.phase, event)) is None
            assert state.at == before.at
            continue
        word = campaign.judged(plan, state, event, now)
        state, actions = campaign.step(plan, state, word, now.timestamp())
        failing = event.reached > 0 and event.failed * 100 >= plan.abort * event.reached
        if failing and not before.over:
            assert state.phase == campaign.ABORTED
        onward = state.at > before.at or (state.phase == campaign.SUCCEEDED != before.phase)
        if onward:
            assert event.succeeded * 100 >= plan.success * event.reached
            assert now.timestamp() - before.since_s >= plan.soak_s
            assert not failing
        if state.at > before.at:
            assert campaign.is_open(plan.window, now)
        assert campaign.percent(plan, state) >= campaign.percent(plan, before)
        assert (state.turn > before.turn) == (campaign.PUBLISH in actions)
        if before.over:
            assert state == before


@given(st.sampled_from(sorted(campaign.PHASES)), st.sampled_from(WORDS))
def test_what_is_published_has_a_new_turn_and_what_is_over_stays(phase: str, word: str) -> None:
    plan, before = Plan("c", ("blue",), "chat", 7), State(phase, 1, 5)
    try:
        after, actions = campaign.step(plan, before, word, 0.0)
    except InvalidRequest:
        assert word in ("pause", "resume", "abort")
        return
    seen = campaign_section.section(plan, before) != campaign_section.section(plan, after)
    assert seen == (campaign.PUBLISH in actions)
    if before.over:
        assert after == before


@given(plans(), tallies())
def test_failures_below_the_threshold_leave_success_possible(plan: Plan, counts: Counts) -> None:
    """It cannot hang because of failures alone."""
    best = Counts(counts.members, counts.reached, counts.reached - counts.failed, counts.failed)
    word = campaign.judged(plan, State(), best, NOW)
    assert word in ("met", "failing") or not counts.members


@given(NAMES, NAMES, st.floats(0, 100), st.floats(0, 100))
def test_devices_and_the_tool_draw_the_same_and_stay_in(
    identity: str, device: str, one: float, two: float
) -> None:
    low, high = sorted((one, two))
    if campaign_share.reached(identity, low, device):
        assert campaign_share.reached(identity, high, device)
    assert campaign_share.reached(identity, 100, device)
    for percent in (low, high):
        theirs = fleet_desired.takes_part({"id": identity, "percent": percent}, device)
        assert theirs == campaign_share.reached(identity, percent, device)


@given(plans(), st.integers(1, 9))
def test_the_tool_knows_the_record_that_a_device_makes(plan: Plan, version: int) -> None:
    own = Kept("d:dev", 1, 9e9, {}, ("blue",))
    sections = {"update": {**plan.update, "consent": False}}
    found = fleet_desired.wishes({"d:dev": own, "g:blue": Kept("g:blue", version, 9e9, sections)},
                                 "dev")  # fmt: skip
    digest = campaign_share.wish(plan.update)
    assert [campaign_share.is_of(wish.id, digest) for wish in found] == [True]
    assert campaign_share.is_of(f"{found[0].id}-1", digest)
    assert not campaign_share.is_of(found[0].id, campaign_share.wish({"deployment": "x"}))


@given(plans(), st.sampled_from(campaign.PHASES), st.data())
def test_a_section_says_what_it_was_made_of(plan: Plan, phase: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(plan.steps) - 1))
    state = State(phase, at, data.draw(st.integers(1, 99)))
    written = strict_json.dumps(campaign_section.section(plan, state))
    read = strict_json.loads(written, max_bytes=8 << 10, what="it")
    assert isinstance(read, dict)
    told = campaign.RUNNING if phase == campaign.WAITING else phase
    assert campaign_section.parse(read) == (plan, State(told, at, state.turn))


@given(st.dictionaries(
    st.sampled_from(sorted(campaign_section.section(Plan("c", ("b",), "chat", 7), State()))),
    st.one_of(st.none(), st.integers(), st.text(max_size=5), st.lists(st.floats(), max_size=3)),
))  # fmt: skip
def test_a_strange_section_is_refused_and_nothing_else(changes: dict[str, object]) -> None:
    good = campaign_section.section(Plan("c", ("b",), "chat", 7), State())
    try:
        campaign_section.parse({**good, **changes})
    except BadDocument:
        return


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": ()}, {"steps": (50.0, 50.0)}, {"steps": (0.0,)}, {"steps": (101.0,)},
        {"success": 95.0, "abort": 10.0}, {"success": 0.0}, {"abort": float("nan")},
        {"groups": ()}, {"groups": ("a", "a")}, {"groups": ("a.b",)}, {"id": "a/b"},
        {"version": 0}, {"deployment": "../x"}, {"window": "25:00-01:00"}, {"lost_s": 0},
    ],
)  # fmt: skip
def test_plans_that_make_no_sense_are_refused(changes: dict[str, object]) -> None:
    good: dict[str, object] = {"id": "c", "groups": ("a",), "deployment": "chat", "version": 7}
    campaign.checked(Plan(**good))  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest):
        campaign.checked(Plan(**{**good, **changes}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("counts", "word"),
    [
        (Counts(100, 50, 0, 5), "failing"), (Counts(100, 50, 45, 4), "met"),
        (Counts(100, 50, 44, 4), "unmet"), (Counts(100, 0), "met"), (Counts(), "unmet"),
    ],
)  # fmt: skip
def test_thresholds_are_met_exactly(counts: Counts, word: str) -> None:
    plan = Plan("c", ("blue",), "chat", 7, success=90.0, abort=10.0)
    assert campaign.judged(plan, State(), counts, NOW) == word
