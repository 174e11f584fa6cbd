"""Any story of deliveries, duplicates, cuts and full disks: one effect and one end a command."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.services.fleet_desk_rig import Cut, Rig, good

from stoker.errors import StorageFailed
from stoker.events.fleet import FINAL

STEP = st.one_of(
    st.tuples(st.just("hear"), st.integers(1, 5)),
    st.tuples(st.just("turn"), st.just(0)),
    st.tuples(st.just("cut"), st.integers(1, 4)),
    st.tuples(st.just("full"), st.booleans().map(int)),
    st.tuples(st.just("hold"), st.booleans().map(int)),
    st.tuples(st.just("later"), st.integers(1, 60)),
)


def play(rig: Rig, step: tuple[str, int]) -> None:
    what, number = step
    match what:
        case "hear":
            word = "update.install" if number % 2 else "report.state"
            rig.hear(good(str(number), word, number))
        case "turn":
            rig.turns(2)
        case "cut":
            rig.store.cut_at = rig.store.writes + number
            rig.store.after = number % 2 == 0
        case "full":
            rig.store.full = bool(number)
        case "hold":
            rig.deeds.held = {"update.install"} if number else set()
        case "later":
            rig.now_s += number


@settings(max_examples=60, deadline=None)
@given(st.lists(STEP, max_size=30))
def test_every_command_has_one_effect_and_one_end(story: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(Path(folder))
        heard: set[str] = set()
        for step in story:
            try:
                play(rig, step)
                if step[0] == "hear":
                    heard.add(str(step[1]))
            except Cut:
                rig.reboot()
            except StorageFailed:
                pass  # not acknowledged: it comes again
        rig.store.full, rig.store.cut_at, rig.deeds.held = False, 0, set()
        for number in sorted(heard):
            rig.now_s += 100.0
            with contextlib.suppress(StorageFailed):
                rig.hear(good(number, "update.install" if int(number) % 2 else "report.state",
                              int(number)))  # fmt: skip
        for _ in range(20):
            rig.turns(3)
        ends: dict[str, set[int]] = {}
        for item in rig.told():
            if item["state"] in FINAL:
                ends.setdefault(item["id"], set()).add(int(item["number"]))
        for identity in heard:
            record = rig.store.command(identity)
            assert record is not None
            assert record.over
            assert ends[identity] == {record.number}
        effects = rig.deeds.effects
        assert len(effects) == len(set(effects))
        done = {item.id for item in rig.store.recent(99) if item.state == "succeeded"}
        assert done <= set(effects)
        rig.store.close()
