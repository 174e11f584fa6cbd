"""The bash completion of programs that print none of their own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from bench import completions

_ASK = """\
. "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_@FUNCTION@
printf '%s\\n' "${COMPREPLY[@]}"
"""


def _completed(root: Path, *words: str) -> set[str]:
    program = words[0]
    ask = _ASK.replace("@FUNCTION@", program.replace("-", "_"))
    script = root / f"docs/completion/{program}.bash"
    command = ["bash", "-c", ask, "bash", str(script), *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def test_the_scripts_are_those_of_the_parsers() -> None:
    """If not: python -m bench.completions"""
    for name, text in completions.made().items():
        assert (completions.FOLDER / name).read_text() == text, name


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("stokerd", "--che"), {"--check-config"}),
        (("stokerd", "--log-level", "w"), {"warning"}),
        (("stokerd", "--config", ""), set()),
        (("stoker-gateway", "--lis"), {"--listen"}),
        (("stoker-model", "insp"), {"inspect"}),
        (("stoker-model", "inspect", "--js"), {"--json"}),
        (("stoker-model", "--json", "inspect", "--boa"), {"--board"}),  # a verb after an option
    ],
)
def test_words_are_completed(root: Path, words: tuple[str, ...], found: set[str]) -> None:
    assert _completed(root, *words) == found


def test_every_program_for_people_has_one_in_its_package(root: Path) -> None:
    rules = (root / "debian/rules").read_text()
    for program in ("stokerctl", "stoker-ota", *completions.PROGRAMS):
        assert f"docs/completion/{program}.bash" in rules
