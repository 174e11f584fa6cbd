"""The tour of ``make run``: every step, its failure, its interruption, and nothing left behind."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tests.fakes.default_model import default_model
from tests.integration.stokerctl_rig import Typed

pytestmark = pytest.mark.bus
COMMAND = [sys.executable, "-m", "stoker.tour"]
Env = dict[str, str]


@pytest.fixture
def env(child_env: Env, tmp_path: Path) -> Env:
    """Temporary folders of the tour go where we can see that they are gone."""
    folder = tmp_path / "t"
    folder.mkdir()
    return {**child_env, "TMPDIR": str(folder)}


def _run(env: Env, cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "--non-interactive", *words],
        env=env, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=110, check=False,
    )  # fmt: skip


def _nothing_left(env: Env) -> None:
    assert list(Path(env["TMPDIR"]).iterdir()) == []
    ours = [child.cmdline() for child in psutil.process_iter() if _belongs(child, env["TMPDIR"])]
    assert ours == []


def _belongs(process: psutil.Process, folder: str) -> bool:
    try:
        return process.environ().get("TMPDIR") == folder
    except psutil.Error:
        return False


@pytest.mark.real
def test_the_whole_tour_on_the_real_model(env: Env, root: Path) -> None:
    done = _run(
        env, root, "--model", str(default_model()), "--heat-seconds", "4", "--ask", "Hello!"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout
    assert [f"{n}/9" in said for n in range(1, 10)] == [True] * 9
    assert "$ stokerctl ask 'Hello!'" in said
    assert "$ busctl --address=unix:path=" in said
    assert "$ gdbus call --address unix:path=" in said
    assert "engine-failed" in said
    assert "from SIGKILL to the first new word" in said
    assert "smollm2 1 is installed and used." in said
    assert "it served all the time" in said
    assert "cannot accept the signature of CN=release" in said
    assert "unhealthy" in said
    assert re.search(
        r"command config.get .* --broker mqtt://127.0.0.1:\d+\n.*succeeded", said, re.S
    )
    assert "2 documents" in said
    assert "in use      set 2: smollm2 3, over the air" in said
    assert done.stderr == ""
    _nothing_left(env)


@pytest.fixture
def make(tmp_path: Path, root: Path) -> list[str]:
    """The tour as make starts it, which is told of every Ctrl-C of its group."""
    words = ["--engine", "echo", "--heat-seconds", "3", "--ask", "wood and coal"]
    rule = f"SHELL := /bin/bash\nrun:\n\t@cd {root} && {shlex.join([*COMMAND, *words])}\n"
    (tmp_path / "Makefile").write_text(rule)
    return ["make", "-f", str(tmp_path / "Makefile")]


def test_on_a_terminal_it_ends_in_a_chat(env: Env, root: Path, make: list[str]) -> None:
    with Typed(env, *make, cwd=root) as typed:
        typed.see("3/7.*\n\\$ stokerctl ask 'wood and coal'\nwood and coal\n", 60)
        typed.see("s \"wood and coal\"\n.*\n\\('wood and coal',\\)\n", 60)
        typed.see("5/7.*kill -9.*engine-failed.*recovery", 60)
        lines = typed.see("6/7.*hottest.*7/7.*stokerctl chat\n.*> ", 60)
        typed.enter("!slow 100 " + " ".join(f"word{n}" for n in range(1, 60)) + "\n")
        typed.see("\n ?word1 word2")
        typed.enter("\x03")
        typed.see(r"\(stopped\)\n.*> ")
        typed.enter("still here\n")
        typed.see("\nstill here\n.*> ")
        typed.enter("\x03")  # at the prompt
        typed.see("\n.*> ")
        _the_readme_works_in_a_second_terminal(env, root, lines)
        typed.enter("\x04")
        assert typed.end() == 0
        assert "Traceback" not in typed.text()
    _nothing_left(env)


def _the_readme_works_in_a_second_terminal(env: Env, root: Path, seen: str) -> None:
    """After the lines that the tour printed, and nothing else that we know."""
    first = re.findall(r"^ *(source \S+|export \S+=\S+)$", seen, re.MULTILINE)
    blocks = re.findall(
        r"<!-- runnable -->\n```sh\n(.*?)```", (root / "README.md").read_text(), re.S
    )
    bare = {**env, "PATH": "/usr/bin:/bin"}
    for name in ("STOKER_BUS_ADDRESS", "DBUS_SYSTEM_BUS_ADDRESS", "VIRTUAL_ENV"):
        bare.pop(name, None)
    python = "python -c 'from stoker_client import Stoker; print(Stoker().ask(\"sky\"))'\n"
    script = "\n".join(["set -e", *first, *blocks, python])
    done = subprocess.run(
        ["bash", "-c", script], env=bare, cwd=root, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("Why is the sky blue?") >= 4
    assert done.stdout.endswith("sky\n")


def test_ctrl_z_in_the_chat_stops_all_of_it_as_one_job(
    env: Env, root: Path, make: list[str]
) -> None:
    shell = ["bash", "--norc", "--noprofile", "-i"]
    with Typed({**env, "PS1": "shell$ "}, *shell, cwd=root) as typed:
        typed.enter(shlex.join(make) + "\n")
        typed.see("7/7.*stokerctl chat\n.*> ", 60)
        typed.enter("\x1a")
        typed.see("Stopped.*shell\\$ ")
        typed.enter("fg\n")
        typed.see("make.*\n")
        typed.enter("still here\n")
        typed.see("\nstill here\n.*> ")
        typed.enter("\x04")
        typed.see("shell\\$ ")
        typed.enter("exit $?\n")
        assert typed.end() == 0
    _nothing_left(env)


@pytest.mark.parametrize("step", ["2/7", "5/7.*once upon", "6/7.*model time"])
def test_ctrl_c_at_any_moment_leaves_nothing_behind(env: Env, root: Path, step: str) -> None:
    with Typed(env, *COMMAND, "--engine", "echo", cwd=root) as typed:
        typed.see(step, 60)
        typed.enter("\x03")
        assert typed.end() == 130
        assert "Traceback" not in typed.text()
    _nothing_left(env)


def test_a_step_that_fails_is_named_with_the_log(env: Env, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("dbus-daemon", "setpriv"):  # but no busctl
        (tools / name).symlink_to(f"/usr/bin/{name}")
    # Not the checkout as working directory: the kept log goes below it.
    done = _run({**env, "PATH": str(tools)}, tmp_path, "--engine", "echo")
    assert done.returncode == 1
    assert "step 4 (The same over plain D-Bus) failed" in done.stdout
    assert "busctl" in done.stdout
    kept = tmp_path / "build" / "tour-stokerd.log"
    assert kept.is_file()
    assert str(kept) in done.stdout
    _nothing_left(env)


def test_a_missing_model_is_said_before_anything_starts(env: Env, tmp_path: Path) -> None:
    done = _run(env, tmp_path, "--model", "/nonexistent.gguf")
    assert done.returncode == 66
    assert "/nonexistent.gguf" in done.stdout
    _nothing_left(env)
