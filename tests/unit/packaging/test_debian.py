"""debian/: what it says agrees with the tree it packs."""

from __future__ import annotations

import fnmatch
import json
import re
import shutil
import subprocess
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from bench import settings_page

import stoker
import stoker_ota
from stoker.config.parse import parse

# What is in these folders and is meant to stay out of the packages.
NOT_PACKED = {"policies/models/50-smollm2.toml": "in the model's package"}


@pytest.fixture
def debian(root: Path) -> Path:
    return root / "debian"


def test_the_version_is_the_one_of_the_source(debian: Path) -> None:
    first = (debian / "changelog").read_text().splitlines()[0]
    assert first.startswith(f"stoker ({stoker.__version__}) ")
    assert stoker_ota.__version__ == stoker.__version__


def test_every_unit_and_policy_is_packed(root: Path, debian: Path) -> None:
    lists = [debian / f"{name}.install" for name in ("stoker", "stoker-gateway", "stoker-tools")]
    rules = [row.split()[0] for file in lists for row in file.read_text().splitlines()]
    files = [
        str(path.relative_to(root))
        for folder in ("systemd", "policies")
        for path in (root / folder).rglob("*")
        if path.is_file()
    ]
    left = [
        name
        for name in files
        if name not in NOT_PACKED
        and not any(fnmatch.fnmatch(name, rule) or name.startswith(f"{rule}/") for rule in rules)
    ]
    assert left == []


def test_everything_that_is_installed_exists(root: Path, debian: Path) -> None:
    for file in (*debian.glob("*.install"), *debian.glob("*.manpages"), *debian.glob("*.examples")):
        for row in file.read_text().splitlines():
            assert list(root.glob(row.split()[0])), f"{file.name}: {row}"


def _required(root: Path, lock: str) -> set[str]:
    rows = (root / f".ci/lock/{lock}.in").read_text().splitlines()
    return {re.split(r"[<>=]", row)[0] for row in rows if row and row[0] not in "#-"}


def test_each_python_requirement_is_a_dependency_or_bundled(root: Path, debian: Path) -> None:
    """See docs/adr/0004-package.md."""
    control = (debian / "control").read_text()
    for name in _required(root, "runtime") - _required(root, "bundled"):
        assert f" python3-{name}," in control or f" python3-{name}\n" in control, name


def test_what_is_bundled_is_packed_once_and_its_licence_told(root: Path, debian: Path) -> None:
    rules, licences = (debian / "rules").read_text(), (debian / "copyright").read_text()
    rows = (root / ".ci/lock/bundled.txt").read_text().splitlines()
    locked = {row.split("==")[0] for row in rows if "==" in row}
    assert locked == _required(root, "bundled") | {"cffi"}  # cryptography's
    for name in locked:
        module = {"cffi": "_cffi_backend", "paho-mqtt": "paho"}.get(name, name)
        assert f"Files: usr/lib/stoker/{module}" in licences, name
        pattern = rf"\$\(STOKER_BUNDLED\)/\*?{name.partition('-')[0]}\*"
        assert len(re.findall(pattern, rules)) == 1, name


def test_only_a_python_for_which_something_is_bundled_will_do(root: Path, debian: Path) -> None:
    common = (debian / "control").read_text().partition("Package: stoker-common\n")[2]
    depends = common.partition("Depends:")[2].partition("\nDescription")[0]
    clauses = [clause for clause in depends.split(",") if "python3 (" in clause]

    def allows(version: str) -> bool:
        return all(
            any(
                not subprocess.call(["dpkg", "--compare-versions", version, *bound])
                for bound in re.findall(r"python3 \((>=|<<) ([^)]+)\)", clause)
            )
            for clause in clauses
        )

    listed = re.search(r"bundle_pythons=\(([^)]*)\)", (root / ".ci/steps/bundle.sh").read_text())
    assert listed
    tried = {f"3.{minor}" for minor in range(9, 17)}
    assert {minor for minor in tried if allows(f"{minor}.2-1+b1")} == set(listed[1].split())


@pytest.mark.skipif(shutil.which("readelf") is None, reason="needs readelf")
def test_a_cross_build_stops_where_a_library_needs_more_than_is_declared(
    root: Path, tmp_path: Path
) -> None:
    shutil.copy(import_module("_ctypes").__file__ or "", tmp_path / "some.so")
    program = root / ".ci/steps/shlibs-ceiling.sh"

    def told(*ceilings: str) -> tuple[int, str]:
        command = [str(program), str(tmp_path), *ceilings]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        return done.returncode, done.stderr

    assert told("GLIBC_9.0") == (0, "")
    code, said = told("GLIBC_2.0")
    assert code == 1
    assert "above GLIBC_2.0" in said
    assert told("GOMP_4.5")[0] == 1  # nothing is known of what it needs


