"""The update engine from offer to commit and back, and every way it can go wrong."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from tests.fakes.disk import FakeDisk, PowerCutError
from tests.fakes.updates import MORE, NEW, OLD, Bench, document, sha

from stoker_ota.core.machine import TABLE
from stoker_ota.core.targeting import Device
from stoker_ota.errors import (
    BadDelta,
    ChunkHash,
    FileUnreadable,
    NoMemory,
    NoSpace,
    OtaError,
    SourceMismatch,
    StorageFailed,
    Unavailable,
    Unhealthy,
)
from stoker_ota.services.engine import Engine
from stoker_ota.services.store import Store
from stoker_ota.values.deployment import Phase
from stoker_ota.values.moves import Event, What


def _update(bench: Bench, engine: Engine, **changes: object) -> Engine:
    engine.offer(*document(**changes))
    engine.run()
    return engine


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.install_old()
    return made


def test_a_delta_is_fetched_applied_tested_and_committed(bench: Bench) -> None:
    engine = _update(bench, bench.boot())
    assert bench.content() == NEW
    assert bench.sources.fetched == ["file:delta"]
    assert engine.journal.phase is Phase.IDLE
    store = Store(bench.disk)
    assert store.previous() == 1
    assert store.floors().document("manifest:chat") == 2
    assert store.floors().counters == {"chat": 2}
    assert [record["what"] for record in store.history().records] == ["committed"]
    assert bench.disk.names("staging") == ()


def test_a_sick_set_is_left_for_the_one_before_and_its_manifest_remembered(bench: Bench) -> None:
    bench.health.sick = {sha(NEW)}
    engine = _update(bench, bench.boot())
    assert (bench.content(), bench.health.serving) == (OLD, 1)
    assert engine.journal.phase is Phase.IDLE
    assert Store(bench.disk).floors().counters == {}
    engine = _update(bench, bench.boot())
    assert bench.content() == OLD  # not again
    assert bench.health.tested == [2]


def test_a_first_update_of_the_package_s_own_model_can_return_to_it() -> None:
    bench = Bench()
    bench.disk.make_folder("package")
    bench.disk.write("package/model", OLD)
    bench.around.files = {sha(OLD): "package/model"}
    bench.health.sick = {sha(NEW)}
    _update(bench, bench.boot())
    assert (bench.content(), bench.health.serving) == (None, 0)
    bench.health.sick = set()
    data, offer = document()
    engine = bench.boot()
    engine.offer(data, replace(offer, forced=True))
    engine.run()
    assert bench.content() == NEW


def test_what_is_here_already_is_not_fetched_again(bench: Bench) -> None:
    _update(bench, bench.boot())
    engine = _update(bench, bench.boot(), version=3)
    assert engine.journal.phase is Phase.IDLE
    assert bench.sources.fetched == ["file:delta"]
    assert Store(bench.disk).floors().document("manifest:chat") == 3


def test_a_delta_that_fails_twice_gives_way_to_the_whole_file(bench: Bench) -> None:
    bench.patcher.error = BadDelta("cannot apply the delta: no")
    _update(bench, bench.boot())
    assert bench.content() == NEW
    assert bench.sources.fetched[-1] == "file:full"


def test_without_leave_for_the_whole_file_a_broken_delta_ends_the_update(bench: Bench) -> None:
    bench.patcher.error = BadDelta("cannot apply the delta: no")
    _update(bench, bench.boot(), network={"allow_full": False})
    assert bench.content() == OLD
    assert "file:full" not in bench.sources.fetched


def test_bytes_with_another_hash_never_reach_the_patcher(bench: Bench) -> None:
    bench.sources.files = {"file:delta": b"\x02", "file:full": b"junk"}
    _update(bench, bench.boot())
    assert bench.content() == OLD
    assert [r["code"] for r in Store(bench.disk).history().records][-1] == "chunk-hash"


def test_a_missing_source_waits_and_goes_on_when_it_is_back(bench: Bench) -> None:
    bench.sources.error = Unavailable("cannot fetch: the link is down")
    engine = _update(bench, bench.boot())
    assert (engine.journal.phase, engine.waiting) == (Phase.FETCHING, True)
    bench.sources.error = None
    engine.go_on()
    engine.run()
    assert bench.content() == NEW


def test_a_delta_whose_source_is_not_here_takes_the_whole_file(bench: Bench) -> None:
    other = Bench()
    _update(other, other.boot())
    assert other.sources.fetched == ["file:full"]
    assert other.content() == NEW


def test_a_full_disk_is_said_before_anything_is_fetched_and_waited_for(bench: Bench) -> None:
    bench.disk.free = 1000
    engine = _update(bench, bench.boot())
    assert engine.journal.phase is Phase.WAIT_SPACE
    assert engine.journal.code == "no-space"
    assert bench.sources.fetched == []
    bench.disk.free = 1 << 40
    engine.take(Event(What.SPACE_FREED))
    engine.run()
    assert bench.content() == NEW


def test_a_wrong_board_is_refused_and_an_inhibitor_or_a_window_waited_for(bench: Bench) -> None:
    engine = _update(bench, bench.boot(), targets={"boards": ["rk3588"]})
    assert (engine.journal.phase, bench.content()) == (Phase.IDLE, OLD)
    bench.around.inhibitor = "a nurse is talking to it"
    engine = _update(bench, bench.boot())
    assert engine.journal.phase is Phase.WAIT_WINDOW
    bench.around.inhibitor = ""
    engine.go_on()
    engine.run()
    assert bench.content() == NEW


def test_a_window_holds_back_the_activation_but_not_the_fetching(bench: Bench) -> None:
    engine = _update(bench, bench.boot(), window={"from_hour": 2, "to_hour": 4})
    assert engine.journal.phase is Phase.STAGED
    assert bench.content() == OLD
    bench.around.hour = 3
    engine.go_on()
    engine.run()
    assert bench.content() == NEW


def test_a_confirmation_is_waited_for_and_without_it_a_cancel_returns(bench: Bench) -> None:
    engine = _update(bench, bench.boot(), health={"confirm": "dbus"})
    assert (engine.journal.phase, engine.journal.healthy) == (Phase.TESTING, True)
    engine.take(Event(What.CANCELLED))
    engine.run()
    assert bench.content() == OLD


def test_a_rollback_on_demand_goes_to_the_previous_set(bench: Bench) -> None:
    engine = _update(bench, bench.boot())
    engine.take(Event(What.GO_BACK))
    engine.run()
    assert (bench.content(), bench.health.serving) == (OLD, 1)


def test_a_failed_update_leaves_the_way_back_to_the_set_before(bench: Bench) -> None:
    _update(bench, bench.boot())
    bench.sources.files["file:more"] = MORE
    bench.health.sick = {sha(MORE)}
    more = {
        "kind": "model", "name": "chat", "version": "3", "release_counter": 3, "size": len(MORE),
        "sha256": sha(MORE), "full": ["file:more"],
    }  # fmt: skip
    engine = _update(bench, bench.boot(), version=3, artifacts=[more])
    store = Store(bench.disk)
    assert (bench.content(), store.current(), store.previous()) == (NEW, 2, 1)
    engine = bench.boot()
    engine.run()
    engine.take(Event(What.GO_BACK))
    engine.run()
    assert (bench.content(), bench.health.serving) == (OLD, 1)


def test_an_agent_too_old_is_told_to_upgrade(bench: Bench) -> None:
    bench.around.facts = Device("d", agent_version="0.9")
    engine = _update(bench, bench.boot(), min_agent_version="1.0")
    assert engine.journal.phase is Phase.IDLE
    assert Store(bench.disk).history().records[-1]["code"] == "dependency"


ERRORS: list[OtaError] = [
    NoSpace("cannot write: full"),
    StorageFailed("cannot write: broken"),
    Unavailable("cannot fetch: down"),
    ChunkHash("cannot use: hash"),
    NoMemory("cannot apply: memory"),
    Unhealthy("cannot switch: sick"),
]
WHERE = ["sources", "patcher", "health"]


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.code)
def test_every_error_of_every_part_leaves_a_set_that_serves(where: str, error: OtaError) -> None:
    bench = Bench()
    bench.install_old()
    part = getattr(bench, where)
    part.error = error
    engine = _update(bench, bench.boot())
    assert bench.content() == OLD or where == "patcher"
    part.error = None
    engine.go_on()
    engine.run()
    engine.take(Event(What.SPACE_FREED))
    engine.run()
    assert bench.content() in (OLD, NEW)
    assert bench.health.serving == Store(bench.disk).current()
    assert engine.journal.phase in (Phase.IDLE, Phase.WAIT_SPACE)


def test_every_phase_that_works_has_a_row_for_any_error() -> None:
    resting = {Phase.IDLE, Phase.WAIT_SPACE, Phase.FAILED}
    assert {p for p, what in TABLE if what is What.ERROR} == set(Phase) - resting


def _length(sick: bool) -> int:
    bench = Bench()
    bench.install_old()
    bench.health.sick = {sha(NEW)} if sick else set()
    before = bench.disk.count
    _update(bench, bench.boot())
    return bench.disk.count - before


@pytest.mark.parametrize("sick", [False, True], ids=["healthy", "sick"])
def test_a_power_cut_at_every_operation_of_a_whole_update_ends_in_old_or_new(sick: bool) -> None:
    for at in range(1, _length(sick) + 1):
        for seed in range(3):
            bench = Bench()
            bench.install_old()
            bench.health.sick = {sha(NEW)} if sick else set()
            bench.disk.cut_at = bench.disk.count + at
            with pytest.raises(PowerCutError):
                _update(bench, bench.boot())
            bench.cut(bench.disk.after_cut(random.Random(seed)))
            assert bench.content() in (OLD, NEW)
            engine = bench.boot()
            engine.run()
            assert engine.journal.phase is Phase.IDLE, engine.journal
            if engine.journal.failed == ():
                _update(bench, engine)  # nothing is stuck: the same offer goes through again
            assert bench.content() == (OLD if sick else NEW)
            assert bench.health.serving == Store(bench.disk).current()


def test_cuts_upon_cuts_always_come_to_an_end() -> None:
    chance = random.Random(7)
    for _ in range(40):
        bench = Bench()
        bench.install_old()
        offered = False
        for _ in range(6):
            bench.disk.cut_at = bench.disk.count + chance.randint(1, 60)
            try:
                engine = bench.boot()
                if not offered:
                    engine.offer(*document())
                    offered = True
                engine.run()
            except PowerCutError:
                bench.cut(bench.disk.after_cut(chance))
            bench.disk.cut_at = 0
            assert bench.content() in (OLD, NEW)
        bench.disk.cut_at = 0
        engine = bench.boot()
        engine.run()
        assert engine.journal.phase is Phase.IDLE
        assert bench.health.serving == Store(bench.disk).current()


def test_the_bench_is_the_real_store_on_a_disk_that_can_be_cut() -> None:
    assert isinstance(Bench().disk, FakeDisk)


@pytest.mark.parametrize("allowed", [True, False])
@pytest.mark.parametrize("error", [SourceMismatch, FileUnreadable])
def test_a_corrupt_source_gives_way_to_the_whole_file_only_if_that_is_allowed(
    bench: Bench, allowed: bool, error: type[OtaError]
) -> None:
    bench.patcher.error = error("cannot apply the delta: the source is another file")
    engine = _update(bench, bench.boot(), network={"allow_full": allowed})
    assert bench.content() == (NEW if allowed else OLD)
    assert engine.journal.phase is Phase.IDLE
    if not allowed:
        assert Store(bench.disk).history().records[-1]["code"] == error.code


def test_a_set_that_cannot_be_read_while_it_is_cleaned_up_keeps_its_objects(bench: Bench) -> None:
    engine = bench.boot()
    engine.offer(*document())
    while engine.journal.phase is not Phase.IDLE:
        engine.step()
    bench.disk.unreadable = {"generations/2/set.json"}
    engine.run()  # cleans up
    bench.disk.unreadable = set()
    assert bench.content() == NEW


def test_a_damaged_set_of_before_does_not_keep_an_update_from_its_end(bench: Bench) -> None:
    engine = _update(bench, bench.boot())
    bench.disk.write("generations/1/set.json", b"{half")
    bench.health.sick = {sha(MORE)}
    bench.sources.files["file:more"] = MORE
    more = {
        "kind": "model", "name": "chat", "version": "3", "release_counter": 3, "size": len(MORE),
        "sha256": sha(MORE), "full": ["file:more"],
    }  # fmt: skip
    engine = _update(bench, bench.boot(), version=3, artifacts=[more])
    assert (engine.journal.phase, bench.content()) == (Phase.IDLE, NEW)
