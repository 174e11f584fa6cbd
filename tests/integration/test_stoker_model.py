"""stoker-model on a tiny random model with the real llama.cpp: each verb, and hostile files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench.random_model import random_model

from stoker_ota.core import probes

TEXT = "The river flows down from the mountains to the sea, and the boats go with it. " * 12
SMALL = ("--tokens", "200")
Run = Callable[..., dict[str, Any]]


def _run(env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stoker.models.main", "--json", "--threads", "1", *words]
    return subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=110, check=False
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def tool(child_env: dict[str, str], folder: Path) -> Run:
    (folder / "text.txt").write_text(TEXT)

    def run(*words: str) -> dict[str, Any]:
        done = _run(child_env, *words)
        assert done.returncode == 0, done.stderr + done.stdout
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return run


@pytest.fixture(scope="module")
def source(tool: Run, folder: Path) -> str:
    """In f16, as a source should be."""
    made = random_model("qwen2-tiny", folder)
    target = str(folder / "f16.gguf")
    tool("quantize", str(made), target, "--type", "f16")
    return target


def test_a_file_is_inspected_without_loading_it(tool: Run, source: str) -> None:
    found = tool("inspect", source, "--board", "raspberrypi-5", "--memory", "4G")
    assert (found["facts"]["architecture"], found["facts"]["layers"]) == ("qwen2", 2)
    assert found["fits"]
    assert found["plan"]["parts"]["total"] < 4 << 30
    assert found["decode_tok_s"] == pytest.approx(10e9 / found["read_bytes"])
    small = tool("inspect", source, "--memory", "20M")
    assert not small["fits"]
    assert small["reason"]


def test_fewer_bits_are_smaller_and_further_from_the_source(
    tool: Run, source: str, folder: Path
) -> None:
    text, kept = str(folder / "text.txt"), str(folder / "kept.json")
    for kind in ("q8_0", "q4_0"):
        tool("quantize", source, str(folder / f"{kind}.gguf"), "--type", kind)
    words = ("evaluate", str(folder / "q8_0.gguf"), str(folder / "q4_0.gguf"), "--text", text,
             *SMALL, "--reference", source, "--keep", kept)  # fmt: skip
    first = tool(*words, "--plot", str(folder / "plot.png"))["variants"]
    large, small = first
    assert small["bytes"] < large["bytes"]
    assert small["kl_mean"] > 3 * large["kl_mean"] > 0
    assert small["same_choice"] < large["same_choice"] <= 1
    assert large["perplexity"] > 1
    assert large["decode_tok_s"] > 0
    assert large["peak_rss_bytes"] > 10e6
    assert (folder / "plot.png").read_bytes()[:4] == b"\x89PNG"
    assert tool(*words)["variants"] == first, "it was measured again, or is not deterministic"


def test_the_divergence_of_a_model_from_itself_is_nothing(
    tool: Run, source: str, folder: Path
) -> None:
    text = str(folder / "text.txt")
    (row,) = tool("evaluate", source, "--text", text, *SMALL, "--reference", source)["variants"]
    assert row["kl_mean"] == pytest.approx(0.0, abs=1e-6)
    assert row["same_choice"] == 1.0


def test_importance_brings_the_model_nearer_to_its_source(
    tool: Run, source: str, folder: Path
) -> None:
    text = str(folder / "text.txt")
    plain, weighed = str(folder / "plain.gguf"), str(folder / "weighed.gguf")
    tool("quantize", source, plain, "--type", "q4_0")
    tool("quantize", source, weighed, "--type", "q4_0", "--importance", "--text", text, *SMALL)
    rows = tool("evaluate", plain, weighed, "--text", text, *SMALL, "--reference", source)
    first, second = rows["variants"]
    assert first["bytes"] == second["bytes"] or abs(first["bytes"] - second["bytes"]) < 4096
    assert second["kl_mean"] < first["kl_mean"]
    again = str(folder / "again.gguf")
    tool("quantize", source, again, "--type", "q4_0", "--importance", "--text", text, *SMALL)
    assert Path(again).read_bytes() == Path(weighed).read_bytes()


def test_a_pattern_gives_some_tensors_another_type(tool: Run, source: str, folder: Path) -> None:
    target = str(folder / "mixed.gguf")
    tool("quantize", source, target, "--type", "q4_0", "--tensor", r"ffn_down=q8_0")
    types = tool("inspect", target)["facts"]["bytes_by_type"]
    assert types["Q8_0"] > 0
    assert types["Q4_0"] > types["Q8_0"]


def test_a_budget_is_met_by_the_groups_that_hurt_least(
    tool: Run, source: str, folder: Path
) -> None:
    text, target = str(folder / "text.txt"), folder / "budget.gguf"
    words = ("--low", "q4_0", "--high", "q8_0", "--text", text, *SMALL)
    found = tool("quantize", source, str(target), "--budget", "1M", *words)
    assert target.stat().st_size == found["bytes"] <= 1 << 20
    harms = {group["name"]: group["kl"] for group in found["groups"]}
    assert 0 < len(found["low"]) < len(harms)
    assert not list(folder.glob("budget.gguf.study.json")), "the study has ended"
    assert not list(folder.glob(".budget*"))


def test_an_ended_study_goes_on_where_it_was_and_comes_to_the_same_end(
    child_env: dict[str, str], tool: Run, source: str, folder: Path
) -> None:
    text, target = str(folder / "text.txt"), folder / "ended.gguf"
    words = ("quantize", source, str(target), "--budget", "900K", "--low", "q4_0", "--text", text,
             "--tokens", "80")  # fmt: skip
    notes = folder / "ended.gguf.study.json"
    command = [sys.executable, "-m", "stoker.models.main", "--threads", "1", *words]
    with subprocess.Popen(command, env=child_env, start_new_session=True) as first:
        end = time.monotonic() + 60
        while not notes.exists() or len(json.loads(notes.read_text())["results"]) < 3:
            assert first.poll() is None
            assert time.monotonic() < end
            time.sleep(0.02)
        os.killpg(first.pid, signal.SIGKILL)
    kept = json.loads(notes.read_text())["results"]
    assert 3 <= len(kept) < 12
    assert not target.exists()
    notes.write_text(notes.read_text().replace(str(kept[""]["kl_mean"]), "0.0"))  # to be recognised
    found = tool(*words)
    assert not notes.exists()
    # the base's harm was taken from the notes: every group's is as large as was measured for it
    (some,) = [one for one in found["groups"] if one["name"] in kept][:1]
    assert some["kl"] == kept[some["name"]]["kl_mean"]
    whole = folder / "whole.gguf"
    tool(*words[:2], str(whole), *words[3:])
    assert whole.read_bytes() == target.read_bytes()


def test_layers_go_by_number(tool: Run, source: str, folder: Path) -> None:
    target = str(folder / "short.gguf")
    assert tool("prune", source, target, "--layers", "1")["layers"] == [1]
    assert tool("inspect", target)["facts"]["layers"] == 1


def test_figures_are_what_stoker_ota_makes_probes_of(tool: Run, source: str, folder: Path) -> None:
    texts = folder / "probes.txt"
    texts.write_text("Water boils at a hundred degrees.\n\nThe sky is blue today.\n")
    found = tool("evaluate", source, "--text", str(folder / "text.txt"), *SMALL,
                 "--probes", str(texts), "--figures", str(folder / "figures"))  # fmt: skip
    (path,) = found["figures"]
    figures = probes.parse(Path(path).read_bytes())
    assert set(figures) == {"Water boils at a hundred degrees.", "The sky is blue today."}
    assert len(probes.bounds([figures], 0.1)) == 2


@pytest.mark.parametrize("cut", [10, 3000, -5000])
def test_a_truncated_file_is_refused_with_its_reason(
    child_env: dict[str, str], source: str, folder: Path, cut: int
) -> None:
    broken = folder / f"cut{cut}.gguf"
    broken.write_bytes(Path(source).read_bytes()[:cut])
    for words in (("inspect", str(broken)), ("quantize", str(broken), str(folder / "x.gguf"))):
        done = _run(child_env, *words)
        assert done.returncode not in (0, 1), done.stdout
        assert "cannot load model" in done.stderr
        assert "Traceback" not in done.stderr
    assert not (folder / "x.gguf").exists()


def test_what_kills_llama_cpp_is_an_error_and_not_our_end(
    child_env: dict[str, str], source: str, folder: Path
) -> None:
    """A header that the look at the file lets pass and the library does not survive, or refuses."""
    data = bytearray(Path(source).read_bytes())
    at = data.index(b"qwen2.attention.head_count") + len(b"qwen2.attention.head_count") + 4
    data[at : at + 4] = (0).to_bytes(4, "little")
    broken = folder / "zero-heads.gguf"
    broken.write_bytes(data)
    done = _run(child_env, "evaluate", str(broken), "--text", str(folder / "text.txt"))
    assert done.returncode in (69, 70, 76), done.stdout + done.stderr
    assert "stoker-model: cannot" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_target_that_is_the_source_is_refused(child_env: dict[str, str], source: str) -> None:
    done = _run(child_env, "quantize", source, source)
    assert done.returncode == 64
    assert "it is the source" in done.stderr