def test_every_page_names_the_version(root: Path) -> None:
    for page in (root / "docs/man").iterdir():
        assert f'"stoker {stoker.__version__}"' in page.read_text(), page.name


def test_the_page_of_stokerd_tells_every_option(root: Path) -> None:
    from stoker.main import parser

    page = (root / "docs/man/stokerd.8").read_text().replace("\\-", "-")
    options = {word for action in parser()._actions for word in action.option_strings}
    assert {word for word in options if word not in page} == set()


def test_the_page_of_the_gateway_tells_every_option_and_setting(root: Path) -> None:
    from stoker.gateway.main import parser
    from stoker.gateway.settings import keys

    page = (root / "docs/man/stoker-gateway.8").read_text().replace("\\-", "-")
    options = {word for action in parser()._actions for word in action.option_strings}
    assert {word for word in options | set(keys()) if word not in page} == set()


def test_each_package_has_its_own_part_of_the_program(debian: Path) -> None:
    rules = (debian / "rules").read_text()
    assert "dh_install -pstoker -X/tour/ -X/gateway/" in rules
    assert "daemon/stoker/gateway " in (debian / "stoker-gateway.install").read_text()


def test_the_page_of_the_configuration_tells_every_section(root: Path) -> None:
    page = (root / "docs/man/stoker.toml.5").read_text()
    for section in tomllib.loads((root / "policies/stoker.toml").read_text()):
        assert f".B [{section}]" in page


def test_the_page_of_the_configuration_tells_every_setting(root: Path) -> None:
    """If not: python -m bench.settings_page"""
    page, source = settings_page.PAGE.read_text(), settings_page.SOURCE.read_text()
    assert settings_page.page(page, settings_page.made(source)) == page
    keys = set(re.findall(r"^#([a-z_0-9]+) = ", source, re.MULTILINE))
    assert keys <= set(re.findall(r"^\.BR ([a-z_0-9]+) ", page, re.MULTILINE))
    assert len(keys) > 100


@pytest.mark.skipif(shutil.which("groff") is None, reason="needs groff")
def test_man_can_show_every_page(root: Path) -> None:
    for page in (root / "docs/man").iterdir():
        command = ["groff", "-Kutf8", "-man", "-ww", "-Tutf8", "-z", str(page)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        assert not done.stderr, page.name


def test_what_each_package_weighs_is_told(root: Path, debian: Path) -> None:
    """If not: make deb && make bench NAME=footprint"""
    metrics = json.loads((root / "bench/results/footprint.json").read_text())["metrics"]
    names = re.findall(r"^Package: (\S+)$", (debian / "control").read_text(), re.MULTILINE)
    for name in names:
        assert f"footprint.{name.replace('-', '_')}_installed_mb" in metrics, name


def test_the_models_package_makes_it_the_default(root: Path) -> None:
    text = (root / "policies/models/50-smollm2.toml").read_text()
    config = parse([("vendor", tomllib.loads(text)), ("etc", {})])
    assert config.default_model == "smollm2"
    (model,) = config.models
    assert Path(model.path).parent == Path("/usr/share/stoker/models")
    name = re.search(r"^readonly model_file=(\S+)", (root / ".ci/steps/model.sh").read_text(), re.M)
    assert name
    assert Path(model.path).name == name[1]


@pytest.mark.parametrize(
    "name",
    [
        "stoker.postinst", "stoker.prerm", "stoker.postrm", "stoker-gateway.postrm",
        "stoker-common.prerm", "stoker-common.postinst",
    ],
)  # fmt: skip
def test_maintainer_scripts_are_valid_shell(debian: Path, name: str) -> None:
    subprocess.run(["sh", "-n", debian / name], check=True)
    assert "#DEBHELPER#" in (debian / name).read_text()


@pytest.mark.parametrize(
    "name", ["stokerctl", "stokerd", "stoker-gateway", "stoker-ota", "runner", "apply", "slice"]
)
def test_programs_look_nowhere_but_in_the_package(root: Path, name: str) -> None:
    """Neither the caller's PYTHONPATH nor the current folder nor ~/.local may inject code."""
    text = (root / "systemd/bin" / name).read_text()
    assert text.startswith("#!/usr/bin/python3 -I\n")
    assert 'sys.path.insert(0, "/usr/lib/stoker")' in text
