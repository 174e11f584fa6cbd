"""Changing the model under load, on real child runners: every word of every stream is checked."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from tests.integration.stokerd_rig import until
from tests.integration.swap_rig import Caller, calling, service

from stoker import errors
from stoker.config.schema import ModelConfig
from stoker.core.swap import Phase
from stoker.services.inference import InferenceService

CALLERS = 8
ENDS = {"done", "preempted", "engine-failed"}


@pytest.fixture
def models(tmp_path: Path) -> tuple[ModelConfig, ...]:
    """The echo engine reads none, but the files must be there."""
    out = []
    for name in ("a", "b", "crash-on-load"):
        file = tmp_path / f"{name}.gguf"
        file.write_bytes(b"not a model")
        out.append(ModelConfig(name, str(file)))
    return tuple(out)


def crowd(inference: InferenceService) -> list[Caller]:
    """Slow and quick questions, no two alike."""
    out = []
    for number in range(CALLERS):
        words = [f"c{number}q{q}w{w}" for q in range(3) for w in range(12)]
        prompts = (f"!slow {5 + number} " + " ".join(words[:12]), " ".join(words[12:]))
        out.append(Caller(inference, number, prompts))
    return out


def check(callers: list[Caller], allowed: set[str]) -> dict[str, int]:
    """Nothing lost, nothing mixed; how often which end came."""
    ends: dict[str, int] = {}
    for caller in callers:
        assert caller.answers
        for prompt, text, end in caller.answers:
            whole = " " + prompt.partition(" c")[2] if prompt.startswith("!slow") else prompt
            whole = whole.replace(" ", " c", 1) if prompt.startswith("!slow") else whole
            assert end in allowed, (prompt, text, end)
            if end == "done":
                assert text.strip() == whole.strip()
            else:
                assert whole.strip().startswith(text.strip())
            ends[end] = ends.get(end, 0) + 1
    return ends


def ready(inference: InferenceService) -> None:
    until(lambda: inference.snapshot().state == "ready", "ready")


def phase(inference: InferenceService) -> Phase:
    return inference._loop.runners.swap.phase


@pytest.mark.parametrize("beside", [True, False], ids=["beside", "alone"])
def test_eight_callers_notice_nothing_of_a_change_but_a_pause(
    tmp_path: Path, models: tuple[ModelConfig, ...], beside: bool
) -> None:
    with service(tmp_path, models, "echo", beside=beside) as inference:
        ready(inference)
        callers = crowd(inference)
        with calling(callers):
            for name in ("b", "a", "b"):
                time.sleep(0.3)
                result = inference.swap(name).result(30)
                assert (result.model, result.beside, result.preempted) == (name, beside, 0)
                assert inference.snapshot().model == name
            time.sleep(0.3)
        ends = check(callers, {"done"})
        assert ends["done"] > 3 * CALLERS
        assert len([model for model in inference.models() if model.state == "ready"]) == 1


@pytest.mark.parametrize("beside", [True, False], ids=["beside", "alone"])
def test_without_time_to_drain_seen_answers_end_as_preempted_and_others_are_whole(
    tmp_path: Path, models: tuple[ModelConfig, ...], beside: bool
) -> None:
    with service(tmp_path, models, "echo", beside=beside, drain_timeout_s=0.0) as inference:
        ready(inference)
        callers = crowd(inference)
        with calling(callers):
            for name in ("b", "a", "b", "a"):
                time.sleep(0.2)
                inference.swap(name).result(30)
            time.sleep(0.2)
        ends = check(callers, {"done", "preempted"})
        assert ends["preempted"] >= 1


@pytest.mark.parametrize("beside", [True, False], ids=["beside", "alone"])
def test_a_model_that_kills_its_runner_leaves_the_old_one_in_its_place(
    tmp_path: Path, models: tuple[ModelConfig, ...], beside: bool
) -> None:
    with service(tmp_path, models, "echo", beside=beside) as inference:
        ready(inference)
        callers = crowd(inference)
        with calling(callers):
            time.sleep(0.2)
            with pytest.raises(errors.ModelUnavailable, match="crash-on-load"):
                inference.swap("crash-on-load").result(30)
            ready(inference)
            time.sleep(0.2)
        check(callers, {"done"})
        states = {model.name: model.state for model in inference.models()}
        assert states["a"] == "ready"


@pytest.mark.parametrize("victim", ["old", "new"])
@pytest.mark.parametrize("beside", [True, False], ids=["beside", "alone"])
def test_kill_9_in_the_middle_loses_and_mixes_no_stream(
    tmp_path: Path, models: tuple[ModelConfig, ...], beside: bool, victim: str
) -> None:
    with service(tmp_path, models, "echo", beside=beside) as inference:
        ready(inference)
        callers = crowd(inference)
        with calling(callers):
            for name in ("b", "a", "b"):
                time.sleep(0.1)
                swapped = inference.swap(name)
                kill(inference, victim)
                error = swapped.exception(60)
                assert error is None or isinstance(error, errors.ModelUnavailable)
                ready(inference)
            time.sleep(0.2)
        check(callers, ENDS)
        links = list(inference._loop.runners)
        until(lambda: len(list(inference._loop.runners)) == 1, f"one runner, not {links}")


def kill(inference: InferenceService, victim: str) -> None:
    """While the change is under way; it may be over before we hit."""
    bank = inference._loop.runners
    end = time.monotonic() + 10
    while time.monotonic() < end:
        link = bank.newcomer if victim == "new" else bank.serving
        process = link.process if link is not None else None
        if process is not None and phase(inference) is not Phase.IDLE:
            os.kill(process.pid, signal.SIGKILL)
            return
        if phase(inference) is Phase.IDLE and victim == "new" and not bank.swap.active:
            return


def test_stop_in_the_middle_ends_in_time_and_tells_every_caller(
    tmp_path: Path, models: tuple[ModelConfig, ...]
) -> None:
    with service(tmp_path, models, "echo", beside=False) as inference:
        ready(inference)
        callers = crowd(inference)
        with calling(callers):
            time.sleep(0.2)
            swapped = inference.swap("b")
            for caller in callers:
                caller.stop.set()
            from stoker.units import Seconds

            inference.stop(Seconds(20.0))
            error = swapped.exception(5)
            assert error is None or isinstance(error, errors.StokerError)
        check(callers, {"done", "unavailable", "preempted"})
