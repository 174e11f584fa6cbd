"""Other models than the default one, and every cell type: batches, prefixes, states, parking."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.random_model import random_model
from bench.runner_client import RunnerClient, default_model, text

from stoker.events.prompt import Sampling
from stoker.events.runner import Answer, Delta, Generate, Pause, Resume, Stats

pytestmark = pytest.mark.real
GREEDY = Sampling(temperature=0.0)
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
        Generate(f"j{n}", raw=True, prompt=f"{STORY}{n}, ", sampling=GREEDY, max_tokens=12)
        for n in range(3)
    ]
    kept = Generate("k", raw=True, prompt=f"{STORY}0, ", sampling=GREEDY, max_tokens=12,
                    scope="7", keep="talk")  # fmt: skip
    with RunnerClient("llama", *scratch) as client:
        client.hello()
        client.load(model(kind, folder), **settings)
        alone = [text(client.ask(job)) for job in asked]
        assert all(alone)
        for job in asked:  # parked in the middle, beside others
            client.send(job)
        client.send(Pause("j1"))
        client.send(Resume("j1"))
        together = client.finish("j0", "j1", "j2")
        assert all(deltas[-1].done for deltas in together.values())
        first = client.ask(kept)
        again = client.ask(kept)
        assert cached(first) == 0
        assert cached(again) == prompt_tokens(again) - 1
        assert again[-1].done is not None
        # sums in other batches round otherwise: only the beginning is sure
        assert text(again)[:2] == text(first)[:2]
    with RunnerClient("llama", *scratch) as client:
        client.hello()
        client.load(model(kind, folder), **settings)
        restored = client.ask(kept)
        assert cached(restored) == prompt_tokens(restored) - 1
        assert text(restored)[:2] == text(again)[:2]
        found = client.answer(Stats("s"))
        assert isinstance(found, Answer)
        counts = found.result["prefix_cache"]
        assert isinstance(counts, dict)
        assert counts["restores"] == 1


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
