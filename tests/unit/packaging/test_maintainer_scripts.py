"""The packages' maintainer scripts, run in a folder that stands for the system."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

_STUBS = ("systemctl", "deb-systemd-invoke", "userdel", "groupdel", "getent", "busctl",
          "systemd-sysusers")  # fmt: skip
_MASK = "systemctl mask --runtime stoker.service"


class System:
    """What dpkg calls the scripts with: DPKG_ROOT, and programs that only take notes."""

    def __init__(self, scripts: Path, folder: Path) -> None:
        self.root, self._scripts, self._notes = folder / "root", scripts, folder / "notes"
        self._programs = folder / "bin"
        self._programs.mkdir()
        for name in _STUBS:
            self.program(name, f'echo {name} "$@" >>"{self._notes}"')
        self.file("run/systemd/system/.keep")

    def program(self, name: str, does: str) -> None:
        program = self._programs / name
        program.write_text(f"#!/bin/sh\n{does}\n")
        program.chmod(0o755)

    def file(self, name: str, text: str = "") -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def run(self, script: str, *words: str) -> list[str]:
        """What the script had other programs do."""
        self._notes.write_text("")
        subprocess.run(
            ["sh", self._scripts / script, *words],
            check=True,
            env={"PATH": f"{self._programs}:/usr/bin:/bin", "DPKG_ROOT": str(self.root)},
        )
        return self._notes.read_text().splitlines()

    def left(self, folder: str) -> set[str]:
        top = self.root / folder
        return {str(path.relative_to(top)) for path in top.rglob("*")}


@pytest.fixture
def system(root: Path, tmp_path: Path) -> System:
    return System(root / "debian", tmp_path)


def _configured(system: System) -> None:
    for name in (
        "stoker.toml", "stoker.toml.dpkg-old", "stoker.d/50-mine.toml", "trust.json",
        "keys/device.key", "gateway.toml", "gateway-tokens",
    ):  # fmt: skip
        system.file(f"etc/stoker/{name}")


def test_a_purge_of_stoker_leaves_the_configuration_of_the_gateway(system: System) -> None:
    """dpkg would take its conffile for one that somebody deleted, and never bring it back."""
    _configured(system)
    system.file("var/lib/stoker/models/mine.gguf")
    system.run("stoker.postrm", "purge")
    assert system.left("etc/stoker") == {"gateway.toml", "gateway-tokens"}
    assert not (system.root / "var/lib/stoker").exists()
    system.run("stoker-gateway.postrm", "purge")
    assert not (system.root / "etc/stoker").exists()


def test_a_purge_of_the_gateway_leaves_the_configuration_of_stoker(system: System) -> None:
    _configured(system)
    system.run("stoker-gateway.postrm", "purge")
    assert "stoker.toml" in system.left("etc/stoker")
    assert not {name for name in system.left("etc/stoker") if name.startswith("gateway")}
    system.run("stoker.postrm", "purge")
    assert not (system.root / "etc/stoker").exists()


def test_a_purge_leaves_what_nobody_of_ours_made(system: System) -> None:
    system.file("etc/stoker/site-notes")
    system.run("stoker.postrm", "purge")
    assert system.left("etc/stoker") == {"site-notes"}


def test_a_purge_takes_a_link_and_leaves_what_it_leads_to(system: System) -> None:
    """And does not fail of one: dpkg would call the package half installed from then on."""
    for name in ("etc/stoker", "var/lib/stoker/models", "var/cache/stoker-runner"):
        link = system.root / name
        link.parent.mkdir(parents=True, exist_ok=True)
        system.file(f"disk/{name}/.keep").unlink()
        link.symlink_to(system.root / "disk" / name)
    _configured(system)
    system.file("var/lib/stoker/models/shared.gguf")
    system.run("stoker-gateway.postrm", "purge")
    system.run("stoker.postrm", "purge")
    left = [path.name for path in (system.root / "disk").rglob("*") if path.is_file()]
    assert left == ["shared.gguf"]  # what is ours in /etc/stoker went, wherever that lies
    assert not (system.root / "var/lib/stoker").exists()
    assert not (system.root / "var/cache/stoker-runner").is_symlink()


def test_a_purge_empties_a_mount_and_leaves_it(system: System) -> None:
    system.program("mountpoint", 'case "$2" in */stoker-runner) exit 0 ;; *) exit 32 ;; esac')
    system.file("var/cache/stoker-runner/deep/state")
    system.run("stoker.postrm", "purge")
    assert system.left("var/cache") == {"stoker-runner"}


@pytest.mark.parametrize("why", ["upgrade", "failed-upgrade", "deconfigure"])
def test_nothing_can_start_the_service_while_its_files_change(system: System, why: str) -> None:
    said = system.run("stoker.prerm", why, "0.2.0")
    # First by the unit's own rules: a masked unit has no ExecStopPost= that gives caps back.
    assert said[0].startswith("deb-systemd-invoke stop stoker.service ")
    assert "deb-systemd-invoke stop stoker.service" in said[said.index(_MASK) :]
    assert (system.root / "run/stoker-upgrade").exists()


@pytest.mark.parametrize("how", ["configure", "abort-upgrade", "abort-deconfigure"])
def test_after_an_upgrade_and_after_a_failed_one_it_can_start(system: System, how: str) -> None:
    """debhelper's part, below ours, starts it then."""
    system.run("stoker.prerm", "upgrade", "0.2.0")
    said = system.run("stoker.postinst", how, "0.1.0")
    assert said[0] == "systemctl unmask --runtime stoker.service"
    at_once = "deb-systemd-invoke start stoker.service" in said
    assert at_once == how.startswith("abort-")
    assert not (system.root / "run/stoker-upgrade").exists()
    assert not [row for row in system.run("stoker.postinst", how, "0.1.0") if "unmask" in row]


