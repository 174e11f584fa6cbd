"""How a model file does on a text, and how far it is from another one. In the child process.

Perplexity is exp of the mean surprise; the Kullback-Leibler divergence is of the tested model's
next-token distribution from the reference's, in nats a token, as llama.cpp's perplexity tool has
it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stoker.errors import InvalidRequest
from stoker.models.llama import Floats, Model, log_softmax, windows

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Tally:
    """Sums over all tokens that were looked at."""

    nats: float = 0.0
    tokens: int = 0
    kl: list[float] = field(default_factory=list)
    same_choice: int = 0
    compute_s: float = 0.0

    def result(self) -> dict[str, Any]:
        """JSON: perplexity, tokens, tokens a second, and with a reference the divergence."""
        if not self.tokens:
            raise InvalidRequest("cannot measure: the text has fewer than two tokens")
        out: dict[str, Any] = {
            "tokens": self.tokens,
            "nats_per_token": self.nats / self.tokens,
            "perplexity": math.exp(self.nats / self.tokens),
            "prefill_tok_s": self.tokens / self.compute_s if self.compute_s else 0.0,
        }
        if self.kl:
            kl = np.asarray(self.kl)
            out |= {
                "kl_mean": float(kl.mean()),
                "kl_p99": float(np.quantile(kl, 0.99)),
                "kl_max": float(kl.max()),
                "same_choice": self.same_choice / self.tokens,
            }
        return out


def measure(
    model: Model, text: str, most: int, progress: Progress, reference: Model | None = None
) -> dict[str, Any]:
    """Both models must have one vocabulary. Raises InvalidRequest, EngineFailed."""
    if reference is not None and reference.width != model.width:
        raise InvalidRequest(
            f"cannot compare: the vocabularies have {model.width} and {reference.width} tokens"
        )
    tally = Tally()
    cut = list(windows(model, text, most))
    for number, window in enumerate(cut):
        if reference is not None and number == 0 and reference.tokens("a b") != model.tokens("a b"):
            raise InvalidRequest("cannot compare: the models read text in different tokens")
        theirs = None if reference is None else log_softmax(reference.logits(window)[:-1])
        began = time.monotonic()
        ours = log_softmax(model.logits(window)[:-1])
        tally.compute_s += time.monotonic() - began
        _count(tally, ours, theirs, window)
        progress(number + 1, len(cut))
    return tally.result()


def _count(tally: Tally, ours: Floats, theirs: Floats | None, window: list[int]) -> None:
    following = np.asarray(window[1:])
    tally.nats -= float(ours[np.arange(len(following)), following].sum(dtype=np.float64))
    tally.tokens += len(following)
    if theirs is None:
        return
    weight = np.exp(theirs)
    kl = (weight * (theirs - ours)).sum(axis=1, dtype=np.float64)
    tally.kl += [max(0.0, float(one)) for one in kl]
    tally.same_choice += int((ours.argmax(axis=1) == theirs.argmax(axis=1)).sum())
