"""stoker-model's command line: verbs, options, examples. Nothing is done here."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from stoker import __version__
from stoker.cli.verb import Verb
from stoker_ota.core import word_order

FILE_TYPES: Final = (
    "f32", "f16", "bf16", "q8_0", "q6_k", "q5_k_m", "q5_k_s", "q5_1", "q5_0", "q4_k_m", "q4_k_s",
    "q4_1", "q4_0", "iq4_nl", "iq4_xs", "q3_k_l", "q3_k_m", "q3_k_s", "q2_k",
)  # fmt: skip
TENSOR_TYPES: Final = (
    "f32", "f16", "bf16", "q8_0", "q6_k", "q5_k", "q5_1", "q5_0", "q4_k", "q4_1", "q4_0",
    "iq4_nl", "iq4_xs", "q3_k", "q2_k",
)  # fmt: skip
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
TOKENS: Final = 2048


def size(word: str) -> int:
    """Bytes, such as 900M or 1.5GiB; units are binary."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([kmg]?)(?:i?b)?", word.strip().lower())
    if found is None:
        raise argparse.ArgumentTypeError(f"{word} is not a size such as 900M or 1.5GiB")
    return int(float(found[1]) * _UNITS[found[2]])


def typed_tensor(word: str) -> tuple[str, str]:
    """PATTERN=TYPE."""
    pattern, sign, kind = word.rpartition("=")
    kind = kind.lower()
    if not sign or kind not in TENSOR_TYPES:
        raise argparse.ArgumentTypeError(
            f"{word} is not PATTERN=TYPE with one of {', '.join(TENSOR_TYPES)}"
        )
    try:
        re.compile(pattern)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{pattern}: {error}") from error
    return pattern, kind


def layers(word: str) -> tuple[int, ...]:
    """3,4,10-12."""
    found: set[int] = set()
    for part in word.split(","):
        match = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", part.strip())
        if match is None:
            raise argparse.ArgumentTypeError(f"{word} is not a list of layers such as 3,4,10-12")
        found |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(sorted(found))


def _count(word: str) -> int:
    if not re.fullmatch(r"\d{1,9}", word) or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word} is not a number of 1 and more")
    return int(word)


