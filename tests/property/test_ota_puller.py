"""The puller against a broker that loses, delays, doubles, forges, denies and breaks off."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from stoker_ota.core import puller
from stoker_ota.values.pulling import Action, Do, Event, Pull, What

BLOB = 61_440


@dataclass
class World:
    """``faults``: chance of each in per cent; ``gone``: blobs nobody has, ``denied`` ones."""

    count: int
    window: int
    seed: int
    rate: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    gone: frozenset[int] = frozenset()
    denied: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.now = 0.0
        self.subscribed: set[str] = set()
        self.post: deque[tuple[float, Event]] = deque()
        self.kept: list[str] = []
        self.lost: list[str] = []
        self.reason: str | None = None
        self.bytes = 0
        self.connected = False
        self.told: Event | None = None

    def name(self, number: int) -> str:
        return f"{number:064x}"

    def run(self, steps: int = 20_000) -> Pull:
        names = [self.name(n) for n in range(self.count)]
        pull, todo = puller.begin(
            names, window=self.window, rate=self.rate, blob_bytes=BLOB, now_s=0.0
        )
        self.carry_out(todo)
        for _ in range(steps):
            if self.reason is not None:
                return pull
            event = self.next_event(pull)
            self.told = event
            before = len(pull.flying)
            pull, todo = puller.step(pull, event, self.now)
            assert pull.window <= self.window
            assert len(pull.flying) <= max(before, pull.window)
            self.carry_out(todo)
            assert not self.connected or self.subscribed == {f.blob for f in pull.flying}
        raise AssertionError("it never ends")

    def next_event(self, pull: Pull) -> Event:
        if self.connected and self.chance("drop"):
            self.connected = False
            self.subscribed.clear()
            self.post.clear()
            return Event(What.DISCONNECTED, reason="cut")
        due = self.now + puller.due_s(pull, self.now) + 0.001
        if self.post and self.post[0][0] <= due:
            self.now, event = self.post.popleft()
            if event.what is What.CONNECTED:
                self.connected = True
            return event
        self.now = due
        return Event(What.TICK)

    def carry_out(self, todo: tuple[Action, ...]) -> None:
        for action in todo:
            match action.do:
                case Do.CONNECT:
                    assert not self.connected
                    self.mail(Event(What.CONNECTED), self.dice.uniform(0, action.delay_s))
                case Do.SUBSCRIBE:
                    assert self.connected
                    assert action.blob not in self.subscribed
                    self.subscribed.add(action.blob)
                    self.answer(action.blob)
                case Do.UNSUBSCRIBE:
                    self.subscribed.discard(action.blob)
                case Do.KEEP:
                    assert self.told is not None
                    assert (self.told.blob, self.told.good) == (action.blob, True)
                    self.kept.append(action.blob)
                case Do.LOST:
                    self.subscribed.discard(action.blob)
                    self.lost.append(action.blob)
                case Do.END:
                    assert self.reason is None
                    self.reason = action.reason
                    self.subscribed.clear()  # the connection is closed

    def answer(self, blob: str) -> None:
        number = int(blob, 16)
        if number in self.denied:
            self.mail(Event(What.DENIED, blob), 0.05)
            return
        if self.chance("forged"):
            self.mail(Event(What.MESSAGE, blob, False, self.dice.choice([0, 9, BLOB])), 0.05)
        if number in self.gone or self.chance("lost"):
            return
        for _ in range(2 if self.chance("double") else 1):
            slow = 40.0 if self.chance("slow") else self.dice.uniform(0.01, 0.2)
            self.mail(Event(What.MESSAGE, blob, True, BLOB), slow)
            self.bytes += BLOB

    def mail(self, event: Event, delay_s: float) -> None:
        self.post.append((self.now + delay_s, event))
        self.post = deque(sorted(self.post, key=lambda item: item[0]))

    def chance(self, fault: str) -> bool:
        return self.dice.randrange(100) < self.faults.get(fault, 0)


FAULTS = st.fixed_dictionaries(
    {
        "lost": st.integers(0, 20), "slow": st.integers(0, 10), "double": st.integers(0, 30),
        "forged": st.integers(0, 20), "drop": st.integers(0, 5),
    }
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 60), st.integers(1, 8), st.integers(0, 2**32), FAULTS,
    st.frozensets(st.integers(0, 60), max_size=8), st.frozensets(st.integers(0, 60), max_size=5),
)  # fmt: skip
def test_every_blob_is_kept_or_given_to_the_next_source_once(
    count: int, window: int, seed: int, faults: dict[str, int], gone: frozenset[int],
    denied: frozenset[int],
) -> None:  # fmt: skip
    world = World(count, window, seed, faults=faults, gone=gone, denied=denied)
    world.run()
    names = {world.name(n) for n in range(count)}
    told = world.kept + world.lost
    assert len(told) == len(set(told))
    assert set(told) <= names
    if world.reason == "":
        assert set(told) == names
        assert set(world.lost) >= {world.name(n) for n in denied if n < count}
    assert not set(world.kept) & {world.name(n) for n in (gone | denied)}


def test_a_good_broker_gives_everything_and_the_window_opens() -> None:
    world = World(200, 8, 1)
    pull = world.run()
    assert (len(world.kept), world.lost, world.reason, pull.window) == (200, [], "", 8)


def test_a_rate_is_kept() -> None:
    world = World(40, 8, 2, rate=100_000)
    world.run()
    assert len(world.kept) == 40
    assert world.bytes / world.now <= 100_000 * 1.15


def test_an_empty_broker_is_left_soon_and_not_after_every_blob() -> None:
    world = World(5000, 8, 3, gone=frozenset(range(5000)))
    world.run()
    assert "nothing came" in str(world.reason)
    assert world.now < 2 * puller.QUIET_S


def test_a_broker_with_a_tenth_of_it_is_left_when_nothing_more_is_there() -> None:
    world = World(500, 8, 3, gone=frozenset(range(50, 500)))
    world.run()
    assert (len(world.kept), world.reason != "") == (50, True)
    assert world.now < 2 * puller.QUIET_S


def test_a_denied_subscription_is_given_to_the_next_source_at_once() -> None:
    world = World(3, 8, 4, denied=frozenset({1}))
    world.run()
    assert (world.lost, len(world.kept), world.reason) == ([world.name(1)], 2, "")
    assert world.now < 1


def test_a_broker_that_always_breaks_off_is_left_and_one_that_gives_a_little_is_not() -> None:
    cut = World(50, 4, 5, faults={"drop": 100})
    cut.run()
    assert cut.reason == "cut"
    little = World(50, 4, 6, faults={"drop": 12})
    little.run()
    assert (little.reason, len(little.kept)) == ("", 50)


def test_a_slow_link_is_not_asked_again_and_again() -> None:
    """64 kbit/s: each chunk takes eight seconds, and they come one behind the other."""
    names = [f"{n:064x}" for n in range(30)]
    pull, _ = puller.begin(names, window=8, rate=0, blob_bytes=BLOB, now_s=0.0)
    pull, todo = puller.step(pull, Event(What.CONNECTED), 0.0)
    line = deque(action.blob for action in todo)
    now, sent = 0.0, 0
    while not pull.over:
        arrival = now + 7.7
        while now + puller.due_s(pull, now) < arrival:
            now += max(0.001, puller.due_s(pull, now))
            pull, todo = puller.step(pull, Event(What.TICK), now)
            line.extend(action.blob for action in todo if action.do is Do.SUBSCRIBE)
        now = arrival
        pull, todo = puller.step(pull, Event(What.MESSAGE, line.popleft(), True, BLOB), now)
        sent += 1
        line.extend(action.blob for action in todo if action.do is Do.SUBSCRIBE)
    assert sent <= 38  # until it knows how slow it is


def test_a_refused_connection_ends_it_with_the_broker_s_word() -> None:
    pull, _ = puller.begin(["ab" * 32], window=8, rate=0, blob_bytes=BLOB, now_s=0.0)
    pull, todo = puller.step(pull, Event(What.REFUSED, reason="Not authorized"), 0.0)
    assert (todo[-1].do, todo[-1].reason, pull.over) == (Do.END, "Not authorized", True)
    assert puller.step(pull, Event(What.CONNECTED), 1.0) == (pull, ())


def test_nothing_wanted_is_done_at_once() -> None:
    pull, todo = puller.begin([], window=8, rate=0, blob_bytes=BLOB, now_s=0.0)
    assert (pull.over, todo) == (True, (Action(Do.END),))
