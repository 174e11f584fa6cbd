"""Shares, bounds and endings that must hold for any jobs: no starvation, no favourites."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes.scheduler_world import READ_A_TICK, World, jain

from stoker.core.scheduler import (
    Headroom,
    Hold,
    Lost,
    Pause,
    Place,
    Refuse,
    Rules,
    RunnerLost,
    RunnerReady,
    Stalled,
    Withdraw,
)
from stoker.core.scheduler_state import FIRST_ANSWER_TOKENS
from stoker.events.inference import JobClass, Quota
from stoker.units import Seconds

MAX_TOKENS = 512
sizes = st.lists(st.tuples(st.integers(0, 300), st.integers(1, 150)), min_size=1, max_size=4)
Sizes = list[tuple[int, int]]


class Backlog:
    """Users who always have more to do than there are slots."""

    def __init__(self, users: dict[int, Sizes], slots: int) -> None:
        self.world = World(Rules(slots, 10_000, 1, Seconds(1e9)))
        self._sizes = {uid: itertools.cycle(own) for uid, own in users.items()}
        self._names = (f"j{n}" for n in itertools.count())
        self._slots = slots

    def run(self, ticks: int, crash_every: int = 0) -> None:
        for tick in range(1, ticks + 1):
            for uid in self._sizes:
                self._fill(uid)
            self.world.tick()
            if crash_every and tick % crash_every == 0:
                self.world.tell(RunnerLost(ordered=True))
                self.world.tell(RunnerReady())

    def _fill(self, uid: int) -> None:
        own = sum(job.uid == uid for job in self.world.state.jobs.values())
        for _ in range(2 * self._slots - own):
            prompt, answer = next(self._sizes[uid])
            self.world.submit(
                next(self._names), uid, prompt=prompt, answer=answer, max_tokens=MAX_TOKENS
            )


def largest(own: Sizes) -> float:
    """Cost of a user's largest job, or of what one is first thought to be."""
    return max(prompt / READ_A_TICK + max(answer, FIRST_ANSWER_TOKENS) for prompt, answer in own)


@settings(max_examples=25, deadline=None)
@given(one=sizes, two=sizes, slots=st.integers(1, 4), crash_every=st.sampled_from([0, 0, 97, 350]))
def test_two_users_with_a_backlog_share_whatever_their_job_sizes(
    one: Sizes, two: Sizes, slots: int, crash_every: int
) -> None:
    backlog = Backlog({1: one, 2: two}, slots)
    backlog.run(1200, crash_every)
    had = backlog.world.had
    assert abs(had[1] - had[2]) <= (slots + 1) * (largest(one) + largest(two))
    assert had[1] + had[2] == 1200 * slots  # and nothing is left idle for fairness


def test_six_users_with_very_different_jobs_get_equal_shares() -> None:
    shapes = {1: (0, 5), 2: (40, 20), 3: (400, 10), 4: (0, 150), 5: (1000, 100), 6: (8, 300)}
    backlog = Backlog({uid: [shape] for uid, shape in shapes.items()}, 4)
    backlog.run(12_000)
    assert jain(list(backlog.world.had.values())) > 0.998


def test_a_user_who_comes_late_gets_a_share_from_now_on_and_none_for_before() -> None:
    backlog = Backlog({1: [(0, 20)]}, 2)
    backlog.run(3000)
    backlog._sizes[2] = itertools.cycle([(0, 20)])
    backlog.world.had.clear()
    backlog.run(1000)
    assert abs(backlog.world.had[1] - backlog.world.had[2]) <= 3 * 2 * FIRST_ANSWER_TOKENS


def test_a_user_who_comes_back_has_saved_nothing_up() -> None:
    backlog = Backlog({1: [(0, 20)], 2: [(0, 20)]}, 2)
    backlog.run(200)
    idle = backlog._sizes.pop(2)
    backlog.run(2000)
    backlog._sizes[2] = idle
    backlog.world.had.clear()
    backlog.run(1000)
    assert abs(backlog.world.had[1] - backlog.world.had[2]) <= 3 * 2 * FIRST_ANSWER_TOKENS


