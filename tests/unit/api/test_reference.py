"""docs/api.md is what the interface files say."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.api import contract, reference


def test_the_page_is_the_generated_one(root: Path) -> None:
    shipped = (root / "docs/api.md").read_text(encoding="utf-8")
    assert shipped == reference.page(), "run: python -m stoker.api.reference > docs/api.md"


@pytest.mark.parametrize("interface", contract.INTERFACES)
def test_every_member_has_words(interface: str) -> None:
    page = reference.page()
    assert f"\n## {interface}\n" in page
    part = page.partition(f"\n## {interface}\n")[2].partition("\n## ")[0]
    info = contract.interface_info(interface)
    for item in (*info.methods, *info.signals, *info.properties):
        assert f"\n### {item.name}(" in part or f"\n### {item.name}:" in part, item.name
    blocks = part.partition("\n### ")[2].split("\n\n### ")
    assert all(len(block.partition("\n\n")[2].split()) >= 2 for block in blocks), part
