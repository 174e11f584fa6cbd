"""The words of a random model: those of a real tokenizer, or a tiny byte-level one of our own.

Gives the keys ``tokenizer.*`` as GGUF bytes. A vocabulary file of llama.cpp's sources is trusted
as those are; nothing else may be read with this.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_WIDTHS: Final = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING: Final = 8
_ARRAY: Final = 9
_MERGES: Final = ("Ġ t", "Ġt h", "Ġth e", "i n", "Ġ a", "e r", "o n", "Ġ s", "a n", "Ġan d")
_SPECIAL: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHATML: Final = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """``count`` keys in ``keys``; ``size`` words, of which the ``silent`` shall never be said."""

    keys: bytes
    count: int
    size: int
    silent: tuple[int, ...] = ()


def tiny() -> Vocabulary:
    """Every byte, ten merges and the words of ChatML: 269 tokens; silent is what is no plain
    text, the end too: such a model talks until it is stopped."""
    words = [*_byte_letters(), *(merge.replace(" ", "") for merge in _MERGES), *_SPECIAL]
    first_special = len(words) - len(_SPECIAL)
    kinds = [3 if index >= first_special else 1 for index in range(len(words))]  # control, normal
    pairs = [
        _named("tokenizer.ggml.model", struct.pack("<I", _STRING) + _text("gpt2")),
        _named("tokenizer.ggml.pre", struct.pack("<I", _STRING) + _text("qwen2")),
        _named("tokenizer.ggml.tokens", _texts(words)),
        _named("tokenizer.ggml.token_type", _numbers(kinds)),
        _named("tokenizer.ggml.merges", _texts(_MERGES)),
        _named("tokenizer.ggml.eos_token_id", struct.pack("<II", 4, first_special + 2)),
        _named("tokenizer.ggml.bos_token_id", struct.pack("<II", 4, first_special)),
        _named("tokenizer.chat_template", struct.pack("<I", _STRING) + _text(CHATML)),
    ]
    plain = range(0x20, 0x7F)
    silent = [byte for byte in range(256) if byte not in plain]
    return Vocabulary(
        b"".join(pairs),
        len(pairs),
        len(words),
        (*silent, *range(first_special, len(words))),
    )


def copied(path: Path) -> Vocabulary:
    """The ``tokenizer.*`` keys of a GGUF file, byte for byte."""
    data = path.read_bytes()
    count = struct.unpack_from("<Q", data, 16)[0]
    at, kept, words = 24, [], 0
    for _ in range(count):
        start = at
        name_bytes = struct.unpack_from("<Q", data, at)[0]
        name = data[at + 8 : at + 8 + name_bytes].decode()
        at += 8 + name_bytes
        kind, at = struct.unpack_from("<I", data, at)[0], at + 4
        at, items = _end(data, at, kind)
        if name.startswith("tokenizer."):
            kept.append(data[start:at])
        if name == "tokenizer.ggml.tokens":
            words = items
    return Vocabulary(b"".join(kept), len(kept), words)


def _end(data: bytes, at: int, kind: int) -> tuple[int, int]:
    """(where a value ends, how many items it has)."""
    if kind == _STRING:
        return at + 8 + int(struct.unpack_from("<Q", data, at)[0]), 1
    if kind != _ARRAY:
        return at + _WIDTHS[kind], 1
    inner, items = struct.unpack_from("<IQ", data, at)
    at += 12
    if inner != _STRING:
        return at + _WIDTHS[inner] * items, items
    for _ in range(items):
        at += 8 + struct.unpack_from("<Q", data, at)[0]
    return at, items


def _byte_letters() -> list[str]:
    """The printable letter that stands for each byte, in GPT-2's byte-level BPE: itself where it
    prints, else the next free one from U+0100 on."""
    prints = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in prints]
    stand_in = {byte: 0x100 + index for index, byte in enumerate(hidden)}
    return [chr(stand_in.get(byte, byte)) for byte in range(256)]


def _named(key: str, value: bytes) -> bytes:
    return _text(key) + value


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _texts(texts: Sequence[str]) -> bytes:
    head = struct.pack("<IIQ", _ARRAY, _STRING, len(texts))
    return head + b"".join(_text(text) for text in texts)


def _numbers(numbers: Sequence[int]) -> bytes:
    return struct.pack(f"<IIQ{len(numbers)}i", _ARRAY, 5, len(numbers), *numbers)