def _inspect(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("model", metavar="MODEL", type=Path, help="a GGUF file (of a split one the first part)")
    add("--board", metavar="NAME", help="what it would do there, such as raspberrypi-5")
    add("--memory", metavar="SIZE", type=size, help="of that board (default: this device's)")


def _text(parser: argparse.ArgumentParser, *, required: bool) -> None:
    add = parser.add_argument
    add("--text", metavar="FILE", type=Path, required=required, help="what is measured on")
    add("--tokens", metavar="N", type=_count, default=TOKENS, help=f"of it ({TOKENS})")


def _quantize(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("source", metavar="SOURCE", type=Path, help="the model, best in f16 or bf16")
    add("target", metavar="TARGET", type=Path, help="the new file")
    add("--type", type=str.lower, choices=FILE_TYPES, default="q4_k_m", help="of the file (q4_k_m)")
    add("--tensor", metavar="PATTERN=TYPE", type=typed_tensor, action="append", default=[],
        help="another type for tensors whose name fits (may be repeated)")  # fmt: skip
    add("--importance", action="store_true", help="weigh errors by activations over --text")
    add("--budget", metavar="SIZE", type=size, help="mix two types so that it has this size")
    add(
        "--low",
        type=str.lower,
        choices=TENSOR_TYPES,
        default="q4_k",
        help="with --budget: few bits (q4_k)",
    )
    add(
        "--high",
        type=str.lower,
        choices=TENSOR_TYPES,
        default="q8_0",
        help="with --budget: more (q8_0)",
    )
    _text(parser, required=False)


def _prune(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("source", metavar="SOURCE", type=Path, help="the model")
    add("target", metavar="TARGET", type=Path, help="the new file")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--layers", metavar="LIST", type=layers, help="to leave out: 3,4,10-12")
    which.add_argument("--count", metavar="N", type=_count, help="so many, by measured harm")
    add("--type", type=str.lower, choices=FILE_TYPES, default="q8_0", help="of the file (q8_0)")
    _text(parser, required=False)


def _evaluate(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("models", metavar="MODEL", type=Path, nargs="+", help="variants to compare")
    add("--reference", metavar="MODEL", type=Path, help="the divergence from this one too")
    add("--keep", metavar="FILE", type=Path, help="results; what is in it is not measured again")
    add("--plot", metavar="FILE", type=Path, help="a PNG of size against quality")
    add("--probes", metavar="FILE", type=Path, help="texts, one a line, for health probes")
    add("--figures", metavar="FOLDER", type=Path,
        help="with --probes: a file a variant for 'stoker-ota probe make'")  # fmt: skip
    _text(parser, required=True)


VERBS: Final = (
    Verb(
        "inspect", "what a model file is, and what it needs on a board",
        "Facts of a GGUF file without loading it: shape, types, size; and what of it fits a\n"
        "board's memory, and about how fast it would write there.",
        ("stoker-model inspect model.gguf",
         "stoker-model inspect model.gguf --board raspberrypi-5 --memory 8G"), _inspect,
    ),
    Verb(
        "quantize", "make a smaller file of it",
        "llama.cpp's quantiser. With --importance errors count by the activations over a\n"
        "calibration text. With --budget two types are mixed: each group of tensors is measured\n"
        "alone (Kullback-Leibler divergence from the source), and those that hurt least for the\n"
        "bytes they save get few bits, until the file fits. An ended study goes on where it was.",
        ("stoker-model quantize model-f16.gguf model-q4.gguf",
         "stoker-model quantize model-f16.gguf out.gguf --importance --text calibration.txt",
         "stoker-model quantize model-f16.gguf out.gguf --type q4_0 --tensor 'ffn_down=q8_0'",
         "stoker-model quantize model-f16.gguf out.gguf --budget 1.1G --text calibration.txt"),
        _quantize,
    ),
    Verb(
        "prune", "leave layers out",
        "A file without some layers: those you name, or those whose loss alone hurts least on a\n"
        "text. A pruned model wants to be trained again a little; evaluate tells how much it lost.",
        ("stoker-model prune model-f16.gguf smaller.gguf --layers 20,21",
         "stoker-model prune model-f16.gguf smaller.gguf --count 2 --text sample.txt"), _prune,
    ),
    Verb(
        "evaluate", "what variants cost and what they are worth",
        "Perplexity on a text, divergence from a reference, size, tokens a second and peak memory\n"
        "of any number of variants, as a table and a plot. With --probes also the figures that\n"
        "'stoker-ota probe make' turns into bounds for health probes.",
        ("stoker-model evaluate q4.gguf q8.gguf --text sample.txt --reference f16.gguf",
         "stoker-model evaluate *.gguf --text sample.txt --keep table.json --plot table.png",
         "stoker-model evaluate q4.gguf --text sample.txt --probes probes.txt --figures figures"),
        _evaluate,
    ),
)  # fmt: skip


class _Words(argparse.ArgumentParser):
    """Options may stand anywhere among a verb's words."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        words = sys.argv[1:] if args is None else args
        if self._subparsers is None:
            words = word_order.gathered(self, words)
        return super().parse_known_args(words, namespace)


def build() -> argparse.ArgumentParser:
    """The whole parser."""
    out = _Words(
        prog="stoker-model",
        description="Look at, quantise, prune and judge model files.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    out.add_argument("--version", action="version", version=f"stoker-model {__version__}")
    out.add_argument("--json", action="store_true", help="print JSON for programs")
    out.add_argument("--threads", metavar="N", type=_count, help="to compute with")
    verbs = out.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb in VERBS:
        text = f"examples:\n{''.join(f'  {example}{chr(10)}' for example in verb.examples)}"
        parser = verbs.add_parser(
            verb.name, help=verb.summary, description=verb.text, epilog=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        verb.fill(parser)
        parser.add_argument(
            "--json", action="store_true", default=argparse.SUPPRESS, help="print JSON for programs"
        )
    return out
