"""The agent as a whole: watchdog by evidence, reload, the one-line status."""

from __future__ import annotations

import pytest
from tests.fakes.system import FakeClock, RecordingNotifier

from stoker.config.parse import parse
from stoker.errors import ConfigInvalid
from stoker.ports.doors import InferenceSnapshot
from stoker.services.agent import STALE_AFTER_S, AgentService
from stoker.units import Seconds


class Rig:
    def __init__(self) -> None:
        self.clock, self.notifier = FakeClock(0.0), RecordingNotifier()
        self.turns = {"inference": Seconds(0.0), "thermal": Seconds(0.0)}
        self.answer: tuple[str, ...] | Exception = ()
        self.agent = AgentService(
            clock=self.clock,
            notifier=self.notifier,
            turns={name: lambda name=name: self.turns[name] for name in self.turns},  # type: ignore[misc]
            apply=self.apply,
        )

    def apply(self) -> tuple[str, ...]:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_the_watchdog_is_fed_while_every_loop_comes_round() -> None:
    rig = Rig()
    rig.agent.feed_watchdog()
    assert rig.notifier.said == ["watchdog"]


@pytest.mark.parametrize("key", ["period_min_s", "period_max_s"])
def test_the_longest_period_that_may_be_set_is_no_stall(key: str) -> None:
    most_s = STALE_AFTER_S / 2
    parse([("x", {"thermal": {"period_max_s": most_s, key: most_s}})])
    with pytest.raises(ConfigInvalid, match=f"thermal.{key}"):
        parse([("x", {"thermal": {"period_max_s": most_s, key: most_s + 0.1}})])


@pytest.mark.parametrize("stuck", ["inference", "thermal"])
def test_one_stuck_loop_starves_the_watchdog_and_is_named_once(
    stuck: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig()
    rig.clock.advance(11.0)
    rig.turns = {name: Seconds(0.0 if name == stuck else 10.5) for name in rig.turns}
    for _ in range(3):
        rig.agent.feed_watchdog()
    assert rig.notifier.said == []
    assert rig.agent.stale() == (stuck,)
    assert caplog.text.count(f"no turn of {stuck}") == 1


def test_reload_reports_what_needs_a_restart_and_tells_systemd() -> None:
    rig = Rig()
    rig.answer = ("runner.slots",)
    assert rig.agent.reload().result(0) == ("runner.slots",)
    assert rig.notifier.said == ["reloading", "ready"]


def test_a_wrong_file_is_a_typed_error_and_the_service_stays_ready() -> None:
    rig = Rig()
    rig.answer = ConfigInvalid("cannot read configuration: nonsense")
    with pytest.raises(ConfigInvalid):
        rig.agent.reload().result(0)
    assert rig.notifier.said == ["reloading", "ready"]


def test_a_fault_of_ours_does_not_leave_reload(caplog: pytest.LogCaptureFixture) -> None:
    """An exception in SIGHUP's callback would unhook it: the next SIGHUP would kill us."""
    rig = Rig()
    rig.answer = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        rig.agent.reload().result(0)
    assert rig.notifier.said == ["reloading", "ready"]
    assert "reload failed" in caplog.text


def test_the_status_line_says_what_matters_and_only_when_it_changes() -> None:
    rig = Rig()
    for snapshot in (
        InferenceSnapshot(state="loading", load_progress=0.5),
        InferenceSnapshot(state="ready", model="tiny"),
        InferenceSnapshot(state="ready", model="tiny", active_jobs=3),
        InferenceSnapshot(state="restarting", reason="runner killed by signal 9"),
    ):
        rig.agent.report(snapshot)
    assert rig.notifier.said == [
        "status loading: 50%",
        "status ready: tiny",
        "status restarting: runner killed by signal 9",
    ]
