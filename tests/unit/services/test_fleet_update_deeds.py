"""Update commands over cuts: they look first at what is there, and never do a thing twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest
from tests.fakes.update_door import FakeUpdates

from stoker.errors import Busy, InvalidRequest, StokerError
from stoker.events.updates import Deployment, InstallOptions, UpdateJob, UpdateSnapshot
from stoker.getters import Table
from stoker.ports.updates import Record
from stoker.services.fleet_outcome import Deed, Outcome
from stoker.services.fleet_update_deeds import RETRY_S, InstallDeed, RollbackDeed


class Door(FakeUpdates):
    """``listed`` is what sources have; ``busy`` refuses as the service does."""

    def __init__(self) -> None:
        super().__init__()
        self.listed: tuple[Deployment, ...] = (Deployment("chat", 2, "new", source="/a"),)
        self.busy = False
        self.installed: list[InstallOptions] = []
        self.rollbacks = 0
        self.now = UpdateSnapshot(current=1)

    def snapshot(self) -> UpdateSnapshot:
        return self.now

    def check(self) -> Future[Sequence[Deployment]]:
        asked: Future[Sequence[Deployment]] = Future()
        if self.busy:
            asked.set_exception(Busy("cannot begin: another is under way"))
        else:
            asked.set_result(self.listed)
        return asked

    def install_listed(self, options: InstallOptions) -> Future[UpdateJob]:
        self.installed.append(options)
        return self.begin("install", options.deployment)

    def rollback(self) -> Future[UpdateJob]:
        self.rollbacks += 1
        return self.begin("rollback", "")

    def begin(self, kind: str, name: str) -> Future[UpdateJob]:
        job = UpdateJob("9", kind, name, 2 if name else 0, phase="fetching")
        self.jobs[job.id], self.current_job = job, job.id
        done: Future[UpdateJob] = Future()
        done.set_result(job)
        return done

    def end(self, state: str, code: str = "") -> None:
        self.jobs["9"] = replace(self.jobs["9"], state=state, error_code=code)
        self.current_job = ""

    def history(self, offset: int, limit: int) -> Future[Sequence[Record]]:
        return super().history(offset, limit)


class Rig:
    def __init__(self) -> None:
        self.door, self.now_s, self.notes = Door(), 0.0, dict[str, object]()

    def install(self, **args: object) -> InstallDeed:
        table = Table({"deployment": "chat", **args}, _fail)
        return InstallDeed(self.door, table, self.note, lambda: self.now_s)

    def rollback(self) -> RollbackDeed:
        return RollbackDeed(self.door, self.notes, self.note)

    def note(self, values: Mapping[str, object]) -> None:
        self.notes |= values

    def run(self, deed: Deed, turns: int = 6) -> Outcome | None:
        for _ in range(turns):
            found = deed.poll()
            if found is not None:
                return found
        return None


def _fail(path: str, reason: str) -> StokerError:
    return InvalidRequest(f"{path}: {reason}")


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_what_is_new_is_installed_and_followed_to_its_end(rig: Rig) -> None:
    deed = rig.install()
    assert rig.run(deed) is None
    assert rig.notes == {"version": 2}
    rig.door.end("done")
    assert rig.run(deed) == Outcome("done", data={"deployment": "chat", "version": 2})


def test_one_that_a_restart_goes_on_with_is_followed_and_not_begun_again(rig: Rig) -> None:
    rig.door.begin("install", "chat")
    rig.door.busy = True
    deed = rig.install(version=2)
    assert rig.run(deed) is None
    rig.door.end("done")
    found = rig.run(deed)
    assert found is not None
    assert found.what == "done"
    assert rig.door.installed == []


def test_somebody_elses_update_is_waited_for(rig: Rig) -> None:
    rig.door.begin("install", "other")
    rig.door.busy = True
    deed = rig.install()
    assert rig.run(deed) is None
    rig.door.end("done")
    rig.door.busy = False
    assert rig.run(deed) is None
    assert rig.door.installed == []  # not before the time is over
    rig.now_s += RETRY_S + 1
    assert rig.run(deed) is None
    assert len(rig.door.installed) == 1


@pytest.mark.parametrize(
    ("state", "force", "what"),
    [("installed", False, "done"), ("failed", False, "refused"), ("refused", False, "refused"),
     ("absent", True, "refused"), ("failed", True, ""), ("installed", True, "")],
)  # fmt: skip
def test_what_the_sources_say_decides(rig: Rig, state: str, force: bool, what: str) -> None:
    rig.door.listed = (Deployment("chat", 2, state, source="/a"),)
    found = rig.run(rig.install(force=force))
    assert (found.what if found is not None else "") == what
    assert bool(rig.door.installed) is (what == "")


def test_a_version_that_nobody_has_is_refused(rig: Rig) -> None:
    found = rig.run(rig.install(version=3))
    assert found is not None
    assert (found.what, found.code) == ("refused", "not-found")


def test_a_failed_job_fails_its_command_with_its_code(rig: Rig) -> None:
    deed = rig.install()
    rig.run(deed)
    rig.door.end("failed", "unhealthy")
    found = rig.run(deed)
    assert found is not None
    assert (found.what, found.code) == ("broken", "unhealthy")


def test_an_installation_can_be_stopped_until_it_settles(rig: Rig) -> None:
    deed = rig.install()
    assert deed.cancel()
    found = rig.run(deed)
    assert found is not None
    assert found.what == "canceled"
    deed = rig.install()
    rig.run(deed)
    rig.door.jobs["9"] = replace(rig.door.jobs["9"], phase="committed")
    assert not deed.cancel()
    rig.door.jobs["9"] = replace(rig.door.jobs["9"], phase="applying")
    assert deed.cancel()
    found = rig.run(deed)
    assert found is not None
    assert found.what == "canceled"


def test_an_installation_that_is_stopped_between_asking_and_hearing_does_not_go_on(
    rig: Rig,
) -> None:
    deed = rig.install()
    while not rig.door.installed:
        assert deed.poll() is None
    assert deed.cancel()  # its job is there, but the command has not heard which
    found = rig.run(deed)
    assert rig.door.jobs["9"].error_code == "cancelled"
    assert found is not None
    assert found.what == "canceled"


def test_unknown_words_are_refused_before_anything_begins(rig: Rig) -> None:
    with pytest.raises(InvalidRequest):
        rig.install(colour="red")
    with pytest.raises(InvalidRequest):
        rig.install(version="latest")


def returned(rig: Rig, **changes: Any) -> None:
    rig.door.now = replace(rig.door.now, **changes)


def test_a_return_notes_where_it_began_before_it_begins(rig: Rig) -> None:
    deed = rig.rollback()
    assert rig.run(deed) is None
    assert rig.notes == {"before": 1}
    assert rig.door.rollbacks == 1
    returned(rig, current=0)
    rig.door.end("done")
    assert rig.run(deed) == Outcome("done", data={"current": 0})


def test_a_return_that_was_cut_is_looked_at_first(rig: Rig) -> None:
    rig.run(rig.rollback())  # … and now the power goes
    deed = rig.rollback()  # it runs on: the restart went on with it
    assert rig.run(deed) is None
    returned(rig, current=0)
    rig.door.end("done")
    found = rig.run(deed)
    assert found is not None
    assert found.what == "done"
    assert rig.run(rig.rollback()) == Outcome("done", data={"current": 0})  # it was over
    assert rig.door.rollbacks == 1
