"""gateway.toml, the command line, tokens' file, sockets from systemd."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.integration.gateway_rig import with_socket

from stoker.gateway import main, sockets
from stoker.gateway.openapi import document
from stoker.gateway.settings import Settings, SettingsError, changed, keys, load
from stoker.gateway.tokens import parse


def test_the_documented_file_holds_every_key_with_its_default(root: Path) -> None:
    text = (root / "policies/gateway.toml").read_text()
    assert tomllib.loads(text) == {}
    shown = tomllib.loads(re.sub(r"^#(?=[a-z_]+ = )", "", text, flags=re.MULTILINE))
    assert set(shown) == set(keys())
    assert changed(Settings(), shown, "file") == Settings()


@pytest.mark.parametrize(
    "line",
    ["listen = ['0.0.0.0:80']", "listen = ['localhost:80']", "listen = ['127.0.0.1']",
     "listen = ['127.0.0.1:70000']", "unix = 'gateway.sock'", "max_connections = 0",
     "max_connections = true", "keepalive_s = 'x'", "origins = ['*']", "origins = ['http://a/b']",
     "hosts = ['*']", "port = 1", "bus = ''"],
)  # fmt: skip
def test_a_wrong_setting_is_refused_with_its_name(tmp_path: Path, line: str) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(line)
    with pytest.raises(SettingsError, match=line.partition(" ")[0]):
        load(file)


def test_a_named_socket_is_the_only_one(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text("keepalive_s = 5\n")

    def of(*words: str) -> Settings:
        return main.settings_of(main.parser().parse_args([f"--config={file}", *words]))

    assert of().listen == Settings().listen
    assert of("--unix", "/tmp/x").listen == ()
    assert of("--listen", "[::1]:1").unix == ""
    assert of("--listen", "127.0.0.1:1", "--unix", "/x").unix == "/x"
    assert of().keepalive_s == 5.0


@pytest.mark.parametrize("text", ["name", "name zz", "a b c", f"name {'0' * 63}"])
def test_a_broken_line_of_the_tokens_file_is_told_by_its_number(text: str) -> None:
    with pytest.raises(ValueError, match=":2:"):
        parse(f"\n{text}\n")


def test_sockets_of_systemd_are_taken_by_the_process_they_are_meant_for(
    child_env: dict[str, str],
) -> None:
    assert sockets.passed({"LISTEN_PID": str(os.getpid() + 1), "LISTEN_FDS": "1"}) == []
    assert sockets.passed({}) == []
    program = (
        "import os; from stoker.gateway import sockets\n"
        "(sock,) = sockets.passed(os.environ); print(sockets.names([sock])[0])\n"
        "assert 'LISTEN_FDS' not in os.environ and not os.get_inheritable(3)\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with with_socket(server, "-c", program, env=child_env) as child:
            assert child.communicate(timeout=10)[0] == f"http://127.0.0.1:{port}\n"
    assert child.returncode == 0


def test_a_dead_owners_socket_is_replaced_and_a_living_ones_is_not(tmp_path: Path) -> None:
    path = tmp_path / "gateway.sock"
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()
    settings = Settings(listen=(), unix=str(path))
    (ours,) = sockets.opened(settings)
    assert path.stat().st_mode & 0o777 == sockets.UNIX_MODE
    with pytest.raises(SettingsError, match="cannot listen"):
        sockets.opened(settings)
    ours.close()


def test_openapi_and_check_config_need_no_bus(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.entry(["--openapi"]) == 0
    assert '"openapi": "3.1.0"' in capsys.readouterr().out
    assert main.entry(["--check-config", "--config", os.devnull]) == 0
    assert main.entry(["--listen", "0.0.0.0:1", "--config", os.devnull]) == 78


def test_every_reference_of_the_document_leads_somewhere() -> None:
    found = document()
    for reference in set(re.findall(r"'\$ref': '#/([^']+)'", str(found))):
        place: object = found
        for step in reference.split("/"):
            assert isinstance(place, dict)
            place = place[step]


def test_help_shows_examples_and_loads_no_server(root: Path) -> None:
    program = (
        "import sys; from stoker.gateway import main; main.parser().format_help()\n"
        "print(sorted({'uvicorn', 'starlette', 'gi', 'msgpack'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          check=True, cwd=root / "daemon")  # fmt: skip
    assert said.stdout.strip() == "[]"
    assert "curl" in main.parser().format_help()
