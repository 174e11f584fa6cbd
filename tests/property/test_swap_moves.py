"""Whatever dies in the middle of a change of model, one of the two serves in the end."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from stoker.core import swap
from stoker.core.swap import (
    Action,
    Begin,
    Dismiss,
    Finish,
    Hold,
    Look,
    New,
    Old,
    Phase,
    Prove,
    Release,
    Return,
    Stage,
    Switch,
    Unload,
)
from stoker.units import Seconds

DRAIN_S = 30.0


@dataclass
class World:
    """Two runners and some jobs, as the service sees them; checks each action when it comes."""

    beside: bool
    now: float = 0.0
    running: int = 3
    old: Old = Old.READY
    new: New = New.NONE
    verdict: str | None = None
    state: swap.State = field(default_factory=swap.State)
    held_s: float = -1.0
    finished: list[str] = field(default_factory=list)
    serves: str = "old"

    def begin(self) -> None:
        ask = Begin(Seconds(self.now), "new", "old", beside=self.beside, drain_s=Seconds(DRAIN_S))
        self.state, actions = swap.begin(self.state, ask)
        for action in actions:
            self.obey(action)

    def turn(self) -> None:
        for _ in range(20):
            look = Look(Seconds(self.now), self.running, self.old, self.new, "why", self.verdict)
            self.state, actions = swap.step(self.state, look)
            for action in actions:
                self.obey(action)
            assert swap.eta_s(self.state, Seconds(self.now)) >= 0
            if not actions:
                return
        raise AssertionError("it never comes to rest")

    def obey(self, action: Action) -> None:
        match action:
            case Stage():
                assert self.new in (New.NONE, New.GONE), "two newcomers"
                assert self.old is Old.GONE or self.beside, "no memory for both"
                self.new, self.verdict = New.COMING, None
            case Prove():
                assert self.new is New.READY
            case Hold():
                assert self.held_s < 0
                self.held_s = self.now
            case Release():
                assert self.held_s >= 0
                self.held_s = -1.0
            case Unload():
                self._preempt()
                self.old = Old.AWAY
            case Switch():
                assert (self.new, self.verdict) == (New.READY, ""), "not proven"
                self._preempt()
                self.old, self.new, self.serves = Old.READY, New.NONE, "new"
            case Dismiss():
                self.new, self.verdict = New.LOST, None  # on its way out
            case Return():
                assert self.old is Old.GONE or self.now - self.state.since_s == 0
                self.old = Old.AWAY
            case Finish(reason=reason):
                self.finished.append(reason)

    def _preempt(self) -> None:
        late = self.now - self.held_s >= DRAIN_S
        assert not self.running or late or self.old is not Old.READY, "cut before its time"
        self.running = 0

    def happen(self, what: str) -> None:
        """One thing of the world, if it can happen now."""
        match what:
            case "job ends" if self.running:
                self.running -= 1
            case "job starts" if self.held_s < 0 and self.old is Old.READY:
                self.running += 1
            case "new is ready" if self.new is New.COMING:
                self.new = New.READY
            case "new is cramped" if self.new is New.COMING and self.old is not Old.GONE:
                self.new = New.CRAMPED
            case "new dies" if self.new in (New.COMING, New.READY):
                self.new = New.LOST
            case "new is gone" if self.new is New.LOST and self.state.phase in (
                Phase.CLEARING, Phase.IDLE, Phase.DRAINING, Phase.UNLOADING,
            ):  # fmt: skip
                self.new = New.GONE
            case "good" | "bad" if self.state.phase in (Phase.PROBING, Phase.TRYING):
                self.verdict = "" if what == "good" else "it says nothing"
            case "old dies" if self.old is Old.READY:
                self.old, self.running = Old.AWAY, 0
            case "old is ready" if self.old is Old.AWAY and self.state.phase in (
                Phase.IDLE, Phase.STAGING, Phase.PROBING, Phase.RETURNING,
            ):  # fmt: skip
                self.old = Old.READY
            case "old is hopeless" if self.state.phase is Phase.RETURNING:
                self.old = Old.HOPELESS
            case "old is gone" if self.old is Old.AWAY and self.state.phase is Phase.UNLOADING:
                self.old = Old.GONE
            case "a second":
                self.now += 1.0
            case "long":
                self.now += 40.0


HAPPENINGS = [
    "job ends", "job starts", "new is ready", "new is cramped", "new dies", "new is gone", "good",
    "bad", "old dies", "old is ready", "old is hopeless", "old is gone", "a second", "long",
]  # fmt: skip


@given(beside=st.booleans(), happenings=st.lists(st.sampled_from(HAPPENINGS), max_size=60))
def test_every_change_ends_once_and_holds_nobody_for_ever(
    beside: bool, happenings: list[str]
) -> None:
    world = World(beside)
    world.begin()
    world.turn()
    for what in happenings:
        world.happen(what)
        world.turn()
    for _ in range(60):  # from here on everything goes as it should
        for what in ("old is gone", "new is gone", "new is ready", "good", "old is ready", "long"):
            world.happen(what)
            world.turn()
    assert not world.state.active
    assert len(world.finished) == 1
    assert world.held_s < 0
    assert (world.serves == "new") == (world.finished == [""])


@given(happenings=st.lists(st.sampled_from(["job ends", "a second", "old dies"]), max_size=60))
def test_running_jobs_get_their_time_and_no_more(happenings: list[str]) -> None:
    world = World(beside=False)
    world.begin()
    for what in happenings:
        world.happen(what)
        world.turn()
        drained = world.running == 0 or world.now >= DRAIN_S
        assert (world.state.phase is Phase.DRAINING) == (not drained)
        if drained:
            return


def test_the_time_until_the_next_answer_is_told_from_the_first_moment_of_silence() -> None:
    world = World(beside=False)
    world.begin()
    first = swap.eta_s(world.state, Seconds(0.0))
    assert first == DRAIN_S + swap.UNLOAD_S + swap.FIRST_LOAD_S
    assert swap.eta_s(world.state, Seconds(5.0)) == first - 5.0


def test_beside_nobody_waits_until_the_new_one_has_shown_that_it_can_answer() -> None:
    world = World(beside=True)
    world.begin()
    world.happen("new is ready")
    world.turn()
    assert swap.eta_s(world.state, Seconds(0.0)) == Seconds(0.0)
    assert world.held_s < 0
    world.happen("good")
    world.turn()
    assert world.held_s == 0.0