def test_a_removal_leaves_no_failed_unit_behind(system: System) -> None:
    """Of a runner whose start it cut short nobody would ever clear it."""
    cleared = "systemctl reset-failed stoker-runner@* stoker-apply@*"
    said = system.run("stoker.prerm", "remove")
    assert said.index(cleared) > said.index(
        "deb-systemd-invoke stop stoker-slice.service stoker.slice"
    )
    assert cleared not in system.run("stoker.prerm", "upgrade", "0.2.0")


_RESTART = "deb-systemd-invoke restart stoker.service"


def test_another_package_of_a_model_is_served_and_nothing_else_restarts(system: System) -> None:
    assert _RESTART in system.run("stoker.postinst", "triggered", "/usr/share/stoker/models")
    assert _RESTART not in system.run("stoker.postinst", "configure", "0.1.0")
    system.program("systemctl", "exit 3")  # not active: an administrator has stopped it
    assert _RESTART not in system.run("stoker.postinst", "triggered", "/usr/share/stoker/models")


def test_packages_of_models_are_noticed_where_they_put_their_files(root: Path) -> None:
    rows = (root / "debian/stoker.triggers").read_text().splitlines()
    watched = {row.split()[1].removeprefix("/") for row in rows if row.startswith("interest-no")}
    rules = (root / "debian/rules").read_text()
    install = (root / "debian/stoker-model-smollm2.install").read_text()
    assert watched == {"usr/share/stoker/models", "usr/share/stoker/stoker.d"}
    for folder in watched:
        assert folder in rules + install


def test_a_mask_that_an_administrator_made_stays(system: System) -> None:
    mask = system.root / "run/systemd/system/stoker.service"
    mask.symlink_to(os.devnull)
    assert not [row for row in system.run("stoker.prerm", "upgrade", "0.2.0") if "mask" in row]
    said = system.run("stoker.postinst", "configure", "0.1.0")
    assert not [row for row in said if "unmask" in row]


@pytest.mark.parametrize("how", ["remove", "purge"])
def test_removing_half_an_upgrade_leaves_no_mask(system: System, how: str) -> None:
    system.run("stoker.prerm", "upgrade", "0.2.0")
    assert "systemctl unmask --runtime stoker.service" in system.run("stoker.postrm", how)
    assert "stoker-upgrade" not in system.left("run")


def test_a_removal_masks_nothing(system: System) -> None:
    system.file("usr/libexec/stoker/grant").chmod(0o755)
    assert not [row for row in system.run("stoker.prerm", "remove") if "mask" in row]


def test_files_change_under_a_stopped_service_only(root: Path) -> None:
    rules = (root / "debian/rules").read_text()
    for package in ("stoker", "stoker-gateway"):
        assert f"dh_installsystemd -p{package} --no-restart-after-upgrade " in rules


def test_what_is_imported_from_stoker_common_changes_under_a_stopped_service(
    system: System,
) -> None:
    assert system.run("stoker-common.prerm", "upgrade", "0.2.0") == []  # a build host
    system.file("usr/sbin/stokerd")
    said = system.run("stoker-common.prerm", "upgrade", "0.2.0")
    assert "deb-systemd-invoke stop stoker.service" in said[said.index(_MASK) :]


@pytest.mark.parametrize(("stoker", "started"), [("installed", True), ("unpacked", False)])
def test_stoker_common_starts_the_service_unless_stoker_will(
    system: System, stoker: str, started: bool
) -> None:
    system.program("dpkg-query", f"echo {stoker}")
    system.file("usr/sbin/stokerd")
    system.run("stoker-common.prerm", "upgrade", "0.2.0")
    said = system.run("stoker-common.postinst", "abort-upgrade", "0.2.0")
    assert ("deb-systemd-invoke start stoker.service" in said) == started
    assert (system.root / "run/stoker-upgrade").exists() != started
