"""Every phase × {error, kill, hang, cancel}, from the list of phases itself: whatever happens in
whichever phase, the device runs the old set or the new one, and the next update goes through.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.fakes.disk import PowerCutError
from tests.fakes.updates import NEW, OLD, Bench, document, sha

from stoker_ota.errors import OtaError
from stoker_ota.services.engine import Engine
from stoker_ota.services.store import Store
from stoker_ota.values.deployment import Phase
from stoker_ota.values.moves import Event, What

UNENDING = (Phase.IDLE, Phase.ACTIVATING, Phase.COMMITTED, Phase.ROLLING_BACK, Phase.FAILED)
"""Where there is nothing to cancel (yet, or any more)."""


def reached(phase: Phase) -> tuple[Bench, Engine]:
    """A device in the phase, about to do what the phase does."""
    bench = Bench()
    bench.install_old()
    bench.around.inhibitor = "a test" if phase is Phase.WAIT_WINDOW else ""
    bench.disk.free = 1000 if phase is Phase.WAIT_SPACE else bench.disk.free
    bench.health.sick = {sha(NEW)} if phase in (Phase.ROLLING_BACK, Phase.FAILED) else set()
    engine = bench.boot()
    if phase is Phase.IDLE:
        return bench, engine
    engine.offer(*document())
    while engine.journal.phase is not phase:
        assert engine.step(), f"{phase} is never reached"
    return bench, engine


def settled(bench: Bench) -> None:
    """As after a restart, with everything in order again."""
    bench.disk.fail_at = bench.disk.fail_read_at = bench.disk.cut_at = 0
    assert bench.content() in (OLD, NEW)
    bench.around.inhibitor, bench.disk.free = "", 1 << 40
    engine = bench.boot()
    engine.run()
    engine.take(Event(What.SPACE_FREED))
    engine.run()
    assert engine.journal.phase is Phase.IDLE, engine.journal
    assert bench.content() in (OLD, NEW)
    assert bench.health.serving == Store(bench.disk).current()
    bench.health.sick = set()
    data, offer = document()
    engine.offer(data, replace(offer, forced=True))  # nothing is stuck
    engine.run()
    assert (engine.journal.phase, bench.content()) == (Phase.IDLE, NEW)


def operations(phase: Phase) -> int:
    """What the disk does from there to the end of the update."""
    bench, engine = reached(phase)
    before = bench.disk.count
    engine.run()
    return bench.disk.count - before


@pytest.mark.parametrize("failure", ["eio", "enospc"])
@pytest.mark.parametrize("phase", Phase)
def test_an_error_of_the_disk_at_any_operation_from_a_phase_on(phase: Phase, failure: str) -> None:
    for at in range(1, operations(phase) + 1):
        bench, engine = reached(phase)
        bench.disk.failure, bench.disk.fail_at = failure, bench.disk.count + at
        with contextlib.suppress(OtaError):  # the journal could not be written: as a restart
            engine.run()
        settled(bench)


@pytest.mark.parametrize("phase", Phase)
def test_an_error_of_any_read_from_a_phase_on(phase: Phase) -> None:
    bench, engine = reached(phase)
    before = bench.disk.reads
    engine.run()
    for at in range(1, bench.disk.reads - before + 1):
        bench, engine = reached(phase)
        bench.disk.fail_read_at = bench.disk.reads + at
        with contextlib.suppress(OtaError):
            engine.run()
        settled(bench)


@pytest.mark.parametrize("phase", Phase)
def test_a_kill_at_any_operation_from_a_phase_on(phase: Phase) -> None:
    for at in range(1, operations(phase) + 1):
        bench, engine = reached(phase)
        bench.disk.cut_at = bench.disk.count + at
        with pytest.raises(PowerCutError):
            engine.run()
        bench.cut(bench.disk.after_cut(random.Random(at)))
        settled(bench)


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("phase", Phase)
def test_a_hang_in_a_phase_ended_by_a_kill(phase: Phase, done: bool) -> None:
    """A source, a delta or a model that never comes back, with its work undone or done."""
    bench, engine = reached(phase)
    hung: list[Phase] = []
    with _hanging(bench, engine, done, hung), contextlib.suppress(PowerCutError):
        engine.run()
    assert hung or phase in (Phase.IDLE, Phase.WAIT_WINDOW, Phase.WAIT_SPACE, *UNENDING)
    bench.cut(bench.disk.after_cut(random.Random(1)))
    settled(bench)


@contextlib.contextmanager
def _hanging(bench: Bench, engine: Engine, done: bool, hung: list[Phase]) -> Iterator[None]:
    """The first call to the world outside never returns."""

    def stuck(work: Callable[..., Any]) -> Callable[..., None]:
        def call(*words: Any) -> None:
            if done:
                work(*words)
            hung.append(engine.journal.phase)
            raise PowerCutError

        return call

    places = [(bench.sources, "fetch"), (bench.patcher, "apply"), (bench.health, "test"),
              (bench.health, "switch")]  # fmt: skip
    kept = [(part, name, getattr(part, name)) for part, name in places]
    for part, name, work in kept:
        setattr(part, name, stuck(work))
    yield
    for part, name, work in kept:
        setattr(part, name, work)


@pytest.mark.parametrize("phase", Phase)
def test_a_cancel_in_a_phase(phase: Phase) -> None:
    """Before the commit it leaves the old set; nothing is held against what only was ended."""
    bench, engine = reached(phase)
    assert engine.cancel() is (phase not in UNENDING)
    engine.run()
    if phase not in UNENDING:
        assert (engine.journal.phase, bench.content()) == (Phase.IDLE, OLD)
        assert bool(engine.journal.failed) is (phase is Phase.TESTING)
    settled(bench)
