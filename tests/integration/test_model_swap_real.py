"""Changing between two real models under load: the default one and a random one of qwen2's shape.

Decoding beside others rounds near ties another way, so texts are told apart by what they are:
English or nonsense, never both (the echo engine's test compares every word).
"""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from bench.near_ties import Choice, choices, undecided
from bench.random_model import random_model
from tests.fakes.default_model import default_model
from tests.integration.stokerd_rig import until
from tests.integration.swap_rig import Caller, calling, service

from stoker import errors
from stoker.config.schema import ModelConfig
from stoker.events.inference import Ask, Delivery, Owner
from stoker.events.models import Probe, ProbeReport
from stoker.events.prompt import Sampling, Shape
from stoker.services.inference import InferenceService
from stoker.units import Seconds

pytestmark = pytest.mark.real
GREEDY = Sampling(temperature=0.0)
ENGLISH = re.compile(r" (the|a|was|and|of|to|it|in|is|had|that) ")
NONSENSE = re.compile(r"[a-z][A-Z0-9]")
SUBJECTS = ("a river", "the sea", "an old house", "winter", "bread", "a bridge", "music", "salt")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModelConfig, ...]:
    other = random_model("qwen2-tiny", tmp_path_factory.mktemp("models"))
    return (
        ModelConfig("smol", str(default_model()), context_tokens=512, aliases=("real",)),
        ModelConfig("tiny", str(other), context_tokens=512),
    )


def crowd(inference: InferenceService) -> list[Caller]:
    return [
        Caller(inference, number, (f"Once upon a time there was {subject}, and",), GREEDY, True, 24)
        for number, subject in enumerate(SUBJECTS)
    ]


@pytest.mark.parametrize("beside", [True, False], ids=["beside", "alone"])
def test_eight_callers_get_whole_answers_of_one_model_each_while_models_change(
    tmp_path: Path, models: tuple[ModelConfig, ...], beside: bool
) -> None:
    with service(tmp_path, models, "llama", beside=beside) as inference:
        until(lambda: inference.snapshot().state == "ready", "ready", 100)
        callers = crowd(inference)
        with calling(callers):
            for name in ("tiny", "real", "tiny"):
                time.sleep(0.5)
                result = inference.swap(name).result(100)
                assert result.preempted == 0
                assert result.probe.tokens > 0
            time.sleep(0.5)
        seen = {model for caller in callers for model in spoke(caller)}
        assert seen == {"smol", "tiny"}


def spoke(caller: Caller) -> list[str]:
    """Which model each answer is of: English and nothing else, or nonsense and nothing else."""
    out = []
    for prompt, text, end in caller.answers:
        assert end == "done"
        english, nonsense = (bool(mark.search(text)) for mark in (ENGLISH, NONSENSE))
        assert english != nonsense, (prompt, text)
        out.append("smol" if english else "tiny")
    return out


@dataclass(frozen=True)
class Answer:
    text: str
    chosen: tuple[Choice, ...]
    cached: int
    prompt: int


def ask(inference: InferenceService, prompt: str) -> Answer:
    """A turn of one conversation, whose state outlives the job."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(writer, False)
    turn = Ask(prompt=prompt, raw=True, max_tokens=16, sampling=GREEDY, keep="talk",
               shape=Shape(logprobs=20))  # fmt: skip
    inference.submit(turn, Delivery(), Owner(":1.7", 1007), writer).result(30)
    with os.fdopen(reader, "rb") as stream:
        records: list[dict[str, Any]] = [json.loads(line) for line in stream]
    text = "".join(str(record.get("t", "")) for record in records)
    rows = [row for record in records if "lp" in record for row in record["lp"]]
    (done,) = [record["done"] for record in records if "done" in record]
    usage = done["usage"]
    return Answer(text, choices(rows), usage["cached_tokens"], usage["prompt_tokens"])


@pytest.mark.parametrize("beside", [True, False], ids=["beside", "alone"])
def test_a_conversation_is_restored_when_its_model_comes_back(
    tmp_path: Path, models: tuple[ModelConfig, ...], beside: bool
) -> None:
    """Each model has its own state of it; the other's is never taken."""
    story = "Once upon a time there was a river. It ran down from the hills to the sea, " * 3
    scratch = tmp_path / "scratch"
    with service(tmp_path, models, "llama", beside=beside, scratch=scratch) as inference:
        until(lambda: inference.snapshot().state == "ready", "ready", 100)
        first = {"smol": ask(inference, story)}
        for name in ("tiny", "smol", "tiny"):
            inference.swap(name).result(100)
            found = ask(inference, story)
            before = first.setdefault(name, found)
            if found is before:
                assert found.cached == 0
            else:
                assert found.cached == found.prompt - 1 > 32
                same = found.text == before.text
                assert same or undecided(found.text.strip(), before.chosen), (found, before)
        assert first["smol"].text != first["tiny"].text


def test_a_judge_of_quality_keeps_a_model_out_that_says_nothing_sensible(
    tmp_path: Path, models: tuple[ModelConfig, ...]
) -> None:
    """The random model's score of plain English is far from the trained one's."""

    def judge(report: ProbeReport) -> str:
        return "" if report.nll_per_token < 6.0 else f"{report.nll_per_token:.1f} nats a token"

    probe = Probe(timeout_s=Seconds(60.0), judge=judge)
    with service(tmp_path, models[::-1], "llama", beside=True) as inference:
        until(lambda: inference.snapshot().state == "ready", "ready", 100)
        result = inference.swap("smol", probe).result(100)
        assert result.probe.nll_per_token < 6.0
        with pytest.raises(errors.ModelUnavailable):
            inference.swap("tiny", Probe(judge=lambda _report: "not wanted")).result(100)
        assert inference.snapshot().model == "smol"
        assert result.probe.decode_tok_s > 0
        assert result.probe.memory_bytes > 0
