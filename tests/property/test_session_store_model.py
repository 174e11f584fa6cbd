"""SQLite does what the store in memory does, whatever is done, and whenever it is cut off."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.fakes.sessions import MemorySessionStore

from stoker.core import conversation
from stoker.drivers.session_store import SqliteSessionStore
from stoker.events.sessions import DONE, FAILED, Session, Settings, Turn
from stoker.units import Seconds

KEYS = st.sampled_from(["a", "b", "c"])
UIDS = st.sampled_from([1000, 1001])
TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
SETTINGS = st.builds(
    Settings, TEXT, TEXT, st.just(""), st.integers(0, 9), st.integers(0, 99),
    st.floats(0, 99).map(Seconds),
)  # fmt: skip


class StoreMachine(RuleBasedStateMachine):
    """The same steps on both; a crash reopens a copy of the files as they are at that moment."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="stoker-sessions-"))
        self.generation = 0
        self.real = SqliteSessionStore(self.folder / "s.db")
        self.real.open()
        self.model = MemorySessionStore()
        self.now_s = 100.0
        self.open: dict[str, Turn] = {}

    def teardown(self) -> None:
        self.real.close()
        shutil.rmtree(self.folder)

    def tick(self) -> float:
        self.now_s += 1.0
        return self.now_s

    @rule(key=KEYS, uid=UIDS, want=SETTINGS)
    def create(self, key: str, uid: int, want: Settings) -> None:
        if all(item.id != key for item in self.model.everyone()):
            now = self.tick()
            for store in (self.real, self.model):
                store.create(Session(key, uid, want, now, now))

    @rule(key=KEYS, uid=UIDS, want=SETTINGS)
    def configure(self, key: str, uid: int, want: Settings) -> None:
        assert self.real.configure(key, uid, want) == self.model.configure(key, uid, want)

    @rule(key=KEYS, uid=UIDS, question=TEXT)
    def begin(self, key: str, uid: int, question: str) -> None:
        if self.model.get(key, uid) is None:
            return
        turn = Turn(0, question, omitted_turns=1, asked_s=self.tick())
        first, second = (s.begin_turn(key, uid, turn) for s in (self.real, self.model))
        assert first == second
        self.open[key] = first

    @rule(key=KEYS, uid=UIDS, answer=TEXT, code=st.sampled_from(["", "cancelled"]))
    def finish(self, key: str, uid: int, answer: str, code: str) -> None:
        if key not in self.open:
            return
        turn = conversation.ended(
            self.open[key], answer, finish_reason="stop", error_code=code, truncated=False,
            tokens=(3, 4), now_s=self.tick(),
        )  # fmt: skip
        done = [store.finish_turn(key, uid, turn) for store in (self.real, self.model)]
        assert done[0] == done[1]

    @rule(key=KEYS, uid=UIDS)
    def drop(self, key: str, uid: int) -> None:
        if key in self.open:
            for store in (self.real, self.model):
                store.drop_turn(key, uid, self.open[key].number)

    @rule(key=KEYS, uid=UIDS, limit=st.integers(0, 4000))
    def trim(self, key: str, uid: int, limit: int) -> None:
        assert self.real.trim(key, uid, limit) == self.model.trim(key, uid, limit)

    @rule(key=KEYS, uid=UIDS, text=TEXT, upto=st.integers(0, 9), old=st.booleans())
    def summarize(self, key: str, uid: int, text: str, upto: int, old: bool) -> None:
        seen = self.model.get(key, uid) or Session(key, uid)
        seen = replace(seen, trimmed_turns=seen.trimmed_turns + old)
        done = [store.summarize(seen, text, upto) for store in (self.real, self.model)]
        assert done[0] == done[1]

    @rule(key=KEYS, copy=KEYS, uid=UIDS)
    def fork(self, key: str, copy: str, uid: int) -> None:
        if all(item.id != copy for item in self.model.everyone()):
            now = self.tick()
            done = [store.fork(key, uid, copy, now) for store in (self.real, self.model)]
            assert done[0] == done[1]

    @rule(key=KEYS, uid=UIDS)
    def delete(self, key: str, uid: int) -> None:
        assert self.real.delete(key, uid) == self.model.delete(key, uid)

    @rule()
    def checkpoint(self) -> None:
        assert self.real.checkpoint()

    @rule(keep=st.booleans())
    def crash(self, keep: bool) -> None:
        """The process is gone in the middle of everything; the next one opens the files."""
        self.generation += 1
        after = self.folder / f"{self.generation}.db"
        for tail in ("", "-wal"):
            source = self.real.file.path.with_name(self.real.file.path.name + tail)
            if source.exists():
                shutil.copy(source, after.with_name(after.name + tail))
        self.real.close()
        self.real = SqliteSessionStore(after)
        self.real.open()
        now = self.tick()
        assert self.real.settle(keep, now) == self.model.settle(keep, now)

    @invariant()
    def both_are_the_same(self) -> None:
        assert self.real.everyone() == self.model.everyone()
        assert set(self.real.holdings()) == set(self.model.holdings())
        for item in self.model.everyone():
            for uid in (1000, 1001):
                key = (item.id, uid)
                assert self.real.turns(*key, 0, 99) == self.model.turns(*key, 0, 99)
                assert self.real.answered(*key, 2) == self.model.answered(*key, 2)
                assert self.real.between(*key, 1, 4, 2) == self.model.between(*key, 1, 4, 2)


