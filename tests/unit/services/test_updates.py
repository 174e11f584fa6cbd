"""The update thread: jobs, waits, stops, and an engine whose disk or code fails."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path

import pytest

from stoker import errors
from stoker.events.updates import Deployment, InstallOptions, UpdateJob, UpdateSnapshot
from stoker.ports.updates import Record, Reports
from stoker.services import updates
from stoker.services.update_polling import Polling
from stoker.services.updates import UpdateService
from stoker.units import Seconds


class Engine:
    """An Updater whose steps a test writes: each is called with the reports."""

    def __init__(self, reports: Reports, steps: list[Callable[[Reports], None]]) -> None:
        self.reports, self.steps, self.waiting = reports, steps, False
        self.phase, self.replaceable, self.retries, self.begun = "idle", False, 0, 0

    def begin(self) -> None:
        self.begun += 1

    def install(self, folder: str, options: InstallOptions) -> tuple[str, int]:
        if not Path(folder).is_dir():
            raise errors.FileUnreadable("cannot read the bundle: no folder")
        self.phase = "offered"
        return options.deployment or "chat", 1

    def renew_trust(self, steps: Sequence[bytes]) -> int:
        return 1 + len(steps)

    def rollback(self) -> None:
        self.phase = "rolling-back"

    def confirm(self, deployment: str) -> None: ...

    def cancel(self) -> bool:
        self.say("failed", "cancelled")
        self.steps.clear()
        self.phase = "idle"
        return True

    def step(self) -> bool:
        if not self.steps or self.phase == "idle":
            return False
        self.steps.pop(0)(self.reports)
        return True

    def retry(self) -> None:
        self.retries += 1

    def snapshot(self) -> UpdateSnapshot:
        return UpdateSnapshot(state=self.phase)

    def inspect(self, folder: str, *, keep: bool) -> Sequence[Deployment]:
        return [Deployment("chat", 1, "new")]

    def history(self) -> Sequence[Record]:
        return [{"what": str(number)} for number in range(5)]

    def say(self, phase: str, code: str = "") -> None:
        self.phase = phase
        self.reports.phase(phase, code, code and f"it is {code}")


class Rig:
    def __init__(self, **options: object) -> None:
        self.engines: list[Engine] = []
        self.steps: list[Callable[[Reports], None]] = []
        values: dict[str, object] = {"resume": False, "retry_s": Seconds(0.01), **options}
        self.service = UpdateService(self.build, **values)  # type: ignore[arg-type]
        self.service.start()

    def build(self, reports: Reports) -> Engine:
        self.engines.append(Engine(reports, self.steps))
        return self.engines[-1]

    def install(self, deployment: str = "") -> str:
        folder = os.open("/", os.O_RDONLY)
        return self.service.install(folder, InstallOptions(deployment)).result(5).id

    def end(self, job: str) -> tuple[str, str]:
        found = self.service.job(job)
        until = time.monotonic() + 5
        while (found := self.service.job(job)) is None or not found.over:
            assert time.monotonic() < until, found
            time.sleep(0.001)
        return found.state, found.error_code

    def phases(self, *names: str, code: str = "") -> list[Callable[[Reports], None]]:
        return [lambda _r, name=name: self.engines[-1].say(name, code) for name in names]  # type: ignore[misc]


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.service.stop(Seconds(5.0))


def test_a_commit_ends_the_job_when_the_engine_rests(rig: Rig) -> None:
    rig.steps += rig.phases("preflight", "fetching", "committed", "idle")
    assert rig.end(rig.install()) == ("done", "")
    assert rig.service.snapshot().error_code == ""


def test_a_failure_is_the_job_s_and_the_last_error(rig: Rig) -> None:
    rig.steps += rig.phases("rolling-back", "failed", code="unhealthy")
    assert rig.end(rig.install()) == ("failed", "unhealthy")
    while rig.service.snapshot().error_code != "unhealthy":
        time.sleep(0.001)


def test_work_that_comes_while_the_engine_finds_nothing_to_do_is_not_left_lying(rig: Rig) -> None:
    rig.steps += rig.phases("committed", "idle")
    rig.end(rig.install())
    engine = rig.engines[-1]
    asked: list[Future[UpdateJob]] = []
    idle = engine.step

    def step() -> bool:
        moved = idle()
        if not moved and not asked:  # right now, before the thread waits for work
            rig.steps += rig.phases("committed", "idle")
            asked.append(rig.service.install(os.open("/", os.O_RDONLY), InstallOptions()))
        return moved

    engine.step = step  # type: ignore[method-assign]
    rig.service.release(0)
    while not asked:
        time.sleep(0.001)
    assert rig.end(asked[0].result(5).id) == ("done", "")


def test_a_return_that_was_asked_for_is_no_failure(rig: Rig) -> None:
    rig.steps += rig.phases("failed", code="requested")
    assert rig.end(rig.service.rollback().result(5).id) == ("done", "")


def test_a_disk_that_fails_is_tried_again_with_a_new_engine(rig: Rig) -> None:
    def full(_reports: Reports) -> None:
        raise errors.NoSpace("cannot write state.json: no space")

    def go_on(_reports: Reports) -> None:
        rig.engines[-1].say("committed")

    rig.steps += [full]
    job = rig.install()
    while len(rig.engines) < 2:
        time.sleep(0.001)
    rig.engines[-1].phase = "offered"
    rig.steps += [go_on, *rig.phases("idle")]
    rig.service.release(0)  # any word wakes it
    assert rig.end(job) == ("done", "")
    assert rig.engines[-1].begun == 1


def test_a_fault_of_ours_ends_updates_and_nothing_else(rig: Rig) -> None:
    def fault(_reports: Reports) -> None:
        raise KeyError("bug")

    rig.steps += [fault]
    assert rig.end(rig.install()) == ("failed", "internal")
    assert any(thread.name == "updates" for thread in threading.enumerate())
    with pytest.raises(errors.InternalError, match="bug"):
        rig.install()


def test_a_second_one_is_busy_and_a_cancel_ends_the_first(rig: Rig) -> None:
    def hang(reports: Reports) -> None:
        while not reports.cancelled():
            time.sleep(0.001)

    rig.steps += [hang]
    job = rig.install()
    with pytest.raises(errors.Busy):
        rig.install("other")
    rig.service.cancel(job)
    assert rig.end(job) == ("failed", "cancelled")


def test_a_stop_in_the_middle_leaves_the_thread_ended(rig: Rig) -> None:
    begun = threading.Event()

    def hang(reports: Reports) -> None:
        begun.set()
        while not reports.cancelled():
            time.sleep(0.001)

    rig.steps += [hang]
    job = rig.install()
    begun.wait(5)
    rig.service.stop(Seconds(5.0))
    assert not any(thread.name == "updates" for thread in threading.enumerate())
    found = rig.service.job(job)
    assert found is not None
    assert not found.over  # the next start goes on


def fetching(reports: Reports) -> Engine:
    """What a process that was killed in the middle leaves."""
    engine = Engine(reports, [])
    engine.phase, engine.waiting = "fetching", True
    return engine


def test_what_was_under_way_is_a_job_after_a_restart() -> None:
    rig = Rig()
    rig.service.stop(Seconds(5.0))

    def resumed(reports: Reports) -> Engine:
        rig.engines.append(fetching(reports))
        return rig.engines[-1]

    service = UpdateService(resumed, resume=True, retry_s=Seconds(0.001))
    service.start()
    while not rig.engines or rig.engines[-1].retries < 2:
        time.sleep(0.001)
    job = service.job(service.current_job)
    service.stop(Seconds(5.0))
    assert job is not None
    assert job.state == "waiting"


def test_whoever_asks_first_after_a_restart_does_not_hear_idle() -> None:
    def slowly(reports: Reports) -> Engine:
        time.sleep(0.05)
        return fetching(reports)

    service = UpdateService(slowly, resume=True, retry_s=Seconds(10.0))
    service.start()
    state = service.snapshot().state
    service.stop(Seconds(5.0))
    assert state == "fetching"


def test_a_journal_that_takes_long_to_read_is_not_idle_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An emulated machine beside other work needed more than the start waits."""
    monkeypatch.setattr(updates, "BEGIN_WAIT_S", 0.0)
    go_on = threading.Event()

    def slowly(reports: Reports) -> Engine:
        go_on.wait(5.0)
        return fetching(reports)

    service = UpdateService(slowly, resume=True, retry_s=Seconds(10.0))
    service.start()
    before = service.snapshot().state
    go_on.set()
    while service.snapshot().state == before:
        time.sleep(0.001)
    after = service.snapshot().state
    service.stop(Seconds(5.0))
    assert (before, after) == ("reading", "fetching")


