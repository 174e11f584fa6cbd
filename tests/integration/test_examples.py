"""Every file in docs/examples does what it says, on a private bus."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.gateway_rig import gateway

from stoker.tour.private_bus import PrivateBus

pytestmark = pytest.mark.bus

QUESTION = "why is the sky blue"


@pytest.fixture
def examples(root: Path) -> Path:
    return root / "docs/examples"


@pytest.fixture
def bus(session_bus: PrivateBus, fake_server: object) -> PrivateBus:
    return session_bus


def run(bus: PrivateBus, *command: str | Path, ok: bool = True) -> str:
    done = subprocess.run(
        command, env=os.environ | {"STOKER_BUS_ADDRESS": bus.address}, capture_output=True,
        text=True, timeout=30, check=False,
    )  # fmt: skip
    assert (done.returncode == 0) == ok, done.stderr
    return done.stdout if ok else done.stderr


def need(program: str, package: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed (package {package})")


def test_no_example_is_longer_than_forty_lines_or_untested(examples: Path) -> None:
    tests = Path(__file__).read_text()
    for example in examples.iterdir():
        if example.name != "README.md":
            assert len(example.read_text().splitlines()) <= 40, example
            assert f'"{example.name}"' in tests, f"no test runs {example.name}"


def test_busctl(bus: PrivateBus, examples: Path) -> None:
    need("busctl", "systemd")
    said = run(bus, examples / "busctl.sh", QUESTION)
    assert f's "{QUESTION} "' in said
    assert 's "ready"' in said
    assert "d 0.8" in said
    assert '"set-aside"' in said


def test_gdbus(bus: PrivateBus, examples: Path) -> None:
    need("gdbus", "libglib2.0-bin")
    said = run(bus, examples / "gdbus.sh", QUESTION)
    assert f"('{QUESTION} ',)" in said
    assert f"(uint32 {len(QUESTION)},)" in said
    assert "'temperature_c': <51.5>" in said


def test_pydbus_ask(bus: PrivateBus, examples: Path) -> None:
    said = run(bus, sys.executable, examples / "ask_pydbus.py", QUESTION)
    assert said == f"{QUESTION} \n51.5 °C, headroom 0.8\n"


def test_pydbus_stream(bus: PrivateBus, examples: Path) -> None:
    script = examples / "stream_pydbus.py"
    assert run(bus, sys.executable, script, QUESTION) == f"{QUESTION} \n"
    said = run(bus, sys.executable, script, "break engine-failed", ok=False)
    assert said == "no answer: cannot finish job: engine-failed\n"


def test_dbus_fast_stream(bus: PrivateBus, examples: Path) -> None:
    pytest.importorskip("dbus_fast")
    script = examples / "stream_dbus_fast.py"
    assert run(bus, sys.executable, script, QUESTION) == f"{QUESTION} "
    assert "cannot take job" in run(bus, sys.executable, script, "refuse busy", ok=False)


def test_sdbus_stream_in_c(bus: PrivateBus, examples: Path, tmp_path: Path) -> None:
    need("cc", "gcc")
    need("pkg-config", "pkgconf")
    found = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "libsystemd"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if found.returncode:
        pytest.skip("sd-bus headers are not installed (package libsystemd-dev)")
    program, source = tmp_path / "stream_sdbus", examples / "stream_sdbus.c"
    build = ["cc", "-Wall", "-Wextra", "-Werror", "-o", str(program), str(source)]
    subprocess.run([*build, *found.stdout.split()], check=True)
    assert run(bus, program, QUESTION) == f"{QUESTION} "
    assert "cannot take job" in run(bus, program, "refuse busy", ok=False)


def test_large_pydbus(bus: PrivateBus, examples: Path, tmp_path: Path) -> None:
    (tmp_path / "report").write_text("word " * 100_000)
    said = run(bus, sys.executable, examples / "large_pydbus.py", QUESTION, tmp_path / "report")
    assert said.split() == [*QUESTION.split(), *["word"] * 100_000]


def test_curl_over_the_rest_door(
    bus: PrivateBus, examples: Path, tmp_path: Path, child_env: dict[str, str]
) -> None:
    need("curl", "curl")
    script = examples / "curl.sh"
    with gateway(bus.address, tmp_path, child_env) as door:
        for where in (f"STOKER_URL={door.url}", f"STOKER_SOCKET={door.socket_path}"):
            said = run(bus, "env", where, script, 'why "so"')
            assert '"id":"fake"' in said
            assert '"content":"why \\"so\\" "' in said
            assert said.endswith("data: [DONE]\n\n")
