"""stoker-ota as the package starts it: isolated, with our code in a private folder alone."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fakes.updates import sha

from stoker_ota.cli import manpage
from stoker_ota.core.manifest import Health, Rollout, Targets, Window
from stoker_ota.core.recipe import PASSED_ON, Wanted


@pytest.fixture
def program(root: Path, tmp_path: Path) -> list[str]:
    """The launcher, with this checkout in the place of /usr/lib/stoker."""
    text = (root / "systemd/bin/stoker-ota").read_text()
    assert text.count('"/usr/lib/stoker"') == 1
    path = tmp_path / "stoker-ota"
    path.write_text(text.replace('"/usr/lib/stoker"', repr(str(root / "ota"))))
    return [sys.executable, "-I", str(path)]


def test_processes_that_make_and_prove_a_delta_find_our_code_and_no_other(
    program: list[str], tmp_path: Path
) -> None:
    """They are Pythons of their own; the current folder must not lend them modules."""
    here = tmp_path / "here"
    (here / "stoker_ota").mkdir(parents=True)
    (here / "stoker_ota/__init__.py").write_text("raise SystemExit('the wrong one')\n")
    old = random.Random(1).randbytes(300_000)
    (here / "old").write_bytes(old)
    (here / "new").write_bytes(old[:200_000] + b"more" + old[200_000:])
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    for words in (
        ["delta", "make", "old", "new", "-o", "delta", "--jobs", "2", "--window", "64K"],
        ["delta", "apply", "delta", "old", "-o", "made"],
    ):
        done = subprocess.run(
            [*program, *words], cwd=here, env=environment, capture_output=True, check=False,
            timeout=100,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()
    assert sha((here / "made").read_bytes()) == sha((here / "new").read_bytes())


def test_the_page_tells_every_key_of_a_recipe() -> None:
    page = manpage.page().replace("\\-", "-")
    section = page[page.index(".SH RECIPE") : page.index(".SH EXIT STATUS")]
    keys = {*PASSED_ON, "allow_metered", "max_rate", "allow_full"}
    for table in (Targets, Rollout, Window, Health, Wanted):
        keys |= set(table.__dataclass_fields__)
    assert {key for key in keys if key not in section} == set()