def test_folders_are_closed_whatever_happens(rig: Rig) -> None:
    gc.collect()  # what other tests left open goes now, not in the middle
    before = len(list(Path("/proc/self/fd").iterdir()))
    file = os.open("/etc/hostname", os.O_RDONLY)
    with pytest.raises(errors.FileUnreadable):
        rig.service.install(file, InstallOptions()).result(5)
    assert rig.service.inspect(os.open("/", os.O_RDONLY)).result(5)[0].name == "chat"
    rig.steps += rig.phases("committed", "idle")
    rig.end(rig.install())
    assert len(list(Path("/proc/self/fd").iterdir())) <= before  # others may close theirs


def test_switched_off_and_without_sources_it_says_so() -> None:
    off = Rig(refusal=errors.Unavailable("cannot update: off"))
    with pytest.raises(errors.Unavailable):
        off.install()
    off.service.stop(Seconds(5.0))
    rig = Rig(sources=("/a", "/b"))
    assert [item.source for item in rig.service.check().result(5)] == ["/a", "/b"]
    assert rig.service.history(1, 2).result(5) == ({"what": "3"}, {"what": "2"})
    rig.service.stop(Seconds(5.0))
    bare = Rig()
    with pytest.raises(errors.InvalidRequest, match="source"):
        bare.service.check().result(5)
    bare.service.stop(Seconds(5.0))


