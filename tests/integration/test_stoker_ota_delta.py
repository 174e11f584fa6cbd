"""stoker-ota delta on real files and processes, and the standard bspatch on what it exports."""

from __future__ import annotations

import hashlib
import json
import random
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.delta_files import FakeModel, FakeTensor

from stoker_ota import errors
from stoker_ota.cli import arguments, completion, exit_status, manpage

DRAW = random.Random(12)
Ota = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def ota(child_env: dict[str, str], tmp_path: Path) -> Ota:
    def run(*words: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "stoker_ota.cli.main", *map(str, words)]
        return subprocess.run(
            command, env=child_env, cwd=tmp_path, capture_output=True, text=True, check=False
        )

    return run


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two models of some megabytes: the second is a dense, small change with other metadata."""
    folder = tmp_path_factory.mktemp("pair")
    old = [FakeTensor(f"t{n}", DRAW.randbytes(700_000), 2, (700_000,)) for n in range(5)]
    plus = bytes((n + 1) & 255 for n in range(256))
    new = []
    for tensor in reversed(old):
        at = DRAW.randrange(600_000)
        data = bytearray(tensor.data)
        data[at : at + 9999] = tensor.data[at : at + 9999].translate(plus)
        new.append(FakeTensor(tensor.name, bytes(data), 2, (700_000,)))
    keys = {"template": "t" * 900, "tokens": [f"tok{n}" for n in range(3000)]}
    (folder / "v1").write_bytes(FakeModel(old, {**keys, "template": "short"}).file())
    (folder / "v2").write_bytes(FakeModel(new, keys).file())
    return folder / "v1", folder / "v2"


def said(done: subprocess.CompletedProcess[str], status: int = 0) -> Any:
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


def test_a_delta_is_made_proved_inspected_and_applied(
    ota: Ota, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    old, new = pair
    made = said(ota("delta", "make", "--json", old, new, "-o", "d"))
    assert made["ratio"] < 0.05
    assert made["proof"]["peak_memory_bytes"] < 64 << 20
    assert made["proof"]["memory_limit_bytes"] == 64 << 20
    facts = said(ota("delta", "inspect", "--json", "--windows", "d"))
    assert facts["index_sha256"] == made["index_sha256"]
    assert len(facts["list"]) == sum(facts["windows"].values())
    assert facts["target"]["sha256"] == hashlib.sha256(new.read_bytes()).hexdigest()
    assert said(ota("delta", "verify", "--json", "--memory-limit", 64, "d", old))["applied"]
    assert ota("delta", "apply", "d", old, "-o", "out").returncode == 0
    assert (tmp_path / "out").read_bytes() == new.read_bytes()
    again = said(ota("delta", "make", "--json", "--jobs", 1, "--no-proof", old, new, "-o", "e"))
    assert again["proof"] is None
    assert (tmp_path / "e").read_bytes() == (tmp_path / "d").read_bytes()


def test_an_interrupted_apply_goes_on(ota: Ota, pair: tuple[Path, Path], tmp_path: Path) -> None:
    old, new = pair
    ota("delta", "make", "--no-proof", old, new, "-o", "d")
    part = bytearray(new.read_bytes())
    part[2_500_000:] = bytes(len(part) - 2_500_000)
    (tmp_path / "out.part").write_bytes(part)
    done = said(ota("delta", "apply", "--json", "d", old, "-o", "out"))
    assert done["resumed_at_window"] >= 1
    assert (tmp_path / "out").read_bytes() == new.read_bytes()
    assert not (tmp_path / "out.part").exists()


@pytest.mark.parametrize("codec", ["bz2", "zstd"])
def test_every_window_is_applied_by_the_standard_bspatch(
    codec: str, ota: Ota, tmp_path: Path
) -> None:
    if shutil.which("bspatch") is None:
        pytest.skip("bspatch (package bsdiff) is not installed")
    old = DRAW.randbytes(30_000)
    new = old[:9_000] + b"inserted" + old[9_000:20_000] + DRAW.randbytes(9_000) + bytes(9_000)
    (tmp_path / "old").write_bytes(old)
    (tmp_path / "new").write_bytes(new)
    options = ("--codec", codec, "--window", "8K", "--max-ratio", 2, "--no-proof")
    made = said(ota("delta", "make", "--json", *options, "old", "new", "-o", "d"))
    assert {kind.split("-")[0] for kind in made["windows"]} == {"copy", "bsdiff", "data"}
    result = b""
    for number in range(sum(made["windows"].values())):
        out = said(ota("delta", "inspect", "--json", "--export", number, "--source", "old", "d"))
        command = ["bspatch", out["source"], "target", out["patch"]]
        subprocess.run(command, cwd=tmp_path, check=True)
        window = (tmp_path / "target").read_bytes()
        assert hashlib.sha256(window).hexdigest() == out["target_sha256"]
        result += window
    assert result == new


def test_failures_are_told_with_their_status(
    ota: Ota, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    old, new = pair
    ota("delta", "make", "--no-proof", old, new, "-o", "d")
    (tmp_path / "cut").write_bytes((tmp_path / "d").read_bytes()[:-1])
    (tmp_path / "noise").write_bytes(DRAW.randbytes(100_000))
    cases: list[tuple[int, str, tuple[object, ...]]] = [
        (65, "source-mismatch", ("apply", "d", new, "-o", "out")),
        (65, "bad-delta", ("apply", "cut", old, "-o", "out")),
        (65, "bad-delta", ("inspect", old)),
        (66, "file-unreadable", ("verify", "none")),
        (69, "delta-too-large", ("make", old, "noise", "-o", "out")),
        (64, "invalid-request", ("make", old, new, "-o", new)),
        (64, "invalid-request", ("inspect", "d", "--export", 0)),
        (64, "invalid-request", ("inspect", "d", "--export", 999, "--source", old)),
        (71, "no-memory", ("verify", "d", old, "--memory-limit", 8)),
        (71, "no-memory", ("make", old, new, "-o", "out", "--memory-limit", 8)),
    ]
    for status, code, words in cases:
        answer = said(ota("delta", *words, "--json"), status)
        assert answer["error"]["code"] == code, words
    for name in ("out", "out.part"):
        assert not (tmp_path / name).exists()
    assert new.stat().st_size > 1_000_000


@pytest.mark.parametrize("words", [(), ("delta",), ("delta", "make", "x"), ("delta", "x")])
def test_wrong_words_are_told_as_such(words: tuple[str, ...], ota: Ota) -> None:
    done = ota(*words)
    assert done.returncode == 64
    assert "usage: stoker-ota" in done.stderr
    assert not done.stdout


def test_every_error_has_an_exit_status() -> None:
    codes = [cls.code for cls in errors.all_errors()]
    assert sorted(codes) == sorted(exit_status.STATUS)
    assert len(codes) == len(set(codes))


def test_every_command_explains_itself_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    for command in arguments.COMMANDS:
        with pytest.raises(SystemExit):
            arguments.parse([*command.words, "--help"])
        text = capsys.readouterr().out
        assert "examples:" in text
        for example in command.examples:
            assert example in text
            words = shlex.split(example.replace("source <(", "").rstrip(")"))
            arguments.parse(words[1:])


def test_the_man_page_and_the_completion_are_what_the_program_says(root: Path) -> None:
    page = (root / "docs/man/stoker-ota.1").read_text(encoding="utf-8")
    assert page == manpage.page(), "run: python -m stoker_ota.cli.manpage > docs/man/stoker-ota.1"
    script = (root / "docs/completion/stoker-ota.bash").read_text(encoding="utf-8")
    assert script == completion.bash(), (
        "run: stoker-ota completion > docs/completion/stoker-ota.bash"
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["stoker-ota", ""], "delta"),
        (["stoker-ota", "delta", "ma"], "make"),
        (["stoker-ota", "delta", "make", "--co"], "--codec"),
        (["stoker-ota", "delta", "make", "--codec", "z"], "zstd"),
    ],
)
def test_bash_completes_the_words(words: list[str], expected: str, root: Path) -> None:
    script = f"""
        source docs/completion/stoker-ota.bash
        COMP_WORDS=({" ".join(repr(word) for word in words)})
        COMP_CWORD={len(words) - 1}
        _stoker_ota
        echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "-c", script], cwd=root, capture_output=True, text=True, check=True
    )
    assert expected in done.stdout.split()