TestStore = StoreMachine.TestCase
TestStore.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip


@settings(
    max_examples=8, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(seed=st.integers(0, 10_000), after=st.integers(1, 40), delay_ms=st.integers(0, 15))
def test_sigkill_at_any_moment_costs_at_most_the_unfinished_turn(
    root: Path, child_env: dict[str, str], seed: int, after: int, delay_ms: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.db"
        command = [sys.executable, "-m", "tests.fakes.session_writer", str(path), str(seed)]
        said_here = {"stdout": subprocess.PIPE, "text": True}
        child = subprocess.Popen(command, cwd=root, env=child_env, **said_here)  # type: ignore[call-overload]
        assert child.stdout is not None
        said = [child.stdout.readline().split() for _ in range(after)]
        time.sleep(delay_ms / 1000)
        child.send_signal(signal.SIGKILL)
        said += [line.split() for line in child.stdout.read().splitlines()]
        child.wait()
        child.stdout.close()
        begun, ended = (
            max((int(words[1]) for words in said if words[0] == kind), default=0)
            for kind in ("begun", "ended")
        )
        store = SqliteSessionStore(path)
        store.open()
        assert not path.with_name("s.db.broken").exists()
        hurt = store.settle(True, 1e6)
        session = store.get("a", 1000)
        turns = store.turns("a", 1000, 0, 10_000)
        store.close()
    assert session is not None
    assert hurt <= 1
    done = [turn for turn in turns if turn.state == DONE]
    trimmed = session.trimmed_turns
    assert [turn.number for turn in turns] == list(range(trimmed + 1, trimmed + len(turns) + 1))
    assert all(turn.answer.startswith(f"answer {turn.number} ") for turn in done)
    assert all(turn.state == FAILED for turn in turns[len(done) :])
    newest = done[-1].number if done else trimmed
    assert ended <= newest <= ended + 1
    assert begun <= trimmed + len(turns) <= begun + 1


@pytest.mark.parametrize("cut", range(0, 40_000, 4000))
def test_a_log_cut_off_anywhere_opens_at_a_whole_transaction(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "s.db"
    store = SqliteSessionStore(path)
    store.open()
    store.create(Session("a", 1000, Settings(), 1.0, 1.0))
    for number in range(1, 6):
        turn = store.begin_turn("a", 1000, Turn(0, f"q{number}"))
        ended = conversation.ended(
            turn, "x" * 3000, finish_reason="stop", error_code="", truncated=False,
            tokens=(1, 1), now_s=1.0,
        )  # fmt: skip
        store.finish_turn("a", 1000, ended)
    copy = tmp_path / "copy.db"
    shutil.copy(path, copy)
    log = (tmp_path / "s.db-wal").read_bytes()
    (tmp_path / "copy.db-wal").write_bytes(log[: len(log) - cut])
    store.close()
    again = SqliteSessionStore(copy)
    again.open()
    found = again.everyone()
    turns = again.turns("a", 1000, 0, 100)
    again.close()
    assert not (tmp_path / "copy.db.broken").exists()
    assert len(found) <= 1
    assert [turn.number for turn in turns] == list(range(1, len(turns) + 1))
    assert all(turn.state == DONE for turn in turns[:-1])
