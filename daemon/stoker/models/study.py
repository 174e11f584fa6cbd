"""Long studies in steps: which groups may have few bits, which layers may go, what variants cost.

Every step's result is kept beside the target at once, so that an ended study goes on where it was.
Steps come in a fixed order and nothing is random: the same inputs give the same choice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from stoker.errors import FileUnreadable, InvalidRequest, StorageFailed
from stoker.models import mixing
from stoker.models.mixing import Group, Harm
from stoker.models.workshop import Workshop

Say = Callable[[str, float], None]
"""(what is being done, how much of all is done: 0..1)"""
_SAMPLE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Text:
    """What models are measured on, and how much of it."""

    words: str
    tokens: int

    @property
    def key(self) -> str:
        return hashlib.sha256(f"{self.tokens}\n{self.words}".encode()).hexdigest()[:16]


class Notebook:
    """Results by key in one JSON file, written after each."""

    def __init__(self, path: Path, about: Mapping[str, object]) -> None:
        """A file about something else begins anew."""
        self._path, self._about = path, dict(about)
        self._kept: dict[str, Any] = {}
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            if found.get("about") == self._about:
                self._kept = dict(found["results"])
        except (OSError, ValueError, AttributeError, KeyError, TypeError):
            pass  # not there, or not ours

    def once(self, key: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The kept result, or a new one."""
        if key not in self._kept:
            self._kept[key] = make()
            part = self._path.with_name(f".{self._path.name}.part")
            try:
                part.write_text(json.dumps({"about": self._about, "results": self._kept}, indent=1))
                part.replace(self._path)
            except OSError as error:
                raise StorageFailed(f"cannot write {self._path}: {error.strerror}") from error
        found: dict[str, Any] = self._kept[key]
        return found

    def drop(self) -> None:
        """The study has ended."""
        self._path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Mix:
    """``low`` and ``high``: types of tensors; the file is to have at most ``budget_bytes``."""

    low: str
    high: str
    budget_bytes: int


def mix(
    shop: Workshop, source: Path, target: Path, text: Text, wanted: Mix, importance: str, say: Say
) -> dict[str, Any]:
    """Makes ``target``; the groups chosen and what each would have done."""
    tensors = shop.do("inspect", model=str(source))["tensors"]
    parts = mixing.groups((name, extents) for name, extents, _bytes in tensors)
    about = {"study": "mix", "source": identity(source), "text": text.key,
             "types": [wanted.low, wanted.high], "importance": importance}  # fmt: skip
    notes = Notebook(target.with_name(f"{target.name}.study.json"), about)
    trial = target.with_name(f".{target.name}.trial.gguf")

    def measured(name: str, low: Sequence[Group]) -> dict[str, Any]:
        def make() -> dict[str, Any]:
            size = _make_mixed(shop, source, trial, wanted, low, importance)
            found = shop.do("evaluate", model=str(trial), reference=str(source),
                            text=text.words, tokens=text.tokens)  # fmt: skip
            return {"bytes": size, "kl_mean": found["kl_mean"]}

        return notes.once(name, make)

    try:
        say("everything high", 0.0)
        high = measured("", ())
        harms: dict[str, Harm] = {}
        for number, part in enumerate(parts):
            say(f"{part.name} low", (number + 1) / (len(parts) + 2))
            found = measured(part.name, (part,))
            kl = max(0.0, found["kl_mean"] - high["kl_mean"])
            harms[part.name] = Harm(kl, high["bytes"] - found["bytes"])
        chosen = mixing.choose(harms, high["bytes"], wanted.budget_bytes)
        say("the chosen mix", (len(parts) + 1) / (len(parts) + 2))
        final = measured("|".join(chosen), [p for p in parts if p.name in chosen])
        low = [part for part in parts if part.name in chosen]
        size = _make_mixed(shop, source, target, wanted, low, importance)
    finally:
        trial.unlink(missing_ok=True)
    notes.drop()
    return {
        "bytes": size,
        "kl_mean": final["kl_mean"],
        "low": list(chosen),
        "groups": [{"name": n, "kl": h.kl, "saved_bytes": h.saved_bytes} for n, h in harms.items()],
    }


