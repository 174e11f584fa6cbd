"""Compute threads of a real runner: each on its CPU, real-time with guards that work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from bench.runner_client import RunnerClient, default_model, text

from stoker.events.prompt import Sampling
from stoker.events.runner import Answer, Generate, Measure, SetThreads

pytestmark = pytest.mark.real
CPUS = sorted(os.sched_getaffinity(0))[:2]
GREEDY = Sampling(temperature=0.0)


def masks(pid: int) -> dict[int, str]:
    """Cpus_allowed_list of each thread, as the kernel writes it."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        status = (task / "status").read_text().splitlines()
        row = next(row for row in status if row.startswith("Cpus_allowed_list:"))
        found[int(task.name)] = row.partition(":")[2].strip()
    return found


def policies(pid: int) -> set[str]:
    names = {os.SCHED_OTHER: "other", os.SCHED_FIFO: "fifo"}
    tasks = Path(f"/proc/{pid}/task").iterdir()
    found = (os.sched_getscheduler(int(t.name)) & ~os.SCHED_RESET_ON_FORK for t in tasks)
    return {names[policy] for policy in found}


def answer(client: RunnerClient, job: str) -> str:
    prompt = "The capital of France is"
    return text(client.ask(Generate(job, raw=True, prompt=prompt, sampling=GREEDY, max_tokens=6)))


@pytest.fixture
def two_cpus() -> None:
    if len(CPUS) < 2:
        pytest.skip("this machine has one CPU")


@pytest.mark.usefixtures("two_cpus")
def test_each_compute_thread_has_a_cpu_of_its_own_and_keeps_it() -> None:
    with RunnerClient("llama", "--pin", "one-to-one") as client:
        client.hello()
        loaded = client.load(default_model(), threads=2, threads_batch=2, context_tokens=512)
        assert (loaded.pinning, loaded.scheduling) == ("one-to-one", "other")
        pid = client.process.pid
        alone = {mask for mask in masks(pid).values() if mask in map(str, CPUS)}
        assert alone == {str(cpu) for cpu in CPUS}
        assert any(mask not in alone for mask in masks(pid).values()), "the reader is free"
        for number, threads in enumerate((1, 2)):
            assert isinstance(client.answer(SetThreads(f"t{number}", threads, threads)), Answer)
            assert "Paris" in answer(client, f"j{number}")
        alone = {mask for mask in masks(pid).values() if mask in map(str, CPUS)}
        assert alone == {str(cpu) for cpu in CPUS}


def test_without_being_asked_nothing_is_pinned() -> None:
    with RunnerClient("llama") as client:
        client.hello()
        loaded = client.load(default_model(), threads=2, threads_batch=2, context_tokens=512)
        assert loaded.pinning in ("free", "set")
        assert loaded.scheduling == "other"


@pytest.mark.usefixtures("two_cpus")
def test_masks_hold_all_threads_and_those_that_compute_become_nice() -> None:
    """Nicer, which everybody may; the reader, which computes nothing, stays as it was."""
    cpu, before = CPUS[1], os.getpriority(os.PRIO_PROCESS, 0)
    nice = min(before + 5, 19)
    words = ("--pin", "set", "--cpus", str(cpu), f"--nice={nice}")
    with RunnerClient("llama", *words) as client:
        client.hello()
        loaded = client.load(default_model(), threads=1, threads_batch=2, context_tokens=512)
        assert (loaded.placement_cpus, loaded.nice, loaded.placement_note) == (str(cpu), nice, "")
        assert loaded.pinning == "set"
        assert "Paris" in answer(client, "a")
        assert isinstance(client.answer(SetThreads("t", 3, 3)), Answer)
        assert "Paris" in answer(client, "b")
        pid = client.process.pid
        assert set(masks(pid).values()) == {str(cpu)}
        tasks = [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]
        found = sorted(os.getpriority(os.PRIO_PROCESS, task) for task in tasks)
        assert found.count(nice) >= 3, found  # also one that came later
        assert before in found


@pytest.fixture
def may_use_fifo() -> None:
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(6))
    except PermissionError:
        pytest.skip("this user may not use FIFO")
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


