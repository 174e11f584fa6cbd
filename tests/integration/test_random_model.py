"""Random weights in real shapes: whole files that llama.cpp loads; they answer the same twice."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random

import pytest
from bench.random_blocks import F16, F32, Q4_K, Q6_K, Q8_0, Kind, kind_for, size, weights
from bench.random_model import SHAPES, random_model
from bench.runner_client import RunnerClient, text

from stoker.events.prompt import Sampling
from stoker.events.runner import Generate

TINY = sorted(name for name in SHAPES if name.endswith("-tiny"))


@pytest.mark.parametrize("name", TINY)
def test_the_same_name_gives_the_same_bytes(tmp_path: Path, name: str) -> None:
    first, second = random_model(name, tmp_path / "a"), random_model(name, tmp_path / "b")
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()
    assert [path.name for path in (tmp_path / "a").iterdir()] == [first.name]


@pytest.mark.parametrize("name", TINY)
def test_the_real_engine_answers_from_it_until_it_is_stopped(tmp_path: Path, name: str) -> None:
    path = random_model(name, tmp_path)
    with RunnerClient("llama") as runner:
        runner.hello()
        loaded = runner.load(path, threads=1, threads_batch=1, context_tokens=512)
        assert loaded.vocabulary == 269
        greedy = Sampling(temperature=0.0)
        said = [
            text(runner.ask(Generate(f"j{n}", prompt="Hello", max_tokens=24, sampling=greedy)))
            for n in range(2)
        ]
    assert said[0] == said[1]
    if SHAPES[name].arch in ("qwen2", "deepseek2"):  # an output of their own: words can be silent
        assert len(set(said[0])) > 4, "it says one thing over and over"
        assert said[0].isascii()


@pytest.mark.parametrize("kind", [F32, F16, Q8_0, Q4_K, Q6_K])
def test_weights_fill_whole_blocks(kind: Kind) -> None:
    data = b"".join(weights(kind, 512, 0.02, Random(1)))
    assert len(data) == size(kind, 512) == 512 // kind.values * kind.bytes
    assert data != b"".join(weights(kind, 512, 0.02, Random(2)))


def test_values_of_a_byte_block_have_the_deviation_that_was_asked_for() -> None:
    data = b"".join(weights(Q8_0, 32 * 400, 0.05, Random(1)))
    values: list[float] = []
    for at in range(0, len(data), Q8_0.bytes):
        scale = struct.unpack_from("<e", data, at)[0]
        values += [scale * byte for byte in struct.unpack_from("<32b", data, at + 2)]
    deviation = (sum(value * value for value in values) / len(values)) ** 0.5
    assert deviation == pytest.approx(0.05, rel=0.05)


def test_a_row_that_fills_no_large_block_gets_a_smaller_one() -> None:
    assert kind_for(256, Q4_K) is Q4_K
    assert kind_for(64, Q4_K) is Q8_0
    assert kind_for(48, Q4_K) is F16