def test_what_a_look_found_is_installed_from_its_source() -> None:
    rig = Rig(sources=("/tmp",))
    with pytest.raises(errors.InvalidRequest, match="found nothing"):
        rig.service.install_listed(InstallOptions()).result(5)
    rig.service.check().result(5)
    rig.steps += rig.phases("committed", "idle")
    job = rig.service.install_listed(InstallOptions()).result(5)
    assert (job.deployment, rig.end(job.id)) == ("chat", ("done", ""))
    rig.service.stop(Seconds(5.0))


def test_the_service_looks_by_itself_and_a_failing_source_does_not_end_it() -> None:
    polling = Polling(Seconds(0.01), automatic=True)
    rig = Rig(sources=("/nowhere",), polling=polling)
    until = time.monotonic() + 5
    while not rig.service.deployments():
        assert time.monotonic() < until
        time.sleep(0.001)
    assert rig.service.check().result(5)  # and it answers
    rig.service.stop(Seconds(5.0))


def test_calls_that_would_wait_for_an_action_say_so_at_once() -> None:
    rig = Rig(sources=("/good",))
    runs, go_on = threading.Event(), threading.Event()

    def action(_reports: Reports) -> None:
        runs.set()
        assert go_on.wait(10)

    rig.steps.append(action)
    rig.install()
    assert runs.wait(10)
    for asked in (rig.service.check(), rig.service.confirm("chat")):
        with pytest.raises(errors.Busy):
            asked.result(0)
    go_on.set()
    rig.service.stop(Seconds(5.0))
