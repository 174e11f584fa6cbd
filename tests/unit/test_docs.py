"""Boards have pages, links lead somewhere, tables and module names are those of the code."""

from __future__ import annotations

import argparse
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench import numbers

from stoker import main
from stoker.cli import arguments
from stoker.models import words
from stoker_ota.cli import arguments as ota_arguments

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PRESETS = sorted((ROOT / "policies/boards").glob("*.toml"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
PARSERS: dict[str, argparse.ArgumentParser] = {
    "stokerctl": arguments.build(),
    "stokerd": main.parser(),
    "stoker-model": words.build(),
    "stoker-ota": ota_arguments.build(),
}
_LINE = re.compile(r"^    (?:sudo )?(?:" + "|".join(PARSERS) + r")\b.*$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
_MESSAGE = re.compile(r"^-- (?P<id>[0-9a-f]{32})\nSubject: (?P<subject>.+)$", re.MULTILINE)
_MODULE = re.compile(r"\b((?:api|core|drivers|runner|services)/[a-z_]+)\b")


@pytest.mark.parametrize("preset", PRESETS, ids=lambda path: path.stem)
def test_every_board_has_a_page_with_what_its_preset_says(preset: Path) -> None:
    text = (DOCS / "boards" / f"{preset.stem}.md").read_text(encoding="utf-8")
    board = tomllib.loads(preset.read_text(encoding="utf-8"))
    assert f"policies/boards/{preset.name}" in text
    assert f"{board['wall_c']:g}" in text
    for name in board.get("power_meters", []):
        assert name in text
    for entry in board["sensors"]:
        for name in entry["names"]:
            assert f"`{name}`" in text
    for heading in ("Traps", "Known and assumed", "Check first"):
        assert f"\n## {heading}\n" in text
    for command in ("stokerctl thermal discover", "stokerctl calibrate"):
        assert command in text
    assert f"boards/{preset.stem}.md" in (DOCS / "README.md").read_text(encoding="utf-8")


def test_no_page_is_about_a_board_that_is_gone() -> None:
    assert {page.stem for page in (DOCS / "boards").glob("*.md")} == {p.stem for p in PRESETS}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    found = _LINK.findall(page.read_text(encoding="utf-8"))
    missing = [link for link in found if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


def test_the_index_names_every_page() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    pages = {path.name for path in DOCS.glob("*.md")} - {"README.md"}
    assert sorted(name for name in pages if f"({name})" not in index) == []


def test_the_numbers_are_those_of_the_results() -> None:
    """If not: python -m bench.numbers > docs/numbers.md"""
    assert (DOCS / "numbers.md").read_text(encoding="utf-8") == numbers.page(numbers.RESULTS)


def test_operations_lists_every_message_of_the_catalog() -> None:
    catalog = (ROOT / "systemd/stoker.catalog").read_text(encoding="utf-8")
    text = (DOCS / "operations.md").read_text(encoding="utf-8")
    table = text.split("<!-- messages:begin -->\n")[1].split("<!-- messages:end -->")[0]
    rows = [f"| {found['subject']} | `{found['id']}` |" for found in _MESSAGE.finditer(catalog)]
    assert table.splitlines() == ["| message | MESSAGE_ID |", "| --- | --- |", *rows]


def test_the_architecture_names_real_modules() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    homes = (ROOT / "daemon/stoker", ROOT / "ota/stoker_ota")
    missing = {
        name
        for name in _MODULE.findall(text)
        if not any((home / f"{name}.py").is_file() for home in homes)
    }
    assert missing == set()


def _commands(page: Path) -> Iterator[list[str]]:
    """Each command of ours in an indented line: its words, without sudo and redirections."""
    text = re.sub(r"\\\n\s+", "", page.read_text(encoding="utf-8"))  # a command over several lines
    for line in _LINE.findall(text):
        for part in line.split("&&"):
            command = shlex.split(part, comments=True)
            command = command[1:] if command[:1] == ["sudo"] else command
            yield command[: command.index(">")] if ">" in command else command


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_documented_commands_are_words_that_the_programs_know(page: Path) -> None:
    for program, *given in _commands(page):
        PARSERS[program].parse_args(given)  # SystemExit, with the reason on standard error


def test_there_are_commands_to_look_at() -> None:
    found = {command[0] for page in PAGES for command in _commands(page)}
    assert found == set(PARSERS)
