"""What the planner expects against what llama.cpp really takes, and what a Resize gives back."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.random_model import random_model
from bench.runner_client import RunnerClient, default_model

from stoker.core import memory_size
from stoker.core.memory_size import Shape
from stoker.drivers.runner_child import HUGE_PAGES
from stoker.events.model_facts import ModelFacts, of_mapping
from stoker.events.runner import Answer, Failed, Generate, Inspect, Loaded, Resize, Stats

pytestmark = pytest.mark.real
MIB = 1 << 20
_ROUNDED = MIB / 100  # llama.cpp says MiB with two digits


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shapes")


@contextlib.contextmanager
def runner() -> Iterator[RunnerClient]:
    with RunnerClient("llama") as client:
        client.hello()
        yield client


def inspect(client: RunnerClient, path: Path) -> ModelFacts:
    found = client.answer(Inspect("i", str(path)))
    assert isinstance(found, Answer), found
    model = found.result["model"]
    assert isinstance(model, dict)
    return of_mapping(model)


def stat(client: RunnerClient, key: str) -> int:
    found = client.answer(Stats("s"))
    assert isinstance(found, Answer)
    value: Any = found.result[key]
    return int(value)


def test_facts_need_no_model_and_change_nothing(folder: Path) -> None:
    with runner() as client:
        before = stat(client, "rss_bytes")
        facts = inspect(client, default_model())
        assert (facts.layers, facts.vocabulary, facts.training_context) == (30, 49152, 8192)
        assert stat(client, "rss_bytes") - before < 16 * MIB
        gone = client.answer(Inspect("i", str(folder / "none.gguf")))
        assert isinstance(gone, Failed)
        assert gone.code == "model-unavailable"


@pytest.mark.parametrize(
    "name", ["smollm2", "qwen2-tiny", "deepseek2-tiny", "gemma3-tiny", "mamba-tiny"]
)
def test_cache_takes_what_the_formula_says(name: str, folder: Path) -> None:
    """Within five per cent, by llama.cpp's own number, for every type."""
    path = default_model() if name == "smollm2" else random_model(name, folder)
    with runner() as client:
        facts = inspect(client, path)
        for kv_type in memory_size.KV_TYPES:
            for context, slots, cached in ((256, 1, 0), (2048, 3, 4)):
                loaded = client.load(
                    path, context_tokens=context, slots=slots, kv_type=kv_type,
                    cached_prefixes=cached, cache_tokens=cached * 100,
                )  # fmt: skip
                shape = Shape(context * slots + cached * 100, slots + cached + 1, kv_type)
                expected = memory_size.kv_bytes(facts, shape)
                assert loaded.kv_bytes == pytest.approx(expected, rel=0.05, abs=_ROUNDED), shape


@pytest.mark.parametrize("name", ["smollm2", "qwen2-tiny"])
def test_process_takes_no_more_than_expected(name: str, folder: Path) -> None:
    """After a full batch, when every buffer has been touched; weights of the file included."""
    path = default_model() if name == "smollm2" else random_model(name, folder)
    with runner() as client:
        before = stat(client, "rss_bytes")
        facts = inspect(client, path)
        client.load(path, context_tokens=2048, slots=3, threads=2, threads_batch=2)
        client.ask(Generate("j", raw=True, prompt="steam " * 700, max_tokens=4))
        taken = stat(client, "rss_bytes") - before
    expected = memory_size.parts(facts, Shape(3 * 2048, 4))
    assert taken <= expected.total
    assert taken >= expected.total - expected.overhead - expected.compute


def test_smaller_context_gives_its_memory_back() -> None:
    with runner() as client:
        path = default_model()
        facts = inspect(client, path)
        loaded = client.load(path, context_tokens=4096, slots=3)
        full = stat(client, "rss_bytes")
        made = client.answer(Resize("r", slots=1, context_tokens=1024))
        assert isinstance(made, Answer), made
        small = stat(client, "rss_bytes")
        less = memory_size.kv_bytes(facts, Shape(1024, 2))
        assert loaded.kv_bytes == memory_size.kv_bytes(facts, Shape(3 * 4096, 4))
        assert full - small == pytest.approx(loaded.kv_bytes - less, rel=0.1)
        assert client.ask(Generate("j", raw=True, prompt="Steam", max_tokens=4))[-1].done


def test_huge_pages_back_keys_and_values_where_the_kernel_gives_them() -> None:
    mode = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not mode.is_file() or "[never]" in mode.read_text():
        pytest.skip("this kernel gives no huge pages")
    with RunnerClient("llama", environment=HUGE_PAGES) as client:
        client.hello()
        client.load(default_model(), context_tokens=2048, slots=4)
        rows = Path(f"/proc/{client.process.pid}/smaps_rollup").read_text().splitlines()
    huge = next(int(row.split()[1]) for row in rows if row.startswith("AnonHugePages"))
    assert huge > 100 << 10  # KiB, of 180 MiB


@pytest.mark.parametrize(("reserve", "status"), [(0, 0), (1 << 40, 1)])
def test_stokerd_fit_shows_the_plan_without_a_daemon(
    tmp_path: Path, child_env: dict[str, str], reserve: int, status: int
) -> None:
    settings = tmp_path / "stoker.toml"
    adapter = tmp_path / "a.gguf"
    adapter.touch()
    os.truncate(adapter, 5 * MIB)
    settings.write_text(
        f'[memory]\nreserve_bytes = {reserve}\n[models.small]\npath = "{default_model()}"\n'
        f'[adapters.a]\nmodel = "small"\npath = "{adapter}"\n'
    )
    command = [sys.executable, "-m", "stoker.main", f"--config={settings}"]
    command += ["--fit=small", "--json"]
    found = subprocess.run(
        command, env=child_env, capture_output=True, text=True, timeout=60, check=False
    )
    assert found.returncode == status, found.stderr
    told = json.loads(found.stdout)
    assert told["facts"]["layers"] == 30
    assert told["adapter_bytes"] == 5 * MIB
    assert told["fits"] is (status == 0)
    if told["fits"]:
        assert told["plan"]["parts"]["kv"] == 5 * 4096 * 30 * 2 * 3 * 64 * 2
    else:
        assert "cannot load model" in told["reason"]


def test_loaded_says_what_it_took_in_kv() -> None:
    with runner() as client:
        loaded = client.load(default_model(), context_tokens=4096, slots=4, kv_type="q8_0")
        assert isinstance(loaded, Loaded)
        assert loaded.kv_bytes == pytest.approx(191.25 * MIB, rel=0.01)
