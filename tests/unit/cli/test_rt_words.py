"""Latency sums, cyclictest's output, the probe's arms and what people are shown of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.cli import arguments, heat_screens, latency, rt_probe
from stoker.cli.terminal import Terminal
from stoker_client import StokerClientError

PLAIN = Terminal(colour=False)
CYCLICTEST = """\
# /dev/cpu_dma_latency set to 0us
# Histogram
000000 000000
000016 000990
000040 000008
# Total: 000000998
# Min Latencies: 00016
# Avg Latencies: 00016
# Max Latencies: 250123
# Histogram Overflows: 00002
# Histogram Overflow at cycle number:
# Thread 0: 00017 00018
"""


def test_cyclictests_histogram_and_its_overflows_are_read() -> None:
    counts = latency.read_cyclictest(CYCLICTEST)
    assert counts == {16: 990, 40: 8, 250123: 2}
    found = latency.summary(counts)
    assert (found["samples"], found["p50_us"], found["p99_9_us"], found["max_us"]) == (
        1000, 16, 250123, 250123,
    )  # fmt: skip


@given(st.lists(st.integers(-1000, 10**9), min_size=1, max_size=200))
def test_percentiles_are_of_the_samples_and_ordered(late_ns: list[int]) -> None:
    counts = latency.counts_of(late_ns)
    found = [latency.percentile(counts, share) for share in (0.001, 0.5, 0.999, 1.0)]
    assert found == sorted(found)
    assert set(found) <= set(counts)
    assert found[-1] == max(counts)
    within = sum(1 for value in late_ns if value <= found[1] * 1000)
    assert within >= 0.5 * len(late_ns)
    assert sum(bucket["count"] for bucket in latency.histogram(counts)) == len(late_ns)


def test_no_samples_are_no_fault() -> None:
    assert latency.summary({})["max_us"] == 0


def test_the_sleeper_measures_and_locks_nothing_for_good() -> None:
    command = [sys.executable, "-m", "stoker.cli.rt_sleeper", "0.05", "1000", "-1", "0"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)
    found = json.loads(done.stdout)
    assert sum(found["counts"].values()) == 50
    assert all(int(late) >= 0 for late in found["counts"])


def test_a_cpu_that_is_not_ours_refuses_the_arm_and_not_the_probe() -> None:
    command = [sys.executable, "-m", "stoker.cli.rt_sleeper", "0.05", "1000", "8000", "0"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)
    assert "refused" in json.loads(done.stdout)


def options(**given: object) -> Namespace:
    return Namespace(**{"seconds": 0.05, "interval_us": 1000, "cpu": None, "tool": "own"} | given)


def test_a_probe_has_four_arms(capsys: pytest.CaptureFixture[str]) -> None:
    assert rt_probe.run(options(), Terminal(colour=False, as_json=True)) == 0
    facts = json.loads(capsys.readouterr().out)
    assert list(facts["arms"]) == ["plain", "pinned", "fifo", "pinned+fifo"]
    assert facts["arms"]["plain"]["samples"] == 50
    for arm in facts["arms"].values():
        assert ("refused" in arm) != ("histogram" in arm)


def fake_cyclictest(folder: Path, script: str) -> None:
    program = folder / "cyclictest"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_cyclictest_is_used_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").write_text(CYCLICTEST)
    fake_cyclictest(tmp_path, f'echo "$@" >> {tmp_path}/calls; cat {tmp_path}/out')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    rt_probe.run(options(tool="auto"), Terminal(colour=False, as_json=True))
    facts = json.loads(capsys.readouterr().out)
    assert facts["tool"] == "cyclictest"
    assert facts["arms"]["fifo"]["p50_us"] == 16
    calls = (tmp_path / "calls").read_text().splitlines()
    assert ["--policy=other" in call for call in calls] == [True, True, False, False]
    assert [" -a" in call for call in calls] == [False, True, False, True]
    assert all("--default-system" in call for call in calls)


def test_an_arm_that_cyclictest_refuses_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_cyclictest(tmp_path, 'echo "Unable to change scheduling policy!" >&2; exit 1')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert rt_probe.run(options(tool="cyclictest"), Terminal(colour=False)) == 0
    assert "fifo: not measured: Unable to change" in capsys.readouterr().out


def test_what_cannot_be_probed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StokerClientError, match="CPU 8000"):
        rt_probe.run(options(cpu=8000), PLAIN)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(StokerClientError, match="not installed"):
        rt_probe.run(options(tool="cyclictest"), PLAIN)
    for words in (["--interval-us", "5"], ["--seconds", "0"], ["--tool", "perf"]):
        with pytest.raises(SystemExit):
            arguments.parse(["rt", "probe", *words])


def test_a_missing_right_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "RT_GROUP_SCHED" in rt_probe._explain("Operation not permitted", 10)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr("resource.getrlimit", lambda _which: (0, 0))
    assert "RLIMIT_RTPRIO is 0" in rt_probe._explain("Operation not permitted", 10)
    assert rt_probe._explain("Operation not permitted", 0) == "Operation not permitted"


def test_placement_shows_level_reason_and_notes() -> None:
    facts: dict[str, Any] = {
        "level": "cpuset", "reason": "the partition was lost", "cpus": "2-3", "pinning": "set",
        "scheduling": "other", "locked_bytes": 1 << 20, "kernel": "6.1", "preemption": "PREEMPT",
        "notes": ["a note"],
    }  # fmt: skip
    text = "\n".join(heat_screens.placement(facts, PLAIN))
    assert "other, nice" not in text
    text = "\n".join(heat_screens.placement({**facts, "nice": -10}, PLAIN))
    for words in (
        "other, nice -10",
        "cpuset: chosen CPUs",
        "(2-3)",
        "was lost",
        "1 MiB",
        "6.1, PREEMPT",
        "note",
    ):
        assert words in text


def test_findings_are_a_table_and_refusals_stand_below_it() -> None:
    found = [
        {"kind": "zone", "name": "cpu", "path": "/t", "value": "50 °C", "use": "holds policy0"},
        {"kind": "cpufreq", "name": "policy0", "path": "/c", "value": "cap", "use": "watched",
         "fault": "EACCES", "denied": "write", "grant": "the grant does it"},
        {"kind": "zone", "name": "dead", "path": "/d", "use": "not used", "fault": "EIO"},
    ]  # fmt: skip
    lines = heat_screens.found(found, PLAIN)
    assert "cannot write /c: EACCES" in lines
    assert "  the grant does it" in lines
    assert "cannot read /d: EIO" in lines
    assert heat_screens.found([], PLAIN) == [
        "Nothing: this machine shows no sensor, no meter and no clock."
    ]