@pytest.fixture
def fifo(may_use_fifo: None) -> Iterator[RunnerClient]:
    words = ("--pin", "one-to-one", "--fifo", "5")
    with RunnerClient("llama", *words, environment={"GOMP_SPINCOUNT": "0"}) as client:
        client.hello()
        yield client


@pytest.mark.usefixtures("two_cpus")
def test_fifo_is_taken_back_when_the_canary_starves(fifo: RunnerClient) -> None:
    loaded = fifo.load(default_model(), threads=2, threads_batch=2, context_tokens=512)
    assert (loaded.scheduling, loaded.placement_note) == ("fifo:5", "")
    assert "Paris" in answer(fifo, "a")
    runner = psutil.Process(fifo.process.pid)
    assert "fifo" in policies(runner.pid)
    canary = next(
        child for child in runner.children() if os.sched_getscheduler(child.pid) == os.SCHED_OTHER
    )
    time.sleep(2.5)
    assert "fifo" in policies(runner.pid), "a canary that lives changes nothing"
    canary.send_signal(signal.SIGSTOP)
    until_s = time.monotonic() + 8.0
    while "fifo" in policies(runner.pid) and time.monotonic() < until_s:
        time.sleep(0.05)
    assert policies(runner.pid) == {"other"}
    assert "Paris" in answer(fifo, "b")
    canary.send_signal(signal.SIGCONT)


TAKE_BACK = """\
import sys
from stoker.runner.realtime import take_back
print(take_back((int(sys.argv[1]),)))
"""


@pytest.mark.usefixtures("may_use_fifo")
def test_fifo_is_taken_back_by_a_process_without_privileges(child_env: dict[str, str]) -> None:
    """Only CAP_SYS_NICE may clear "reset on fork": a call that tries is refused whole, and the
    packaged runner has no capability."""
    unprivileged = ["setpriv", "--bounding-set=-sys_nice", "--inh-caps=-sys_nice"]
    before = unprivileged if os.geteuid() == 0 else []
    victim = subprocess.Popen([*before, "sleep", "60"])
    try:
        while psutil.Process(victim.pid).name() != "sleep":  # setpriv has become it
            time.sleep(0.01)
        flag = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(victim.pid, flag, os.sched_param(5))
        done = subprocess.run(
            [*before, sys.executable, "-c", TAKE_BACK, str(victim.pid)],
            env=child_env, capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        assert (done.stdout.strip(), done.stderr) == ("", "")
        left = os.sched_getscheduler(victim.pid) & ~os.SCHED_RESET_ON_FORK
        assert left == os.SCHED_OTHER
    finally:
        victim.kill()
        victim.wait()


def test_more_threads_than_cpus_stay_ordinary_and_say_why(fifo: RunnerClient) -> None:
    count = len(os.sched_getaffinity(0)) + 1
    loaded = fifo.load(default_model(), threads=count, threads_batch=count, context_tokens=512)
    assert loaded.scheduling == "other"
    assert f"{count} threads on {count - 1} CPUs" in loaded.placement_note
    assert policies(fifo.process.pid) == {"other"}


def test_the_guards_end_with_the_runner(fifo: RunnerClient) -> None:
    children = psutil.Process(fifo.process.pid).children()
    assert len(children) == 2
    fifo.process.kill()
    fifo.process.wait(10)
    gone, alive = psutil.wait_procs(children, timeout=5)
    assert len(gone) == 2, alive


@pytest.mark.usefixtures("two_cpus")
def test_a_real_measure_tells_threads_apart_and_answers_go_on() -> None:
    with RunnerClient("llama") as client:
        client.hello()
        client.load(default_model(), threads=2, threads_batch=2, context_tokens=512)
        for phase in ("prefill", "decode"):
            found = client.answer(Measure(f"m{phase}", phase, 1, 300))
            assert isinstance(found, Answer), found
            assert float(str(found.result["wall_s"])) >= 0.3
            assert int(str(found.result["tokens"])) > 0
            assert 0 < float(str(found.result["cpu_s"])) <= 1.2 * float(str(found.result["wall_s"]))
        assert "Paris" in answer(client, "after")
        paced = client.answer(SetThreads("p", 2, 2, 0.25))
        assert isinstance(paced, Answer)
        assert "Paris" in answer(client, "paced")