def _make_mixed(
    shop: Workshop, source: Path, target: Path, wanted: Mix, low: Sequence[Group], importance: str
) -> int:
    types = [(part.pattern, wanted.low) for part in low]
    found = shop.do("make", source=str(source), target=str(target), type=_file_type(wanted.high),
                    types=types, importance=importance, pure=True)  # fmt: skip
    return int(found["bytes"])


def _file_type(tensor_type: str) -> str:
    """The file type whose tensors have that type."""
    return {"q4_k": "q4_k_s", "q5_k": "q5_k_s", "q3_k": "q3_k_s"}.get(tensor_type, tensor_type)


def prune(
    shop: Workshop, source: Path, target: Path, text: Text, count: int, kind: str, say: Say
) -> dict[str, Any]:
    """Makes ``target`` without the ``count`` layers whose loss alone hurts least."""
    facts = shop.do("inspect", model=str(source))["facts"]
    layers = int(facts["layers"])
    about = {"study": "prune", "source": identity(source), "text": text.key, "type": kind}
    notes = Notebook(target.with_name(f"{target.name}.study.json"), about)
    trial = target.with_name(f".{target.name}.trial.gguf")

    def without(layer: int) -> dict[str, Any]:
        shop.do("make", source=str(source), target=str(trial), type=kind, prune=[layer])
        found = shop.do("evaluate", model=str(trial), reference=str(source),
                        text=text.words, tokens=text.tokens)  # fmt: skip
        return {"kl_mean": found["kl_mean"]}

    try:
        harms: dict[int, float] = {}
        for layer in range(layers):
            say(f"without layer {layer}", layer / layers)
            found = notes.once(str(layer), lambda layer=layer: without(layer))  # type: ignore[misc]
            harms[layer] = found["kl_mean"]
        gone = mixing.least_harmful(harms, count)
    finally:
        trial.unlink(missing_ok=True)
    made = shop.do("make", source=str(source), target=str(target), type=kind, prune=list(gone))
    notes.drop()
    return {"bytes": made["bytes"], "layers": list(gone), "harms": harms}


def compare(
    shop: Workshop, models: Sequence[Path], text: Text, reference: Path | None, keep: Path | None,
    say: Say,
) -> list[dict[str, Any]]:  # fmt: skip
    """One row a model: size, perplexity, divergence, tokens a second, peak memory."""
    about = {"study": "evaluate", "text": text.key,
             "reference": identity(reference) if reference else ""}  # fmt: skip
    notes = Notebook(keep, about) if keep is not None else None
    rows = []
    for number, model in enumerate(models):
        say(model.name, number / len(models))

        def measured(model: Path = model) -> dict[str, Any]:
            named = {"reference": str(reference)} if reference else {}
            found = shop.do(
                "evaluate", model=str(model), text=text.words, tokens=text.tokens, **named
            )
            # by itself, so that the reference's memory is not counted
            return {**found, **shop.do("cost", model=str(model)), "bytes": model.stat().st_size}

        found = notes.once(identity(model), measured) if notes is not None else measured()
        rows.append({"model": model.name, **found})
    return rows


def identity(path: Path) -> str:
    """Of a file: its size and a hash of both ends and the middle, which no other build shares."""
    try:
        size = path.stat().st_size
        digest = hashlib.sha256(str(size).encode())
        with path.open("rb") as file:
            for at in (0, size // 2, max(0, size - _SAMPLE)):
                file.seek(at)
                digest.update(file.read(_SAMPLE))
    except OSError as error:
        raise FileUnreadable(f"cannot read {path}: {error.strerror}") from error
    return digest.hexdigest()[:24]


def read_text(path: Path, tokens: int) -> Text:
    """Raises FileUnreadable, InvalidRequest."""
    try:
        words = path.read_text(encoding="utf-8")
    except OSError as error:
        raise FileUnreadable(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise FileUnreadable(f"cannot read {path}: it is no UTF-8 text") from error
    if not words.strip():
        raise InvalidRequest(f"cannot measure on {path}: it has no text")
    return Text(words, tokens)