@settings(max_examples=20, deadline=None)
@given(
    users=st.integers(1, 4),
    slots=st.integers(1, 3),
    parked=st.integers(0, 2),
    answer=st.integers(1, 30),
    own=st.integers(1, 40),
    quiet=st.booleans(),
)
def test_a_background_job_ends_however_much_interactive_work_comes(
    users: int, slots: int, parked: int, answer: int, own: int, quiet: bool
) -> None:
    made = World(Rules(slots, 10_000, parked, Seconds(2.0), background_waits=quiet))
    made.submit("back", uid=0, job_class=JobClass.BACKGROUND, answer=own)
    ageing = 2 * 20  # ticks until it counts as interactive
    before_it = (users + 1) * (slots + 1) * (answer + int(FIRST_ANSWER_TOKENS))
    names = itertools.count()
    for _ in range(ageing + before_it + own):
        for uid in range(1, users + 1):
            if sum(job.uid == uid for job in made.state.jobs.values()) < slots + 1:
                made.submit(f"t{next(names)}", uid, JobClass.INTERACTIVE, answer=answer)
        made.tick()
        if made.work["back"].ended_s >= 0.0:
            return
    raise AssertionError("background work starves")


NAMES = [f"j{n}" for n in range(14)]
QUOTAS = [Quota(), Quota(concurrent_jobs=1), Quota(concurrent_jobs=2, queued_jobs=2)]
moves = st.lists(
    st.one_of(
        st.tuples(
            st.just("submit"),
            st.sampled_from(NAMES),
            st.integers(0, 2),  # also its quota: one user has one
            st.sampled_from(JobClass),
            st.tuples(st.integers(0, 60), st.integers(1, 30)),
        ),
        st.tuples(st.just("tick"), st.integers(1, 12)),
        st.tuples(st.just("stall"), st.sampled_from(NAMES), st.booleans()),
        st.tuples(st.just("heat"), st.sampled_from([0.0, 0.1, 0.4, 1.0])),
        st.tuples(st.just("hold"), st.booleans()),
        st.tuples(st.just("crash"), st.booleans()),
        st.tuples(st.just("withdraw"), st.sampled_from(NAMES)),
    ),
    max_size=60,
)


def make(world: World, move: tuple[Any, ...]) -> None:
    match move:
        case ("submit", name, uid, job_class, (prompt, answer)):
            if name not in world.work:
                quota = QUOTAS[uid]
                waiting = sum(job.uid == uid for job in world.state.at(Place.WAITING))
                said = world.submit(name, uid, job_class, prompt=prompt, answer=answer, quota=quota)
                over = 0 < quota.queued_jobs <= waiting
                refused = [r.reason for r in said if isinstance(r, Refuse)]
                assert over == (refused == ["queued_jobs"])
        case ("tick", times):
            world.run(times)
        case ("stall", name, stalled):
            world.tell(Stalled(name, stalled))
        case ("heat", fraction):
            world.tell(Headroom(fraction))
        case ("hold", held):
            world.tell(Hold(held))
        case ("crash", ordered):
            world.tell(RunnerLost(ordered))
            world.tell(RunnerReady())
        case ("withdraw", name):
            world.tell(Withdraw(name))


@settings(max_examples=60, deadline=None)
@given(
    moves=moves,
    slots=st.integers(1, 3),
    parked=st.integers(0, 2),
    limit=st.integers(1, 5),
    ageing=st.sampled_from([0.5, 60.0]),
    quiet=st.booleans(),
)
def test_whatever_happens_every_accepted_job_ends_and_every_paused_one_is_resumed(
    moves: list[tuple[Any, ...]],
    slots: int,
    parked: int,
    limit: int,
    ageing: float,
    quiet: bool,
) -> None:
    world = World(Rules(slots, limit, parked, Seconds(ageing), background_waits=quiet))
    for move in moves:
        make(world, move)
    world.tell(Hold(held=False))
    world.tell(Headroom(1.0))
    for job in tuple(world.state.jobs):
        world.tell(Stalled(job, stalled=False))
    world.run(len(NAMES) * (60 // READ_A_TICK + 1 + 30))
    assert world.state.jobs == {}
    gone = {a.job for a in world.log if isinstance(a, Lost)}
    gone |= {move[1] for move in moves if move[0] == "withdraw"}
    gone |= {refusal.job for refusal in world.refused}
    paused = {a.job for a in world.log if isinstance(a, Pause)}
    assert all(world.work[name].ended_s > 0.0 for name in (set(world.work) | paused) - gone)
    assert all(not lane.tags for lane in world.state.lanes)  # nobody is remembered for nothing
