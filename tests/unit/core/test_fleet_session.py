"""When the device connects again: jitter, protocols, takeovers."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from stoker.core import fleet_session
from stoker.core.fleet_session import V5, V311, Link, Pace

PACE = Pace()


def lost(link: Link, now_s: float, cause: str, draw: float = 0.999) -> Link:
    return fleet_session.lost(link, now_s, cause, draw, PACE)


def tried(link: Link, now_s: float) -> Link:
    return fleet_session.begun(link, now_s)


def test_waits_grow_to_the_cap_and_begin_anew_after_a_connection_that_lasted() -> None:
    link, now, waits = Link(), 0.0, []
    for _ in range(12):
        link = lost(tried(link, now), now, "network")
        waits.append(link.wake_s - now)
        now = link.wake_s
    assert waits[0] < 1.0
    assert waits == sorted(waits)
    assert PACE.cap_s * 0.99 < waits[-1] < PACE.cap_s
    link = fleet_session.online(tried(link, now), now)
    link = lost(link, now + PACE.stable_s + 1, "network")
    assert link.wake_s - (now + PACE.stable_s + 1) < 1.0


def test_a_connection_that_is_kicked_at_once_does_not_reset_the_wait() -> None:
    link, now = Link(), 0.0
    for _ in range(10):
        link = lost(fleet_session.online(tried(link, now), now), now + 1, "network")
        now = link.wake_s
    assert link.attempt == 10


def test_a_broker_that_closed_is_given_time() -> None:
    link = lost(fleet_session.online(Link(), 0.0), 1.0, "closed")
    assert 29.0 < link.wake_s - 1.0 < 30.0


def test_mqtt_3_1_1_is_tried_at_once_and_remembered_only_where_the_broker_said_so() -> None:
    link = lost(tried(Link(), 0.0), 1.0, "protocol")
    assert (link.protocol, link.wake_s) == (V311, 1.0)
    link = lost(fleet_session.online(tried(link, 1.0), 1.0), 100.0, "network")
    assert link.protocol == V311
    link = lost(tried(Link(), 0.0), 1.0, "closed")
    assert link.protocol == V311
    link = lost(fleet_session.online(tried(link, 1.0), 1.0), 100.0, "network")
    assert link.protocol == V5


def test_two_takeovers_in_a_minute_make_us_wait_for_minutes() -> None:
    link = lost(fleet_session.online(Link(), 0.0), 1.0, "taken-over")
    assert not link.clash
    link = lost(fleet_session.online(link, 10.0), 11.0, "taken-over", 0.0)
    assert link.clash
    assert link.wake_s - 11.0 == PACE.takeover_least_s
    link = fleet_session.settled(fleet_session.online(link, 400.0), 470.0, PACE)
    assert not link.clash


def test_a_session_that_is_cut_off_again_and_again_is_suspect() -> None:
    link, now = Link(), 0.0
    for _ in range(fleet_session.BRIEF):
        assert not link.clash
        link = lost(fleet_session.online(link, now, resumed=True), now + 1, "closed", 0.0)
        now = link.wake_s
    assert link.clash


def test_a_broker_that_forgets_sessions_is_in_trouble_itself() -> None:
    link, now = Link(), 0.0
    for _ in range(10):
        link = lost(fleet_session.online(link, now), now + 1, "closed", 0.0)
        now = link.wake_s
    assert not link.clash


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["network", "dns", "tls", "clock", "auth", "protocol", "closed",
                             "taken-over", "storage", "silent"]),
            st.booleans(),
            st.floats(0.0, 0.9999),
            st.floats(0.0, 1000.0),
        ),
        max_size=40,
    )
)  # fmt: skip
def test_it_always_comes_back_within_the_longest_wait(
    story: list[tuple[str, bool, float, float]],
) -> None:
    link, now = Link(), 0.0
    for cause, came, draw, lasted in story:
        assert not fleet_session.due(link, link.wake_s - 0.001)
        now = max(now, link.wake_s)
        assert fleet_session.due(link, now)
        link = tried(link, now)
        if came:
            link = fleet_session.online(link, now, resumed=True)
            now += lasted
        link = fleet_session.lost(link, now, cause, draw, PACE)
        assert link.phase == "waiting"
        assert 0.0 <= link.wake_s - now <= PACE.takeover_most_s
        assert link.protocol in (V5, V311)


def test_what_has_changed_here_is_tried_at_once_but_nobody_is_thrown_out_for_it() -> None:
    waiting = lost(tried(lost(tried(Link(), 0.0), 1.0, "auth"), 70.0), 71.0, "auth")
    assert waiting.wake_s > 72.0
    hurried = fleet_session.hurried(waiting, 72.0)
    assert fleet_session.due(hurried, 72.0)
    assert hurried.attempt == 0
    clash = replace(waiting, clash=True)
    assert fleet_session.hurried(clash, 72.0) == clash
    there = fleet_session.online(Link(), 1.0)
    assert fleet_session.hurried(there, 72.0) == there
