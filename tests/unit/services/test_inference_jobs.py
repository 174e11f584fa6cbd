"""A job's way from the caller's request to the last line of its stream."""

from __future__ import annotations

import pytest
from tests.unit.services.inference_rig import ALICE, BOB, Rig, config

from stoker import errors
from stoker.core.frames import MAX_BODY_BYTES
from stoker.events.inference import Ask
from stoker.events.runner import Cancel, Delta, Deltas, Generate, Pause, Resume
from stoker.ports.doors import InferenceListener
from stoker.units import Seconds


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    made.start()
    return made


def test_tokens_come_out_in_order_and_the_last_line_is_typed(rig: Rig) -> None:
    asked = rig.ask("hello")
    (request,) = rig.runner.of_kind(Generate)
    assert isinstance(request, Generate)
    assert (request.job, request.prompt, request.max_tokens) == (asked.id, "hello", 512)
    rig.runner.stream(asked.id, "a", "b\n", done=True)
    rig.turn()
    *texts, last = asked.records()
    assert texts == [{"t": "a"}, {"t": "b\n"}]
    assert last["done"]["finish_reason"] == "stop"
    assert asked.read() == b""
    assert rig.heard == [("started", asked.id), ("finished", asked.id)]


def test_text_format_is_the_bare_answer(rig: Rig) -> None:
    asked = rig.ask(format="text")
    rig.runner.say(Deltas((Delta(asked.id, r="thinking", p=(1, 2)),)))
    rig.runner.stream(asked.id, "grüße", done=True)
    rig.turn()
    assert asked.read() == "grüße".encode()


def test_closing_the_stream_cancels_at_the_next_turn(rig: Rig) -> None:
    asked = rig.ask()
    asked.close()
    rig.turn(1)
    assert rig.runner.of_kind(Cancel) == [Cancel(asked.id)]
    assert rig.service.job(asked.id) is not None
    assert rig.heard[-1] == ("finished", asked.id)


def test_leaving_the_bus_cancels_only_ones_own_jobs(rig: Rig) -> None:
    mine, theirs = rig.ask(owner=ALICE), rig.ask(owner=BOB)
    rig.service.caller_vanished(ALICE.unique_name)
    rig.turn()
    assert rig.runner.of_kind(Cancel) == [Cancel(mine.id)]
    assert mine.records()[-1]["error"]["code"] == "cancelled"
    assert theirs.read() is None


def test_two_jobs_run_side_by_side_and_the_third_waits_its_turn(rig: Rig) -> None:
    first, second, third = rig.ask(), rig.ask(), rig.ask()
    assert [r.job for r in rig.runner.of_kind(Generate)] == [first.id, second.id]  # type: ignore[union-attr]
    view = third.future.result(0)
    assert (view.state, view.queue_position) == ("queued", 1)
    rig.runner.stream(first.id, "x", done=True)
    rig.turn()
    assert [r.job for r in rig.runner.of_kind(Generate)][2:] == [third.id]  # type: ignore[union-attr]
    assert rig.loop.snapshot.active_jobs == 2
    assert second.read() is None


def test_a_full_queue_is_busy_and_the_stream_is_closed(rig: Rig) -> None:
    for _ in range(4):
        rig.ask()
    refused = rig.ask()
    with pytest.raises(errors.Busy) as caught:
        refused.future.result(0)
    assert caught.value.details["retry_after_ms"] == 2500
    assert refused.read() == b""


def test_a_deadline_ends_a_job_that_nobody_answers(rig: Rig) -> None:
    asked = rig.ask(deadline_s=5)
    rig.pass_time(5)
    assert asked.records()[-1]["error"]["code"] == "deadline-exceeded"
    assert rig.runner.of_kind(Cancel) == [Cancel(asked.id)]


def test_an_error_of_the_runner_reaches_the_caller_with_its_numbers(rig: Rig) -> None:
    asked = rig.ask()
    record = {
        "code": "context-length-exceeded",
        "message": "too long",
        "details": {"prompt_tokens": 9},
    }
    rig.runner.say(Deltas((Delta(asked.id, error=record),)))
    rig.turn()
    error = asked.records()[-1]["error"]
    assert (error["code"], error["details"]) == ("context-length-exceeded", {"prompt_tokens": 9})


def test_a_slow_reader_pauses_its_own_job_and_resumes_it(rig: Rig) -> None:
    slow, quick = rig.ask(), rig.ask()
    for _ in range(200):  # 64 KiB fit the pipe, 1000 bytes more the buffer
        rig.runner.stream(slow.id, "x" * 1000)
    rig.turn()
    assert rig.runner.of_kind(Pause) == [Pause(slow.id)]
    rig.runner.stream(quick.id, "q")
    rig.turn()
    assert quick.records() == [{"t": "q"}]
    while slow.read() is not None:
        rig.turn()
    assert rig.runner.of_kind(Resume) == [Resume(slow.id)]


def test_a_reader_that_never_reads_again_loses_its_job(rig: Rig) -> None:
    slow = rig.ask()
    for _ in range(100):
        rig.runner.stream(slow.id, "x" * 1000)
    rig.turn()
    rig.pass_time(29)
    assert rig.runner.of_kind(Cancel) == []
    rig.pass_time(2)
    assert rig.runner.of_kind(Cancel) == [Cancel(slow.id)]
    (view,) = [rig.service.job(slow.id)]
    rig.turn()
    assert view.result(0).error_code == "slow-consumer"


