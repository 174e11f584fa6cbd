"""stoker-model's command line: sizes, patterns, layers, help with examples."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.core.model_shapes import QWEN_1_5B

from stoker.cli.verb import Verb
from stoker.errors import FileUnreadable
from stoker.models import main, manpage, quantizing, words
from stoker.models.study import Notebook, identity, read_text
from stoker.models.tables import read


@pytest.mark.parametrize(
    ("word", "value"),
    [("900M", 900 << 20), ("1.5GiB", 3 << 29), ("4g", 4 << 30), ("100", 100), ("64 kb", 65_536)],
)
def test_sizes_are_read_in_binary_units(word: str, value: int) -> None:
    assert words.size(word) == value


@pytest.mark.parametrize("word", ["", "G", "-1M", "1T", "one"])
def test_what_is_no_size_is_refused(word: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        words.size(word)


def test_layers_are_lists_and_ranges() -> None:
    assert words.layers("3,4,10-12,4") == (3, 4, 10, 11, 12)
    for wrong in ("", "a", "1-", "-3"):
        with pytest.raises(argparse.ArgumentTypeError):
            words.layers(wrong)


@pytest.mark.parametrize("word", ["ffn_down", "ffn_down=q9", "ffn_(=q8_0", "=q8_0x"])
def test_a_wrong_pattern_or_type_is_told_before_work_begins(word: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        words.typed_tensor(word)


def test_the_types_offered_are_those_the_quantiser_knows() -> None:
    assert set(words.FILE_TYPES) == set(quantizing.FILE_TYPES)
    assert set(words.TENSOR_TYPES) == set(quantizing.TENSOR_TYPES)


@pytest.mark.parametrize("verb", words.VERBS, ids=lambda verb: verb.name)
def test_every_verb_has_help_with_examples(verb: Verb, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([verb.name, "--help"]) == 0
    said = capsys.readouterr().out
    assert verb.text in said
    assert all(example in said for example in verb.examples)


def test_wrong_words_exit_with_64(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["frob"]) == 64
    assert main.run(["prune", "a", "b"]) == 64
    assert main.run(["quantize", "a", "b", "--type", "q9"]) == 64


def test_types_are_taken_as_people_and_our_pages_write_them() -> None:
    given = ["quantize", "a", "b", "--type", "Q4_K_M", "--tensor", "ffn_down=Q8_0", "--json"]
    args = words.build().parse_args(given)
    assert (args.type, args.tensor, args.json) == ("q4_k_m", [("ffn_down", "q8_0")], True)
    assert words.build().parse_args(["--json", "inspect", "a"]).json
    assert not words.build().parse_args(["inspect", "a"]).json


@pytest.mark.parametrize("word", ["x", "0", "-1", "1.5"])
def test_a_wrong_count_is_told_without_names_of_ours(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        words.build().parse_args(["--threads=" + word, "inspect", "a"])
    assert f"{word} is not a number of 1 and more" in capsys.readouterr().err


def test_a_missing_text_is_named_once(tmp_path: Path) -> None:
    with pytest.raises(FileUnreadable) as caught:
        read_text(tmp_path / "none", 10)
    assert str(caught.value) == f"cannot read {tmp_path / 'none'}: No such file or directory"


def test_a_notebook_measures_once_and_forgets_what_was_about_something_else(tmp_path: Path) -> None:
    file, calls = tmp_path / "n.json", []

    def make() -> dict[str, int]:
        calls.append(1)
        return {"n": len(calls)}

    assert Notebook(file, {"a": 1}).once("k", make) == {"n": 1}
    assert Notebook(file, {"a": 1}).once("k", make) == {"n": 1}
    assert Notebook(file, {"a": 2}).once("k", make) == {"n": 2}
    file.write_text("{broken")
    assert Notebook(file, {"a": 2}).once("k", make) == {"n": 3}


def test_another_file_has_another_identity(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_bytes(b"x" * 5_000_000)
    second.write_bytes(b"x" * 2_500_000 + b"y" + b"x" * 2_499_999)
    assert identity(first) != identity(second)
    assert identity(first) == identity(first)


def test_a_token_reads_no_embedding_that_is_looked_up_and_only_the_experts_used() -> None:
    tensors = [("token_embd.weight", (8, 100), 800), ("output.weight", (8, 100), 800),
               ("blk.0.ffn_up_exps.weight", (8, 8, 16), 1600)]  # fmt: skip
    untied = replace(QWEN_1_5B, tied_output=False, experts_used=4)
    assert read(untied, tensors) == 800 + 400
    assert read(replace(untied, tied_output=True), tensors) == 800 + 800 + 400


def test_the_man_page_is_what_the_command_line_gives(root: Path) -> None:
    shipped = (root / "docs/man/stoker-model.1").read_text(encoding="utf-8")
    assert shipped == manpage.page(), "python -m stoker.models.manpage > docs/man/stoker-model.1"
