"""Text to tokens and back for one loaded model; the piece of each token is cached."""

from __future__ import annotations

import ctypes
from typing import Any, Final

from stoker.errors import EngineFailed, RequestTooLarge
from stoker.runner import tool_forms
from stoker.runner.reasoning import CLOSE, OPEN

MAX_TEXT_BYTES: Final = 8 * 1024 * 1024
# control tokens print as nothing; these carry structure that we read
_SHOWN: Final = frozenset(tag.encode() for tag in (OPEN, CLOSE, *tool_forms.MARKS))


def to_bytes(text: str) -> bytes:
    """UTF-8; halves of surrogate pairs are joined, lone ones become U+FFFD."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode("utf-8")


class Vocabulary:
    def __init__(self, c: Any, vocab: Any) -> None:
        self._c = c
        self._vocab = vocab
        self.size = int(c.llama_vocab_n_tokens(vocab))
        self._pieces: dict[int, bytes | None] = {}
        self._order: tuple[list[bytes], list[int], list[int]] | None = None
        self._buffer = ctypes.create_string_buffer(256)
        bos = int(c.llama_vocab_bos(vocab))
        self._bos = bos if c.llama_vocab_get_add_bos(vocab) and 0 <= bos < self.size else None
        self.bos_text = self._marker(bos)
        self.eos_text = self._marker(int(c.llama_vocab_eos(vocab)))

    def encode(self, text: str) -> list[int]:
        """A whole prompt. A template that wrote the beginning mark itself gets no second one."""
        tokens = self.tokenize(text, add_special=False, parse_special=True)
        if self._bos is not None and tokens[:1] != [self._bos]:
            tokens.insert(0, self._bos)
        return tokens

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        data = to_bytes(text)
        if len(data) > MAX_TEXT_BYTES:
            raise RequestTooLarge(f"cannot tokenize text: it is over {MAX_TEXT_BYTES} bytes")
        room = len(data) // 2 + 16
        for _ in range(2):
            tokens = (self._c.llama_token * room)()
            count = self._c.llama_tokenize(
                self._vocab, data, len(data), tokens, room, add_special, parse_special
            )
            if count >= 0:
                return list(tokens[:count])
            room = -count
        raise EngineFailed("cannot tokenize text: the library changed its mind about the size")

    def piece(self, token: int) -> bytes | None:
        """Bytes of a token (b"" for control tokens); None = it ends the text."""
        try:
            return self._pieces[token]
        except KeyError:
            piece = self._pieces[token] = self._look_up(token)
            return piece

    def ends(self) -> list[int]:
        """Tokens that end a text."""
        return self._sorted()[2]

    def in_order(self) -> tuple[list[bytes], list[int]]:
        """Bytes of all tokens that print something, sorted, and their numbers."""
        pieces, numbers, _ = self._sorted()
        return pieces, numbers

    def _sorted(self) -> tuple[list[bytes], list[int], list[int]]:
        if self._order is None:  # a tenth of a second for 50,000 tokens, so only when wanted
            found = [(self.piece(token), token) for token in range(self.size)]
            printed = sorted((piece, token) for piece, token in found if piece)
            ends = [token for piece, token in found if piece is None]
            self._order = [item[0] for item in printed], [item[1] for item in printed], ends
        return self._order

    def _look_up(self, token: int) -> bytes | None:
        if not 0 <= token < self.size:
            raise EngineFailed(f"cannot read token {token}: out of range")
        if self._c.llama_vocab_is_eog(self._vocab, token):
            return None
        piece = self._bytes(token, special=False)
        if not piece:
            special = self._bytes(token, special=True)
            return special if special in _SHOWN else b""
        return piece

    def _bytes(self, token: int, *, special: bool) -> bytes:
        size = len(self._buffer)
        count = self._c.llama_token_to_piece(self._vocab, token, self._buffer, size, 0, special)
        if count < 0:
            self._buffer = ctypes.create_string_buffer(-count)
            count = self._c.llama_token_to_piece(
                self._vocab, token, self._buffer, -count, 0, special
            )
        return self._buffer.raw[: max(count, 0)]

    def _marker(self, token: int) -> str:
        if not 0 <= token < self.size:
            return ""
        return self._bytes(token, special=True).decode("utf-8", "replace")
