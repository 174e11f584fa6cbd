"""Where the probe's pinned arms run: in the partition if there is one and we may; they say so."""

from __future__ import annotations

import json
import os
from argparse import Namespace
from pathlib import Path

import pytest

from stoker.cli import rt_place, rt_probe
from stoker.cli.terminal import Terminal
from stoker_client import StokerClientError

GROUP = "sys/fs/cgroup/stoker.slice"
FAKE_SYSTEMD_RUN = """\
#!/bin/sh
echo "$@" >> {log}
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a partition of CPUs 2-3, whose root we are."""
    (tmp_path / GROUP).mkdir(parents=True)
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    (tmp_path / GROUP / "cpuset.cpus.partition").write_text("root\n")
    (tmp_path / GROUP / "cpuset.cpus.effective").write_text("2-3\n")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1})
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    return tmp_path


def test_root_enters_the_partition_as_a_scope_of_the_slice(root: Path) -> None:
    place = rt_place.find(None, root)
    assert (place.cpu, place.partition, place.note) == (3, "2-3", "")
    assert place.before[0] == "systemd-run"
    assert "--slice=stoker.slice" in place.before
    assert "--scope" in place.before
    assert rt_place.find(2, root).cpu == 2


def test_a_cpu_outside_the_partition_is_measured_there(root: Path) -> None:
    place = rt_place.find(1, root)
    assert (place.cpu, place.before, place.partition) == (1, (), "")
    assert "CPU 1 is not in the partition" in place.note


def test_only_root_may_enter(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    place = rt_place.find(None, root)
    assert (place.cpu, place.before, place.partition) == (1, (), "")
    assert "sudo stokerctl rt probe" in place.note
    with pytest.raises(StokerClientError, match="may use 0, 1") as caught:
        rt_place.find(3, root)
    assert "sudo" in caught.value.hint


@pytest.mark.parametrize("missing", ["systemd", "program"])
def test_without_systemd_it_stays_outside_and_says_so(
    root: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    if missing == "systemd":
        (root / "run/systemd/system").rmdir()
    else:
        monkeypatch.setattr("shutil.which", lambda _name: None)
    place = rt_place.find(None, root)
    assert (place.cpu, place.before) == (1, ())
    assert "systemd-run" in place.note


@pytest.mark.parametrize(
    ("kernel", "note"),
    [
        ("member", "'member'"),
        ("root invalid (Cpu list in cpuset.cpus not exclusive)", "not exclusive"),
        (None, "is not there"),
    ],
)
def test_what_the_kernel_does_not_call_a_partition_is_none(
    root: Path, kernel: str | None, note: str
) -> None:
    file = root / GROUP / "cpuset.cpus.partition"
    file.unlink() if kernel is None else file.write_text(kernel + "\n")
    place = rt_place.find(None, root)
    assert (place.cpu, place.before, place.partition) == (1, (), "")
    assert place.note.startswith("there is no partition")
    assert note in place.note


@pytest.mark.parametrize("text", ["", "many", "1-", "-3"])
def test_a_list_that_makes_no_sense_is_no_partition(root: Path, text: str) -> None:
    (root / GROUP / "cpuset.cpus.effective").write_text(text)
    assert rt_place.find(None, root).partition == ""


def test_lists_are_the_kernels() -> None:
    assert rt_place._numbers("2-3,5,8-9") == (2, 3, 5, 8, 9)


def test_a_cpu_that_nobody_has_is_refused_with_what_there_is(root: Path) -> None:
    with pytest.raises(StokerClientError, match="may use 0, 1, 2, 3"):
        rt_place.find(7, root)


def test_the_pinned_arms_run_there_and_the_output_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "systemd-run"
    program.write_text(FAKE_SYSTEMD_RUN.format(log=tmp_path / "calls"))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    cpu = min(os.sched_getaffinity(0))
    inside = rt_place.Place(cpu, ("systemd-run", "--slice=stoker.slice", "--"), str(cpu))
    monkeypatch.setattr(rt_place, "find", lambda _wanted: inside)
    options = Namespace(seconds=0.02, interval_us=1000, cpu=None, tool="own")
    assert rt_probe.run(options, Terminal(colour=False, as_json=True)) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["pinned_in"], facts["partition"], facts["cpu"]) == ("partition", str(cpu), cpu)
    assert "samples" in facts["arms"]["pinned"]
    assert len((tmp_path / "calls").read_text().splitlines()) == 2
    shown = "\n".join(rt_probe.lines(facts))
    assert f"in the partition of stoker.slice (CPUs {cpu})" in shown


def test_without_a_partition_the_output_says_that_others_use_the_cpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cpu = min(os.sched_getaffinity(0))
    shared = rt_place.Place(cpu, note="there is no partition")
    monkeypatch.setattr(rt_place, "find", lambda _wanted: shared)
    options = Namespace(seconds=0.02, interval_us=1000, cpu=None, tool="own")
    assert rt_probe.run(options, Terminal(colour=False)) == 0
    assert "on a CPU that others use too: there is no partition" in capsys.readouterr().out
