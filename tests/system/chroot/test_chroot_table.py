"""The table of the chroot test, without a chroot."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.system.chroot.__main__ import BOARDS, _steps
from tests.system.chroot.debian import NATIVE
from tests.system.chroot.steps_variants import PROCESSORS


@pytest.mark.parametrize("architecture", ["amd64", "arm64"])
def test_names_are_unique_and_needs_come_first(architecture: str) -> None:
    seen: set[str] = set()
    for step in _steps(architecture):
        assert step.name not in seen
        assert set(step.needs) <= seen
        seen.add(step.name)
    assert any(name.startswith("answer") for name in seen)
    assert step.name == "purge"


def _packed(root: Path, architecture: str) -> set[str]:
    """The variants that deb.sh puts into the package."""
    text = (root / ".ci/steps/deb.sh").read_text()
    found = re.search(rf"^ +{architecture}\) readonly -a variants=\(([^)]*)\)", text, re.MULTILINE)
    assert found
    return set(found[1].split())


@pytest.mark.parametrize("architecture", sorted({"arm64"} - {NATIVE}))
def test_each_board_has_a_variant_that_the_package_holds(root: Path, architecture: str) -> None:
    assert {variant for _, variant in BOARDS[architecture]} <= _packed(root, architecture)
    names = {step.name for step in _steps(architecture)}
    assert {f"answer-{cpu}" for cpu, _ in BOARDS[architecture]} <= names


def test_each_x86_processor_gets_a_variant_that_the_package_holds(root: Path) -> None:
    assert set(PROCESSORS.values()) <= _packed(root, "amd64")
