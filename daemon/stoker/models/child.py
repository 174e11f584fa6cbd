"""The process that loads llama.cpp for stoker-model: ``python -m stoker.models.child``.

One request as JSON on standard input, JSON lines on standard output: progress, then a result or an
error. Whatever a hostile file does to llama.cpp ends this process and nothing else.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from stoker.errors import InternalError, StokerError
from stoker.models import measuring
from stoker.models.importance import Importance
from stoker.models.llama import WINDOW_TOKENS, Model
from stoker.models.quantizing import Recipe, quantize
from stoker.runner import gguf
from stoker.runner.facts import inspection
from stoker.runner.library import Library

Tell = Callable[[Mapping[str, object]], None]
Job = Mapping[str, Any]
DECODED_TOKENS: Final = 32
_KIB: Final = 1024


def inspect(job: Job, _tell: Tell) -> dict[str, object]:
    """Facts of the file; nothing is loaded."""
    found = inspection(job["model"], Library().system)
    tensors = gguf.read(job["model"]).tensors
    rows = [[t.name.decode("utf-8", "replace"), list(t.extents), t.bytes] for t in tensors]
    return {"facts": found["model"], "tensors": rows}


def evaluate(job: Job, tell: Tell) -> dict[str, object]:
    """Perplexity, and with a reference the divergence from it."""
    library, reference = Library(), None
    model = Model(library, job["model"], threads=job["threads"])
    if job.get("reference"):
        reference = Model(library, job["reference"], threads=job["threads"])
    progress = _progress(tell)
    return measuring.measure(model, job["text"], job["tokens"], progress, reference)


def score(job: Job, tell: Tell) -> dict[str, object]:
    """Nats a token of each text, as the runner's Score counts them."""
    model = Model(Library(), job["model"], threads=job["threads"])
    found = []
    for number, text in enumerate(job["texts"]):
        nats = measuring.measure(model, text, WINDOW_TOKENS, lambda _done, _total: None)
        found.append({"text": text, "nats_per_token": nats["nats_per_token"]})
        tell({"progress": [number + 1, len(job["texts"])]})
    return {"figures": found}


def cost(job: Job, _tell: Tell) -> dict[str, object]:
    """Load time, tokens a second, and the most memory this process ever had."""
    began = time.monotonic()
    model = Model(Library(), job["model"], threads=job["threads"])
    loaded = time.monotonic()
    prompt = [number % (model.width - 1) for number in range(1, WINDOW_TOKENS - DECODED_TOKENS)]
    model.logits(prompt[:32])
    start = time.monotonic()
    model.logits(prompt)
    middle = time.monotonic()
    model.follow(len(prompt), DECODED_TOKENS)
    end = time.monotonic()
    return {
        "load_s": loaded - began,
        "prefill_tok_s": len(prompt) / (middle - start),
        "decode_tok_s": DECODED_TOKENS / (end - middle),
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB,
    }


def importance(job: Job, tell: Tell) -> dict[str, object]:
    """Writes means of squared activations into ``target`` (numpy's .npz), a row a weight."""
    names = frozenset(
        tensor.name.decode("utf-8", "replace")
        for tensor in gguf.read(job["model"]).tensors
        if sum(extent > 1 for extent in tensor.extents) == 2
    )
    seen = Importance(names)
    model = Model(Library(), job["model"], threads=job["threads"], watch=seen.watch)
    measuring.measure(model, job["text"], job["tokens"], _progress(tell))
    means = seen.means()
    part = Path(f"{job['target']}.part.npz")
    np.savez(part, **means)  # type: ignore[arg-type]
    part.replace(job["target"])
    return {"weights": len(means), "missing": sorted(names - set(means))[:8]}


def make(job: Job, tell: Tell) -> dict[str, object]:
    """A new model file out of another one."""
    rows = {}
    if job.get("importance"):
        with np.load(job["importance"], allow_pickle=False) as kept:
            rows = {name: kept[name] for name in kept.files}
    recipe = Recipe(
        file_type=job["type"],
        types=tuple((pattern, kind) for pattern, kind in job.get("types", ())),
        prune=tuple(job.get("prune", ())),
        pure=bool(job.get("pure")),
        importance=rows,
    )
    target, progress = Path(job["target"]), _progress(tell)
    size = quantize(Library(), job["source"], target, recipe, job["threads"], progress)
    return {"bytes": size}


DOES: Final[Mapping[str, Callable[[Job, Tell], dict[str, object]]]] = {
    "inspect": inspect, "evaluate": evaluate, "score": score, "cost": cost,
    "importance": importance, "make": make,
}  # fmt: skip


def main() -> int:
    """Exit status 0 when a result or a typed error was told."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints must not stand between our lines
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def tell(line: Mapping[str, object]) -> None:
        out.write(json.dumps(line) + "\n")
        out.flush()

    try:
        job = json.load(sys.stdin)
        tell({"result": DOES[job["do"]](job, tell)})
    except StokerError as error:
        tell({"error": error.record()})
    except MemoryError:
        tell({"error": InternalError("cannot go on: memory is short").record()})
    out.flush()
    os._exit(0)  # llama.cpp's own end of a process can take long, and has nothing to save


def _progress(tell: Tell) -> measuring.Progress:
    return lambda done, total: tell({"progress": [done, total]})


if __name__ == "__main__":
    sys.exit(main())
