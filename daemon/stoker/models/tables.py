"""What stoker-model found, as lines for people; and what a file would do on a board. Pure.

Speed is the memory's: a token of decode reads every weight once, so that tokens a second are
bandwidth over bytes. Bandwidths are of llama.cpp as published for these boards, not of data
sheets: docs/models.md has the sources.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from stoker.cli.screens import columns, size
from stoker.core import fit
from stoker.errors import InvalidRequest
from stoker.events import model_facts
from stoker.events.memory import MemoryFacts
from stoker.events.model_facts import ModelFacts
from stoker.units import Bytes

BANDWIDTH_GB_S: Final = {
    "raspberrypi-4": 4.0, "raspberrypi-5": 10.0, "rk3588": 17.0, "jetson-orin": 40.0,
    "x86-generic": 25.0,
}  # fmt: skip
_GB: Final = 1e9


def inspected(found: Mapping[str, Any], board: str, total: int, free: int) -> dict[str, Any]:
    """Facts, the plan for this memory, and about how fast it would be."""
    facts = model_facts.of_mapping(found["facts"])
    reads = read(facts, found["tensors"])
    memory = MemoryFacts(Bytes(total), Bytes(free), "memory")
    planned = fit.plan(facts, memory, fit.Wishes())
    out: dict[str, Any] = {"facts": found["facts"], "memory_bytes": free, "read_bytes": reads}
    if isinstance(planned, fit.Refusal):
        out |= {"fits": False, "reason": planned.reason, "hint": planned.hint}
    else:
        parts = {**asdict(planned.parts), "total": planned.parts.total}
        out |= {"fits": True, "plan": {**asdict(planned), "parts": parts}}
    if board:
        if board not in BANDWIDTH_GB_S:
            raise InvalidRequest(
                f"cannot estimate for {board}: no bandwidth is known",
                hint=f"boards: {', '.join(BANDWIDTH_GB_S)}",
            )
        out |= {"board": board, "decode_tok_s": BANDWIDTH_GB_S[board] * _GB / reads}
    return out


def read(facts: ModelFacts, tensors: Sequence[tuple[str, Sequence[int], int]]) -> int:
    """Bytes of weights that one token of decode reads: all but an embedding that is only looked
    up, and of experts those that are used."""
    total = 0.0
    for name, extents, count in tensors:
        if name == "token_embd.weight" and not facts.tied_output:
            continue
        experts = extents[2] if "_exps." in name and len(extents) > 2 else 1
        total += count * min(1.0, (facts.experts_used or 1) / max(experts, 1))
    return max(int(total), 1)


def lines(verb: str, found: Mapping[str, Any], target: Path | None) -> list[str]:
    """For people."""
    return _LINES[verb](found, target)


def _inspect(found: Mapping[str, Any], _target: Path | None) -> list[str]:
    facts = found["facts"]
    types = sorted(facts["bytes_by_type"].items(), key=lambda item: -item[1])
    rows = [
        ("model", f"{found['model']}: {facts['architecture']}, {facts['layers']} layers"),
        ("shape", f"{facts['embedding']} wide, {facts['heads']} heads, "
                  f"{max(facts['kv_heads'], default=0)} for keys, ff {facts['feed_forward']}"),
        ("words", f"{facts['vocabulary']} tokens, trained on {facts['training_context']}"),
        ("weights", f"{size(facts['weight_bytes'])}: "
                    + ", ".join(f"{name} {size(count)}" for name, count in types)),
    ]  # fmt: skip
    if found["fits"]:
        plan = found["plan"]
        whole, memory = size(plan["parts"]["total"]), size(found["memory_bytes"])
        words = f"{plan['slots']} slots of {plan['context_tokens']} tokens, {plan['kv_type']} keys"
        rows.append(("fits", f"{words} and values: {whole} of {memory}"))
    else:
        rows.append(("fits", f"no: {found['reason']}"))
        rows.append(("", found["hint"]))
    if "decode_tok_s" in found:
        speed = found["decode_tok_s"]
        rows.append(
            ("speed", f"about {speed:.3g} tokens/s on {found['board']}, if it is alone there")
        )
    return columns(rows)


def _made(found: Mapping[str, Any], target: Path | None) -> list[str]:
    out = [f"{target}: {size(found['bytes'])}"]
    if "groups" in found:
        rows = [("GROUP", "HARM (nats a token)", "SAVES", "")]
        for group in sorted(found["groups"], key=lambda item: item["kl"]):
            low = "few bits" if group["name"] in found["low"] else ""
            rows.append((group["name"], f"{group['kl']:.5f}", size(group["saved_bytes"]), low))
        out += ["", *columns(rows), "", f"together: {found['kl_mean']:.5f} nats a token"]
    if "layers" in found:
        out.append(f"without the layers {', '.join(map(str, found['layers']))}")
    return out


def _evaluated(found: Mapping[str, Any], _target: Path | None) -> list[str]:
    rows = [tuple(title for title, _ in COLUMNS)]
    rows += [tuple(show(one) for _, show in COLUMNS) for one in found["variants"]]
    kept = [at for at in range(len(COLUMNS)) if any(row[at] for row in rows[1:])]
    out = columns([tuple(row[at] for at in kept) for row in rows])
    return out + [f"figures for probes: {path}" for path in found["figures"]]


def _number(key: str, form: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda row: format(row[key], form) if key in row else ""


COLUMNS: Final[Sequence[tuple[str, Callable[[Mapping[str, Any]], str]]]] = (
    ("MODEL", lambda row: str(row["model"])),
    ("SIZE", lambda row: size(int(row["bytes"]))),
    ("PERPLEXITY", _number("perplexity", ".3f")),
    ("KL", _number("kl_mean", ".4f")),
    ("KL P99", _number("kl_p99", ".3f")),
    ("SAME CHOICE", _number("same_choice", ".1%")),
    ("PREFILL", _number("prefill_tok_s", ".0f")),
    ("DECODE", _number("decode_tok_s", ".1f")),
    ("MEMORY", lambda row: size(int(row["peak_rss_bytes"]))),
)
_LINES: Final = {
    "inspect": _inspect, "quantize": _made, "prune": _made, "evaluate": _evaluated,
}  # fmt: skip
