"""The README tells the truth: its commands work as printed, its help text is the real one.

Blocks after ``<!-- runnable -->`` run against a stokerd with the echo engine, on a private
bus that plays the system bus.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.cli import arguments
from stoker.tour.private_bus import PrivateBus
from stoker.tour.stage import along
from stoker_client import Stoker, StokerClientError

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"<!-- runnable -->\n```(sh|python)\n(.*?)```", re.DOTALL)


def _commands() -> list[tuple[str, str]]:
    """Each line of a shell block on its own; a Python block as a whole."""
    found = []
    for language, text in _BLOCK.findall(README):
        parts = [text] if language == "python" else text.splitlines()
        found += [(language, part) for part in parts]
    return found


@pytest.fixture(scope="module")
def env(
    tmp_path_factory: pytest.TempPathFactory, child_env: dict[str, str]
) -> Iterator[dict[str, str]]:
    home = tmp_path_factory.mktemp("readme")
    bin_dir = home / "bin"
    bin_dir.mkdir()
    for name, module in (("stokerctl", "stoker.cli.main"), ("stokerd", "stoker.main")):
        script = bin_dir / name
        script.write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n')
        script.chmod(0o755)
    path = f"{bin_dir}{os.pathsep}{os.environ['PATH']}"
    (home / "stoker.toml").touch()
    with PrivateBus() as bus:
        here = {**child_env, "PATH": path, "DBUS_SYSTEM_BUS_ADDRESS": bus.address}
        here.pop("STOKER_BUS_ADDRESS", None)
        words = ["--engine", "echo", "--model", "echo.gguf", "--bus", "system"]
        words += [
            "--config",
            str(home / "stoker.toml"),
            "--state-dir",
            str(home),
            "--runtime-dir",
            str(home),
        ]
        with (home / "log").open("wb") as log:
            daemon = subprocess.Popen(["stokerd", *words], env=here, stderr=log)
        try:
            _wait(bus.address, home / "log")
            yield here
        finally:
            daemon.terminate()
            daemon.wait(30)


def _wait(address: str, log: Path) -> None:
    end = time.monotonic() + 20
    while True:
        try:
            return Stoker(address).wait_ready(20)
        except StokerClientError:
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)


@pytest.mark.bus
@pytest.mark.parametrize(("language", "text"), _commands())
def test_a_command_of_the_readme_works_as_printed(
    env: dict[str, str], language: str, text: str
) -> None:
    command = [sys.executable, "-c", text] if language == "python" else ["bash", "-c", text]
    done = subprocess.run(
        command, env=env, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    if "sky" in text:
        assert "Why is the sky blue?" in done.stdout  # the echo engine says it again


def test_there_is_something_to_run() -> None:
    text = "\n".join(text for _, text in _commands())
    for word in ("busctl", "gdbus", "pydbus", "stoker_client", "stokerctl ask", "stokerd"):
        assert word in text


def test_the_help_text_is_the_real_one() -> None:
    found = re.search(r"<!-- stokerctl --help -->\n```text\n(.*?)```", README, re.DOTALL)
    assert found is not None
    assert found.group(1).rstrip() == arguments.build().format_help().rstrip()


def test_it_quotes_what_the_tour_prints_for_a_second_terminal() -> None:
    found = re.search(r"<!-- a second terminal -->\n```sh\n(.*?)```", README, re.DOTALL)
    assert found is not None
    assert found.group(1).splitlines() == along("unix:path=…", Path(".venv/bin"))
    assert "STOKER_BUS_ADDRESS=" not in README.replace("DBUS_SYSTEM_BUS_ADDRESS", "")


def test_the_two_commands_come_first() -> None:
    head = README.split("\n## ")[0]
    assert "\n    make run\n    make test\n" in head


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)]+)\)", README))
def test_links_lead_somewhere(link: str) -> None:
    assert (ROOT / link).exists()


@pytest.mark.parametrize(
    "path", re.findall(r"`((?:drivers|services|core|api|runner)/\w+)`", README)
)
def test_the_walks_name_real_modules(path: str) -> None:
    assert (ROOT / "daemon/stoker" / f"{path}.py").is_file()


def test_the_manual_of_stokerd_has_every_option() -> None:
    from stoker.main import parser

    page = (ROOT / "docs/man/stokerd.8").read_text(encoding="utf-8").replace("\\-", "-")
    options = {o for a in parser()._actions for o in a.option_strings}
    missing = sorted(option for option in options if option not in page)
    assert missing == []
    documented = set(re.findall(r"--[a-z-]+", page)) - {"--help"}
    assert documented <= options
