"""docs/numbers.md: the results in bench/results as tables, with the command that makes each anew.

    python -m bench.numbers > docs/numbers.md

It prints what the files say and decides nothing; a test holds the page to the files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

RESULTS: Final = Path(__file__).resolve().parent / "results"
HEAD: Final = """\
# Numbers

Made by `python -m bench.numbers > docs/numbers.md` of the files in `bench/results`; a test
compares. Times and rates are those of one x86-64 machine with two cores that others used too:
compare them with each other, not with your board's (there, `stokerctl bench` measures). Heat is
simulated ([thermal.md](thermal.md) has the plants). **no** = a goal that was not met. An empty
verdict = no goal, or too much noise for one.
"""
SOAK_WORDS: Final = (
    "Apps of six users cancel, hang up, vanish and are killed, and so are runners, meanwhile "
    "([inference.md](inference.md)). `echo` says what each word must be; `llama` is the real "
    "model. `wrong` counts everything that must not be: words, leaks, rows, log lines. Whole and "
    "cut answers are those of the time that stands beside them."
)
# file → title, what is said of it, command
PAGES: Final = {
    "inference": (
        "Against llama-server",
        "Same model, threads and llama.cpp, in pairs one after the other ([inference.md]"
        "(inference.md)). In brackets the 95 % interval.",
        "make bench NAME=inference",
    ),
    "footprint": ("What it weighs", "", "make bench NAME=footprint"),
    "delta": (
        "Deltas",
        "Ratios are delta ÷ new file ([ota.md](ota.md)).",
        "make bench NAME=delta",
    ),
    "thermal": (
        "Heat",
        "Work is compared at equal time above the wall: each law at the offset from it that "
        "serves it best. `ipa-tuned` is the kernel's power allocator with the parameters that "
        "`python -m bench.thermal_tune` found for that plant and load; `fit` holds plants to "
        "published traces, `left_out` chooses our law's numbers without the plant it is tried on.",
        "make bench NAME=thermal",
    ),
    "thermal_lateness": (
        "How late the heat loop looks",
        "In a stokerd that streams to 24 clients and installs updates meanwhile.",
        "make bench NAME=thermal_lateness",
    ),
    "soak": ("Shaken", SOAK_WORDS, 'make bench NAME=soak ARGS="--seconds 600"'),
    "fleet": (
        "Fleet",
        "Pulling an update from Mosquitto, 8 chunks at a time: `raw` is what the broker gives a "
        "client that only listens, the line is W·C/RTT. A campaign of simulated devices with one "
        "fault in ten ([fleet.md](fleet.md)).",
        "make bench NAME=fleet",
    ),
}
LOADS: Final = ("constant", "burst", "chat")
MANY: Final = 24  # metrics, of which a table shows only those with a goal

Metrics = Mapping[str, Mapping[str, Any]]


def main() -> None:
    print(page(RESULTS), end="")


def page(folder: Path) -> str:
    """The whole page; a file of results that is not there has no section."""
    parts = [HEAD]
    for name, (title, words, command) in PAGES.items():
        path = folder / f"{name}.json"
        if path.exists():
            metrics = json.loads(path.read_text(encoding="utf-8"))["metrics"]
            parts += [f"\n## {title}\n", *_said(words), f"\n    {command}\n\n"]
            parts += _table(_rows(name, metrics))
            parts += _plants(metrics) if name == "thermal" else []
    return "".join(parts)


def _said(words: str) -> list[str]:
    return [f"\n{words}\n"] if words else []


def _rows(name: str, metrics: Metrics) -> Iterator[list[str]]:
    """Of many metrics only those with a goal; plants under load have a table of their own."""
    prefix = name.replace("_", ".") + "."
    yield ["what", "value", "peer or setting", "against it", "goal", "met"]
    for key, entry in metrics.items():
        wanted = len(metrics) <= MANY or entry.get("target")
        if wanted and "value" in entry and not _is_of_a_load(key):
            yield [
                f"`{key.removeprefix(prefix)}`",
                _number(entry["value"], entry.get("unit", "")),
                _number(entry.get("peer", "")),
                _against(entry),
                _number(entry.get("target") or ""),
                _verdict(entry),
            ]


def _is_of_a_load(key: str) -> bool:
    return any(f".{load}." in key for load in LOADS)


def _verdict(entry: Mapping[str, Any]) -> str:
    return {True: "yes", False: "**no**"}.get(entry.get("met", None), "")


def _against(entry: Mapping[str, Any]) -> str:
    number, sign = entry.get("difference"), "+"
    if number is None:
        number, sign = entry.get("ratio"), "× "
    if number is None:
        return ""
    ends = entry.get("interval")
    return f"{sign}{number:.3g}" + (f" ({ends[0]:.3g} to {ends[1]:.3g})" if ends else "")


def _number(value: Any, unit: str = "") -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return f"{text} {unit}".strip()


def _plants(metrics: Metrics) -> list[str]:
    """Each plant and load on one line."""
    rows = [["plant", "load", "above the wall", "clock changes", "ours", "tuned IPA", "met",
             "with operating points", "met"]]  # fmt: skip
    for stem in dict.fromkeys(key.split(".shipped.")[0] for key in metrics if ".shipped." in key):
        found = {
            key.removeprefix(f"{stem}."): entry
            for key, entry in metrics.items()
            if key.startswith(f"{stem}.")
        }
        ours = found.get("fair_tokens_per_s") or found.get("fair_work_pct") or {}
        points = found.get("fair_tokens_per_s_with_points") or {}
        above, changes = (found[f"shipped.{name}"] for name in ("above_wall_s", "changes_per_min"))
        plant, load = stem.removeprefix("thermal.").rsplit(".", 1)
        rows.append([
            plant, load, _number(above["value"], "s"), f"{changes['value']:.3g} a minute",
            _number(ours.get("value", ""), ours.get("unit", "").split(" of ")[0]),
            _against(ours), _verdict(ours), _against(points), _verdict(points),
        ])  # fmt: skip
    fair = [entry["target"] for key, entry in metrics.items() if ".fair_" in key]
    goals = " and ".join(dict.fromkeys(goal for goal in fair if goal))
    return [f"\nOurs against tuned IPA, plant by plant (goals: {goals}):\n\n", *_table(rows)]


def _table(rows: Iterable[list[str]]) -> list[str]:
    """Columns that are empty in every row are left out."""
    head, *body = rows
    used = [at for at in range(len(head)) if any(row[at] for row in body)]
    lines = ["| " + " | ".join(row[at] for at in used) + " |\n" for row in (head, *body)]
    return [lines[0], "| " + " | ".join("---" for _ in used) + " |\n", *lines[1:]]


if __name__ == "__main__":
    main()
