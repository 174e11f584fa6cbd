"""The diagram in docs/fleet.md is the table that campaigns follow."""

from __future__ import annotations

from pathlib import Path

from stoker_ota.core import campaign

DOCS = Path(__file__).resolve().parents[3] / "docs/fleet.md"
BEGIN, END = "<!-- campaigns:begin -->\n", "\n<!-- campaigns:end -->"


def diagram() -> str:
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {campaign.RUNNING}"]
    for (phase, event), (after, _) in campaign.TABLE.items():
        if after != phase:
            word = "due (next step)" if event == "due" else event
            lines.append(f"    {phase} --> {after}: {word}")
    lines += [f"    {phase} --> [*]" for phase in campaign.OVER]
    return "\n".join([*lines, "```"])


def test_the_page_shows_the_table() -> None:
    text = DOCS.read_text()
    assert text[text.index(BEGIN) + len(BEGIN) : text.index(END)] == diagram()
