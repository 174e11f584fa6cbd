"""What an update leaves behind for later: offers, reasons, what failed, what was left, room."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.fakes.disk import FakeDisk
from tests.fakes.updates import NEW, OLD, Bench, document, sha

from stoker_ota.core import journal as journal_core
from stoker_ota.core import routes
from stoker_ota.core.floors import Floors
from stoker_ota.errors import NoMemory, NoSpace, TooLarge, Unavailable, WrongTarget
from stoker_ota.ports.files import Progress
from stoker_ota.services.engine import Engine
from stoker_ota.services.store import Store
from stoker_ota.values.deployment import MAX_MEMORY_FAILURES, Journal, Phase
from stoker_ota.values.fetching import Wanted
from stoker_ota.values.moves import Event, What


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.install_old()
    return made


def _until(engine: Engine, phase: Phase) -> None:
    while engine.journal.phase is not phase:
        assert engine.step(), f"{phase} is never reached"


@pytest.mark.parametrize(
    "said",
    ["; ".join(f"https://bucket/{n}?Signature={'a' * 1400}: refused" for n in range(3)),
     "cannot read /media/\udce9/bundle: gone", "\x00" * 5000, "ä" * 4096],
    ids=["long", "half a character", "zeros", "wide"],
)  # fmt: skip
def test_whatever_an_error_says_the_journal_is_read_back(bench: Bench, said: str) -> None:
    bench.sources.error = Unavailable(said)
    engine = bench.boot()
    engine.offer(*document())
    engine.run()
    assert engine.journal.phase is Phase.FETCHING
    again = bench.boot()
    assert (again.journal.phase, again.journal.offer) == (Phase.FETCHING, engine.journal.offer)
    bench.sources.error = None
    again.run()
    assert bench.content() == NEW


def test_reasons_one_after_the_other_are_bounded_too() -> None:
    data = journal_core.encode(Journal(reason="ä" * 9000, code="\udcff"))
    assert journal_core.decode(data).reason == "ä" * (journal_core.MAX_TEXT_BYTES // 2)


def test_an_offer_that_comes_while_another_is_committed_changes_nothing(bench: Bench) -> None:
    engine = bench.boot()
    engine.offer(*document())
    _until(engine, Phase.COMMITTED)
    with pytest.raises(Unavailable, match="committed"):
        engine.offer(*document(version=3))
    engine.run()
    assert (engine.journal.phase, bench.content()) == (Phase.IDLE, NEW)


def test_an_offer_that_is_refused_does_not_touch_the_one_that_waits(bench: Bench) -> None:
    failing, offer = document(version=3)
    engine = bench.boot()
    bench.health.sick = {sha(NEW)}
    engine.offer(failing, offer)
    engine.run()
    bench.health.sick = set()
    engine.offer(*document(window={"from_hour": 2, "to_hour": 4}))
    engine.run()
    assert engine.journal.phase is Phase.STAGED
    with pytest.raises(Unavailable):
        engine.offer(failing, offer)
    bench.around.hour = 3
    engine.go_on()
    engine.run()
    assert bench.content() == NEW
    assert [name for name in bench.disk.names("trust") if name.startswith("offer-")] == []


def test_an_update_under_way_under_the_name_of_before_goes_on(bench: Bench) -> None:
    engine = bench.boot()
    data, offer = document()
    engine.offer(data, offer)
    _until(engine, Phase.FETCHING)
    bench.disk.rename(f"trust/offer-{offer.manifest}.json", "trust/offer-chat.json")
    engine = bench.boot()
    engine.run()
    assert bench.content() == NEW


def test_what_an_administrator_left_comes_back_only_when_it_is_forced(bench: Bench) -> None:
    data, offer = document()
    engine = bench.boot()
    engine.offer(data, offer)
    engine.run()
    engine.go_back()
    engine.run()
    assert (bench.content(), engine.journal.failed) == (OLD, (offer.manifest,))
    engine = bench.boot()
    engine.offer(data, offer)
    engine.run()
    assert bench.content() == OLD
    engine.offer(data, replace(offer, forced=True))
    engine.run()
    assert (bench.content(), engine.journal.failed) == (NEW, ())


def test_a_journal_lost_during_a_trial_leaves_the_set_of_before(bench: Bench) -> None:
    engine = bench.boot()
    engine.offer(*document())
    _until(engine, Phase.TESTING)
    bench.disk.write("state.json", b"{half")
    engine = bench.boot()
    engine.run()
    assert (engine.journal.phase, bench.content(), bench.health.serving) == (Phase.IDLE, OLD, 1)


def test_a_journal_lost_after_the_commit_changes_nothing(bench: Bench) -> None:
    engine = bench.boot()
    engine.offer(*document())
    engine.run()
    bench.disk.write("state.json", b"{half")
    engine = bench.boot()
    engine.run()
    assert (engine.journal.phase, bench.content()) == (Phase.IDLE, NEW)


def test_memory_that_is_short_once_is_not_held_against_the_update(bench: Bench) -> None:
    bench.patcher.error = NoMemory("cannot apply: killed")
    engine = bench.boot()
    engine.offer(*document())
    engine.run()
    assert (engine.journal.phase, engine.waiting) == (Phase.APPLYING, True)
    engine = bench.boot()
    bench.patcher.error = None
    engine.run()
    assert (bench.content(), engine.journal.failed) == (NEW, ())


def test_memory_that_is_always_short_ends_the_update(bench: Bench) -> None:
    bench.patcher.error = NoMemory("cannot apply: killed")
    engine = bench.boot()
    engine.offer(*document())
    engine.run()
    for _ in range(MAX_MEMORY_FAILURES):
        engine.go_on()
        engine.run()
    assert (engine.journal.phase, len(engine.journal.failed)) == (Phase.IDLE, 1)


def test_memory_is_asked_for_before_anything_is_fetched_and_waited_for(bench: Bench) -> None:
    bench.around.memory = routes.APPLY_MEMORY_BYTES - 1
    engine = bench.boot()
    engine.offer(*document())
    engine.run()
    assert (engine.journal.phase, engine.journal.code) == (Phase.PREFLIGHT, "no-memory")
    assert bench.sources.fetched == []
    for _ in range(2 * MAX_MEMORY_FAILURES):
        engine.go_on()
        engine.run()
    assert engine.journal.phase is Phase.PREFLIGHT
    bench.around.memory += 1
    engine.go_on()
    engine.run()
    assert bench.content() == NEW


def test_memory_for_the_trial_is_asked_for_before_anything_is_fetched(bench: Bench) -> None:
    bench.health.cramped = NoMemory("cannot load m: it needs 912 MiB at least, 400 MiB are there")
    engine = bench.boot()
    engine.offer(*document())
    engine.run()
    assert (engine.journal.phase, engine.journal.code) == (Phase.PREFLIGHT, "no-memory")
    assert "912 MiB" in engine.journal.reason
    assert bench.sources.fetched == []
    bench.health.cramped = None
    engine.go_on()
    engine.run()
    assert bench.content() == NEW


def test_a_model_that_this_device_can_never_hold_is_refused_at_once(bench: Bench) -> None:
    bench.health.cramped = WrongTarget("cannot load m: it needs 9 GiB at least, there are 4")
    engine = bench.boot()
    engine.offer(*document())
    engine.run()
    assert (engine.journal.phase, len(engine.journal.failed)) == (Phase.IDLE, 1)
    assert bench.sources.fetched == []


def test_a_whole_artifact_needs_no_memory_for_deltas() -> None:
    bench = Bench()
    bench.around.memory = 0
    engine = bench.boot()
    engine.offer(*document())
    engine.run()
    assert bench.content() == NEW


def test_least_free_space_is_beside_what_the_update_takes(bench: Bench) -> None:
    bench.disk.free = routes.RESERVE_BYTES + (1 << 20)
    engine = bench.boot()
    engine.offer(*document(targets={"min_free_bytes": 1 << 20}))
    engine.run()
    assert engine.journal.phase is Phase.WAIT_SPACE
    bench.disk.free += len(NEW) + 1
    engine.take(Event(What.SPACE_FREED))
    engine.run()
    assert bench.content() == NEW


def test_what_was_fetched_before_the_disk_was_full_counts_as_room(bench: Bench) -> None:
    whole = bench.sources.fetch

    def full(wanted: Wanted, part: str, progress: Progress) -> None:
        whole(wanted, part, progress)
        raise NoSpace("cannot write: full")

    bench.sources.fetch = full  # type: ignore[method-assign]
    engine = bench.boot()
    engine.offer(*document())
    engine.run()
    assert engine.journal.phase is Phase.WAIT_SPACE
    bench.sources.fetch = whole  # type: ignore[method-assign]
    bench.disk.free = routes.RESERVE_BYTES + len(NEW)  # beside the delta, which is here
    engine.take(Event(What.SPACE_FREED))
    engine.run()
    assert bench.content() == NEW


def test_a_set_that_was_returned_to_and_is_not_well_is_told(bench: Bench) -> None:
    bench.health.sick, bench.health.fault = {sha(NEW)}, "it writes nothing"
    engine = bench.boot()
    engine.offer(*document())
    engine.run()
    last = Store(bench.disk).history().records[-1]
    assert (last["what"], last["code"]) == ("failed", "unhealthy")
    assert "it writes nothing" in str(last["reason"])
    assert "out of bounds" in str(last["reason"])
    failed = next(j for j in reversed(bench.reports) if j.phase is Phase.FAILED)
    assert "it writes nothing" in failed.reason


def test_a_return_on_demand_to_a_set_that_is_not_well_is_no_success(bench: Bench) -> None:
    engine = bench.boot()
    engine.offer(*document())
    engine.run()
    bench.health.fault = "it writes nothing"
    engine.go_back()
    engine.run()
    failed = next(j for j in reversed(bench.reports) if j.phase is Phase.FAILED)
    assert (failed.code, failed.reason) == ("unhealthy", "it writes nothing")


def test_floors_of_many_names_are_read_back_or_refused() -> None:
    store = Store(FakeDisk())
    many = Floors(counters={f"{'n' * 120}{number}": 5 for number in range(3000)})
    store.save_floors(many)
    assert store.floors() == many
    with pytest.raises(TooLarge):
        store.save_floors(Floors(counters={f"{'n' * 120}{number}": 5 for number in range(40_000)}))
    assert store.floors() == many
