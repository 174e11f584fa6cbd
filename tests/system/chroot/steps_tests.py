"""Steps: the package's own tests (debian/tests), as scripts and by Debian's autopkgtest.

The scripts run on every architecture, as a person without rights; autopkgtest, which would need
minutes more under qemu-user, only on this machine's own.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.system.chroot.site import Site
from tests.system.vm.report import Miss, expect
from tests.system.vm.table import Step

DEBIAN: Final = Path(__file__).resolve().parents[3] / "debian"
# What "autopkgtest" ends with: all passed; all that ran passed, as some need a whole machine.
_FINE: Final = (0, 2)


def script(name: str) -> Callable[[Site], str]:
    """A step that runs debian/tests/NAME in the room."""

    def run(site: Site) -> str:
        room = site.room
        target = room.root / "tests"
        target.mkdir(exist_ok=True)
        shutil.copy(DEBIAN / "tests" / name, target)
        try:
            done = room.run([f"/tests/{name}"], user="nobody", timeout_s=900).must()
        finally:
            shutil.rmtree(target)
        return f"{done.text.splitlines()[0]}; {done.seconds:.0f} s"

    return run


def autopkgtest(site: Site) -> str:
    """Needs no network: all that the tests depend on is installed."""
    with tempfile.TemporaryDirectory(prefix="stoker-source.") as made:
        source = Path(made) / "stoker"
        # A tree of tests alone: for a whole source autopkgtest would fetch dpkg-dev.
        shutil.copytree(DEBIAN / "tests", source / "debian/tests")
        done = site.room.beside(
            ["autopkgtest", "--no-built-binaries", str(source), "--", "chroot",
             str(site.room.root)],
            timeout_s=600,
        )  # fmt: skip
    verdicts = dict(re.findall(r"^(\w+)\s+(PASS|FAIL|SKIP)\b", done.out, re.MULTILINE))
    if done.code not in _FINE or "PASS" not in verdicts.values():
        raise Miss(f"autopkgtest: exit {done.code}: {(done.out + done.err)[-1200:]}")
    wanted = {"library", "tools"}  # "ask" wants a machine that has booted: the field test runs it
    passed = {name for name, verdict in verdicts.items() if verdict == "PASS"}
    expect(wanted <= passed, f"autopkgtest: {verdicts}")
    return ", ".join(f"{name} {verdict}" for name, verdict in sorted(verdicts.items()))


SCRIPTS: tuple[Step[Site], ...] = (
    Step("library", "bundled Python is what the programs get, and none of it at the start",
         script("library"), ("install",)),
    Step("tools", "stoker-ota makes, signs and judges an update", script("tools"), ("install",)),
)  # fmt: skip
AUTOPKGTEST: Step[Site] = Step(
    "autopkgtest", "autopkgtest passes the tests that need no whole machine", autopkgtest,
    ("install",),
)  # fmt: skip
