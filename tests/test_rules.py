"""The rules of CONTRIBUTING.md as tests: sizes, names, floors, one version, no registry hosts.

What ruff, mypy and import-linter judge is run by "make check", not here.
"""

from __future__ import annotations

import ast
import configparser
import re
import subprocess
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

import stoker
from stoker import errors
from stoker.api import errormap
from stoker.config.changes import flatten
from stoker.config.limits import MODEL, SECTIONS
from stoker.config.parse import parse
from stoker.config.schema import Config, ModelConfig

ROOT = Path(__file__).resolve().parent.parent
MAX_FILE_LINES = 350
MAX_FUNCTION_LINES = 50
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc"}
NOT_OURS = {".git", ".venv", ".cache", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"}
# In two halves, so that this file does not name them.
REGISTRY_HOSTS = [
    "pypi" + ".org",
    "python" + "hosted",
    "deb.debian" + ".org",
    "registry.npm" + "js",
    "crates" + ".io",
    "proxy.golang" + ".org",
]
RUNNER_MAY_IMPORT = (
    "stoker.core.frames",
    "stoker.events.model_facts",
    "stoker.events.prompt",
    "stoker.events.runner",
    "stoker.events.runner_questions",
    "stoker.errors",
    "stoker.getters",
    "stoker.runner",
    "stoker.units",
)


def _tracked() -> list[Path]:
    """Files of the repository; also those not yet added, but nothing ignored."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):  # a source package has no git
        own = [path for path in ROOT.rglob("*") if path.is_file()]
        return sorted(path for path in own if not NOT_OURS & set(path.parts))
    paths = (ROOT / name for name in listing.stdout.split("\0") if name)
    return sorted(path for path in paths if path.is_file())


TRACKED = _tracked()
PYTHON = [path for path in TRACKED if path.suffix == ".py"]
SOURCE = [path for path in PYTHON if path.parts[len(ROOT.parts)] in ("daemon", "ota")]
BASH = [path for path in TRACKED if ".ci" in path.parts and path.suffix in ("", ".sh")]


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_there_is_something_to_judge() -> None:
    assert len(SOURCE) > 30
    assert len(BASH) > 3


def test_no_file_is_too_long() -> None:
    long = {_name(p): len(p.read_text().splitlines()) for p in [*PYTHON, *BASH]}
    assert {name: n for name, n in long.items() if n > MAX_FILE_LINES} == {}


def test_no_function_is_too_long() -> None:
    long = [
        f"{_name(path)}:{function.lineno} {function.name}"
        for path in PYTHON
        for function in _functions(ast.parse(path.read_text()))
        if (function.end_lineno or 0) - function.lineno + 1 > MAX_FUNCTION_LINES
    ]
    assert long == []


def test_modules_are_named_for_what_they_are() -> None:
    named = [_name(p) for p in PYTHON if FORBIDDEN_NAMES & {p.stem, p.parent.name}]
    assert named == []


def test_every_module_says_what_it_is_for() -> None:
    silent = [_name(p) for p in PYTHON if not ast.get_docstring(ast.parse(p.read_text()))]
    assert silent == []


def test_source_roots_are_not_packages() -> None:
    assert not (ROOT / "daemon" / "__init__.py").exists()
    assert not (ROOT / "ota" / "__init__.py").exists()


def test_every_module_stands_on_a_floor() -> None:
    linter = configparser.ConfigParser()
    linter.read(ROOT / ".importlinter")
    floors = linter["importlinter:contract:floors"]
    known = set(re.findall(r"[a-z_]+", floors["layers"] + floors["exhaustive_ignores"]))
    there = {path.stem for path in (ROOT / "daemon/stoker").glob("*.py")} - {"__init__"}
    there |= {path.parent.name for path in (ROOT / "daemon/stoker").glob("*/__init__.py")}
    assert there - known == set()
    assert floors.getboolean("exhaustive")


def test_the_import_rules_cover_every_package() -> None:
    linter = configparser.ConfigParser()
    linter.read(ROOT / ".importlinter")
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
        "targets"
    ]["wheel"]["packages"]
    assert linter["importlinter"]["root_packages"].split() == [Path(p).name for p in packages]


def test_the_runner_imports_only_what_its_process_may_know() -> None:
    strange = [
        f"{_name(path)}: {name}"
        for path in SOURCE
        if path.is_relative_to(ROOT / "daemon/stoker/runner")
        for name in _imports(ast.parse(path.read_text()))
        if name.split(".")[0] in ("stoker", "stoker_ota", "stoker_client")
        and not name.startswith(RUNNER_MAY_IMPORT)
    ]
    assert strange == []


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_every_error_has_a_row_of_its_own() -> None:
    assert [row.code for row in errormap.ROWS] == [cls.code for cls in errors.all_errors()]
    names = [row.dbus_name for row in errormap.ROWS]
    assert len(names) == len(set(names))


def test_no_tracked_file_names_a_package_registry() -> None:
    naming = [
        f"{_name(path)}: {host}"
        for path in TRACKED
        for host in REGISTRY_HOSTS
        if host.encode() in path.read_bytes()
    ]
    assert naming == []


@pytest.mark.parametrize("lock", sorted((ROOT / ".ci/lock").glob("*.txt")), ids=lambda p: p.name)
def test_locks_pin_every_package_by_hash(lock: Path) -> None:
    entries = re.split(r"\n(?=\S)", lock.read_text().strip())
    for entry in entries:
        assert re.match(r"[A-Za-z0-9._-]+==[^\s;]+", entry), entry
        assert "--hash=sha256:" in entry, entry


def test_there_is_one_version() -> None:
    top = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert top
    assert top[1] == stoker.__version__
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" in project["dynamic"]


def test_the_llama_pin_is_the_same_in_lock_and_project() -> None:
    pin = (ROOT / ".ci/lock/llama.txt").read_text().split()[0]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert pin in project["dependencies"]


def test_the_documented_configuration_holds_every_key_with_its_default() -> None:
    text = (ROOT / "policies/stoker.toml").read_text()
    assert tomllib.loads(text) == {name: {} for name in [*SECTIONS, "models"]}
    shown = tomllib.loads(re.sub(r"^#(?=[a-z_]+ = )", "", text, flags=re.MULTILINE))
    assert parse([("policies/stoker.toml", shown)]) == Config()
    flat = {f"{name}.{key}": v for name, table in shown.items() for key, v in table.items()}
    listed = {key: list(v) if isinstance(v, tuple) else v for key, v in flatten(Config()).items()}
    assert flat == listed


def test_the_documented_model_table_holds_every_key_with_its_default() -> None:
    text = (ROOT / "policies/stoker.toml").read_text()
    found = {
        key: tomllib.loads(f"value = {value}")["value"]
        for key, value in re.findall(r'^#   ([a-z_]+) = ("[^"]*"|\S+)', text, re.MULTILINE)
    }
    path = found.pop("path")
    assert set(found) | {"path"} == set(MODEL)
    table = {"models": {"m": {"path": path, **found}}}
    assert parse([("x", table)]).models == (ModelConfig("m", path),)


XML = [
    path
    for path in TRACKED
    if path.suffix in (".xml", ".policy") or path.match("policies/dbus/*.conf")
]


@pytest.mark.parametrize("path", XML, ids=_name)
def test_xml_files_parse(path: Path) -> None:
    ET.parse(path)


def test_the_linters_are_configured_strictly() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    assert tool["mypy"]["strict"] is True
    check = (ROOT / ".ci/check").read_text()
    for part in ("ruff check", "ruff format --check", "mypy", "lint-imports"):
        assert part in check


def test_ci_runs_the_checks_and_the_command_that_the_readme_gives() -> None:
    run = (ROOT / ".ci/run").read_text()
    assert re.search(r"make .*\bcheck$", run, re.MULTILINE)
    assert re.search(r"make .*\btest$", run, re.MULTILINE)
    assert re.search(r"^\s*make test\b", (ROOT / "README.md").read_text(), re.MULTILINE)
