"""Model files that are missing, cut, corrupt or no model: a typed reason, never a crash."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.runner_client import RunnerClient, default_model
from tests.fakes import encoder_file

from stoker.events.runner import Failed, Load, Loaded, Stats

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def content() -> bytes:
    path = default_model()
    if not path.is_file():
        pytest.fail(f"{path} is missing: 'make run' fetches it, or set STOKER_TEST_MODEL")
    return path.read_bytes()


@pytest.fixture(scope="module")
def llama() -> Iterator[RunnerClient]:
    with RunnerClient("llama") as client:
        client.hello()
        yield client


def _load(client: RunnerClient, path: Path | str, **settings: object) -> Failed | Loaded:
    base: dict[str, object] = {"slots": 1, "context_tokens": 256}
    request = Load(id="l", model="m", path=str(path), **(base | settings))  # type: ignore[arg-type]
    result = client.answer(request)
    assert isinstance(result, Failed | Loaded)
    return result


def _refused(client: RunnerClient, path: Path | str) -> str:
    result = _load(client, path)
    assert isinstance(result, Failed), result
    assert result.code == "model-unavailable"
    assert client.process.poll() is None
    return result.message


def test_missing_file_and_directory(llama: RunnerClient, tmp_path: Path) -> None:
    assert "No such file" in _refused(llama, tmp_path / "none.gguf")
    assert _refused(llama, tmp_path)
    assert _refused(llama, "/dev/zero")


def test_a_model_that_only_reads_is_refused(llama: RunnerClient, tmp_path: Path) -> None:
    """llama.cpp loads a BERT and gives "words" of it: there is nothing that it could write."""
    path = encoder_file.write(tmp_path / "bert.gguf")
    for _ in range(2):
        assert "it is an encoder" in _refused(llama, path)


@pytest.mark.parametrize("keep", [0, 3, 24, 1000, 1 << 20, 50_000_000, 98_362_431])
def test_truncated_file(llama: RunnerClient, content: bytes, tmp_path: Path, keep: int) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(content[:keep])
    assert "cannot load model" in _refused(llama, path)


def test_garbage_and_wrong_formats(llama: RunnerClient, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    for data in (b"\0" * 4096, random.Random(1).randbytes(4096), b"GGUF" + b"\xff" * 4096):
        path.write_bytes(data)
        _refused(llama, path)


def test_flipped_header_bytes_never_kill_the_runner(content: bytes, tmp_path: Path) -> None:
    """Each in the same process: one abort would end the test. Loading anyway is allowed."""
    draw = random.Random(7)
    path = tmp_path / "flipped.gguf"
    with RunnerClient("llama") as client:
        client.hello()
        for _ in range(12):
            data = bytearray(content)
            for _ in range(4):
                data[draw.randrange(4, 2000)] = draw.randrange(256)
            path.write_bytes(data)
            result = _load(client, path)
            assert isinstance(result, Loaded) or result.code in (
                "model-unavailable",
                "insufficient-memory",
            )


def test_good_model_loads_after_all_that(llama: RunnerClient) -> None:
    assert isinstance(_load(llama, default_model()), Loaded)
    assert isinstance(_load(llama, default_model(), mmap=False), Loaded)


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ({"slots": 0}, "slots"),
        ({"threads": 0}, "threads"),
        ({"batch_tokens": 1 << 30}, "batch_tokens"),
        ({"context_tokens": -5}, "context_tokens"),
        ({"kv_type": "f64"}, "kv_type"),
        ({"flash_attention": "maybe"}, "flash_attention"),
    ],
)
def test_bad_settings_are_refused_by_name(
    llama: RunnerClient, settings: dict[str, object], path: str
) -> None:
    result = _load(llama, default_model(), **settings)
    assert isinstance(result, Failed)
    assert (result.code, result.details["path"]) == ("invalid-request", path)


@pytest.mark.parametrize("settings", [
    {"kv_type": "q8_0"}, {"kv_type": "q4_0"}, {"flash_attention": "off"}, {"mlock": True},
    {"batch_tokens": 1, "slots": 8},
])  # fmt: skip
def test_supported_settings_load(llama: RunnerClient, settings: dict[str, object]) -> None:
    assert isinstance(_load(llama, default_model(), **settings), Loaded)
    llama.answer(Stats("s"))
    assert llama.process.poll() is None
