"""Where the parts of a GGUF file stand. No value of the model is read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor. ``length`` runs to the next tensor or the file's end, padding included."""

    name: str
    kind: int  # ggml's number of the type
    shape: tuple[int, ...]
    offset: int  # from the begin of the file
    length: int

    @property
    def end(self) -> int:
        return self.offset + self.length


@dataclass(frozen=True, slots=True)
class Layout:
    """Header bytes first, then tensors in the order of their offsets, without gaps."""

    size: int
    data_off: int
    tensors: tuple[Tensor, ...]