def test_an_unread_end_waits_for_its_reader(rig: Rig) -> None:
    slow = rig.ask()
    for _ in range(70):
        rig.runner.stream(slow.id, "x" * 1000)
    rig.runner.stream(slow.id, "end", done=True)
    rig.turn()
    seen = b""
    while (part := slow.read()) != b"":
        seen += part or b""
        rig.turn()
    assert seen.endswith(b"}\n")
    assert b'"finish_reason":"stop"' in seen


def test_answer_completes_with_the_whole_text(rig: Rig) -> None:
    future = rig.service.answer(Ask(prompt="q"), ALICE)
    rig.turn()
    job = rig.runner.of_kind(Generate)[0].job  # type: ignore[union-attr]
    rig.runner.stream(job, "one ", "two", done=True)
    rig.turn()
    view = future.result(0)
    assert (view.text, view.prompt_tokens, view.completion_tokens) == ("one two", 3, 2)


def test_results_are_kept_for_a_while_and_then_forgotten(rig: Rig) -> None:
    asked = rig.ask()
    rig.runner.stream(asked.id, "kept", done=True)
    rig.turn()
    rig.pass_time(59)
    known = rig.service.job(asked.id)
    rig.turn()
    assert known.result(0).text == "kept"
    rig.pass_time(2)
    gone = rig.service.job(asked.id)
    rig.turn()
    with pytest.raises(errors.NotFound):
        gone.result(0)
    assert rig.heard[-1] == ("forgotten", asked.id)


def test_a_result_is_kept_up_to_its_bound_and_says_so() -> None:
    rig = Rig(config(max_result_bytes=10))
    rig.start()
    asked = rig.ask()
    rig.runner.stream(asked.id, "12345678", "90abc", done=True)
    rig.turn()
    view = rig.service.job(asked.id)
    rig.turn()
    assert (view.result(0).text, view.result(0).truncated) == ("12345678", True)
    assert asked.records()[1] == {"t": "90abc"}  # the stream itself loses nothing


def test_results_of_a_flood_of_jobs_are_bounded_and_the_oldest_go_first() -> None:
    rig = Rig(config(keep_results_bytes=64 << 10))
    rig.start()
    ids = []
    for _ in range(40):
        asked = rig.ask()
        ids.append(asked.id)
        rig.runner.stream(asked.id, "x", done=True)
        rig.turn()
        asked.close()
    gone = [job for kind, job in rig.heard if kind == "forgotten"]
    assert gone == ids[: len(gone)]
    assert 20 <= len(gone) < 40  # 64 KiB keep fewer than 16 jobs of 4 KiB and their text


def test_another_model_than_the_loaded_one_is_refused_by_name(rig: Rig) -> None:
    future = rig.service.answer(Ask(prompt="q", model="huge"), ALICE)
    rig.turn()
    with pytest.raises(errors.ModelUnavailable, match="'tiny' is loaded"):
        future.result(0)


def test_cancel_of_an_ended_or_unknown_job_is_harmless(rig: Rig) -> None:
    asked = rig.ask()
    rig.runner.stream(asked.id, "x", done=True)
    rig.turn()
    for job in (asked.id, "nonsense"):
        future = rig.service.cancel(job, "test")
        rig.turn()
        assert future.result(0) is False


def test_too_hot_means_running_jobs_stand_still_waiting_ones_wait_new_ones_are_refused(
    rig: Rig,
) -> None:
    running, second, waiting = rig.ask(), rig.ask(), rig.ask()
    rig.service.hold(True, "78 °C, the wall is 75 °C")
    rig.turn()
    assert rig.runner.of_kind(Pause) == [Pause(running.id), Pause(second.id)]
    rig.runner.stream(running.id, "last words", done=True)  # it was done before it heard
    rig.turn()
    assert len(rig.runner.of_kind(Generate)) == 2
    refused = rig.ask()
    with pytest.raises(errors.Throttled, match="78 °C"):
        refused.future.result(0)
    rig.service.hold(False, "")
    rig.turn()
    assert rig.runner.of_kind(Resume) == [Resume(second.id)]
    assert [r.job for r in rig.runner.of_kind(Generate)][2:] == [waiting.id]  # type: ignore[union-attr]


def test_new_limits_count_from_the_next_job_on(rig: Rig) -> None:
    rig.service.reconfigure(config(deadline_s=Seconds(1)))
    asked = rig.ask()
    rig.pass_time(1.5)
    assert asked.records()[-1]["error"]["code"] == "deadline-exceeded"


def test_a_listener_that_fails_does_not_stop_the_loop(rig: Rig) -> None:
    def fail(_view: object) -> None:
        raise RuntimeError("a door's fault")

    rig.service.listen(InferenceListener(job_started=fail))
    asked = rig.ask()
    rig.runner.stream(asked.id, "fine", done=True)
    rig.turn()
    assert asked.records()[0] == {"t": "fine"}


def test_a_request_beyond_what_the_runner_can_be_sent_ends_alone(rig: Rig) -> None:
    """Not with the loop, and not with the service."""
    large, small = rig.ask("x" * (MAX_BODY_BYTES + 1)), rig.ask("small")
    assert large.records()[-1]["error"]["code"] == "request-too-large"
    assert rig.heard[0] == ("finished", large.id)
    assert [r.job for r in rig.runner.of_kind(Generate)] == [small.id]  # type: ignore[union-attr]
