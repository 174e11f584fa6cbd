"""Other models than the default one, and every cell type: batches, prefixes, states, parking."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
from bench.near_ties import Choice, choices, undecided
from bench.random_model import random_model
from bench.runner_client import RunnerClient, default_model, text

from stoker.events.prompt import Sampling, Shape
from stoker.events.runner import (
    Answer,
    Delta,
    Deltas,
    Generate,
    Pause,
    Resume,
    SetThreads,
    Stats,
)

pytestmark = pytest.mark.real
GREEDY = Sampling(temperature=0.0)
TOKENS = 16
STORY = "The stoker shovels coal into the furnace, and the furnace feeds the engine. " * 4


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("random")


def model(kind: str, folder: Path) -> Path:
    return default_model() if kind == "smollm2" else random_model(f"{kind}-tiny", folder)


@pytest.mark.parametrize("kv_type", ["f16", "q8_0", "q4_0"])
@pytest.mark.parametrize("kind", ["smollm2", "qwen2", "deepseek2"])
def test_batches_prefixes_states_and_parking_agree(
    kind: str, kv_type: str, folder: Path, tmp_path: Path
) -> None:
    scratch = ("--scratch", str(tmp_path))
    settings: dict[str, object] = {
        "context_tokens": 768, "slots": 3, "cached_prefixes": 4, "state_bytes": 64 << 20,
        "kv_type": kv_type, "threads": 2, "threads_batch": 2,
    }  # fmt: skip
    asked = [
        Generate(f"j{n}", raw=True, prompt=STORY + end, sampling=GREEDY, max_tokens=TOKENS)
        for n, end in enumerate(("Smoke!", "Iron?", "Q:"))
    ]
    kept = replace(asked[0], job="k", scope="7", keep="talk")
    with RunnerClient("llama", *scratch) as client:
        client.hello()
        client.load(model(kind, folder), **settings)
        alone = [reference(client, job) for job in asked]
        assert len({one.said for one in alone}) == 3, "mixed up, they would look the same"
        if kind != "smollm2":  # so fast that they would be done before anybody can park them
            client.answer(SetThreads("slow", 2, 2, duty=0.2))
        together = parked_in_the_middle(client, asked)
        client.answer(SetThreads("fast", 2, 2, duty=1.0))
        for job, wanted in zip(asked, alone, strict=True):
            wanted.explains(text(together[job.job]))
        first = client.ask(kept)
        again = client.ask(kept)
        assert cached(first) == 0
        assert cached(again) == prompt_tokens(again) - 1
        alone[0].explains(text(first))
        alone[0].explains(text(again))
    with RunnerClient("llama", *scratch) as client:
        client.hello()
        client.load(model(kind, folder), **settings)
        restored = client.ask(kept)
        assert cached(restored) == prompt_tokens(restored) - 1
        alone[0].explains(text(restored))
        found = client.answer(Stats("s"))
        assert isinstance(found, Answer)
        counts = found.result["prefix_cache"]
        assert isinstance(counts, dict)
        assert counts["restores"] == 1


@dataclass(frozen=True)
class Reference:
    """What a job says alone, and what it nearly said instead."""

    said: str
    chosen: tuple[Choice, ...]

    def explains(self, said: str) -> None:
        """The same, word for word, but where the model was undecided: sums in other batches
        round otherwise."""
        same = said == self.said or undecided(said.strip(), self.chosen)
        assert same, (said, self.said, self.chosen)


def reference(client: RunnerClient, job: Generate) -> Reference:
    shape = Shape(logprobs=20)
    deltas = client.ask(replace(job, job=f"alone-{job.job}", shape=shape))
    rows = [row for delta in deltas if delta.lp for row in cast(list[Any], delta.lp["content"])]
    said = text(deltas)
    assert said.strip()
    return Reference(said, choices(rows))


def parked_in_the_middle(client: RunnerClient, asked: list[Generate]) -> dict[str, list[Delta]]:
    """All at once, the second one parked from its first word until the others have ended."""
    for _ in range(5):  # the answer may have ended before the word to park it came
        out: dict[str, list[Delta]] = {job.job: [] for job in asked}
        for job in asked:
            client.send(job)
        take(client, out, lambda seen: bool(text(seen["j1"])))
        client.send(Pause("j1"))
        take(client, out, lambda seen: ended(seen["j0"]) and ended(seen["j2"]))
        if not ended(out["j1"]):
            said = text(out["j1"])
            client.send(Resume("j1"))
            take(client, out, lambda seen: ended(seen["j1"]))
            assert len(text(out["j1"])) > len(said) > 0
            return out
    raise AssertionError("the job was never parked in the middle")


def ended(deltas: list[Delta]) -> bool:
    return bool(deltas) and (deltas[-1].done is not None or deltas[-1].error is not None)


def take(
    client: RunnerClient,
    out: dict[str, list[Delta]],
    enough: Callable[[dict[str, list[Delta]]], bool],
) -> None:
    while not enough(out):
        event = client.next()
        for item in event.items if isinstance(event, Deltas) else ():
            out[item.job].append(item)


def cached(deltas: list[Delta]) -> int:
    return usage(deltas)["cached_tokens"]


def prompt_tokens(deltas: list[Delta]) -> int:
    return usage(deltas)["prompt_tokens"]


def usage(deltas: list[Delta]) -> dict[str, int]:
    done = deltas[-1].done
    assert done is not None
    found = done["usage"]
    assert isinstance(found, dict)
    return found
