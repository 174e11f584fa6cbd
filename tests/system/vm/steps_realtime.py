"""Steps: CPUs of its own that are taken away, what is left then, and threads of real time."""

from __future__ import annotations

import json
from typing import Any

from tests.system.vm import steps_sandbox
from tests.system.vm.field import USER, Field
from tests.system.vm.report import expect
from tests.system.vm.table import Step

_GROUP = "/sys/fs/cgroup"
_PARTITION = f"{_GROUP}/stoker.slice/cpuset.cpus.partition"
_RIVAL = f"{_GROUP}/rival"
_FIFO = 1  # SCHED_FIFO, field 41 of /proc/PID/stat; its priority is field 40
_NOTICED_S = 60.0


def _shown(field: Field) -> dict[str, Any]:
    """As a person without rights reads it."""
    done = field.guest.run(["stokerctl", "--json", "rt", "show"], user=USER).must()
    found: dict[str, Any] = json.loads(done.out)
    return found


def partition_lost(field: Field) -> str:
    """stoker-slice.path sees it: made anew once, the second time shared, and everybody can read
    why. A restart begins anew.
    """
    guest = field.guest
    active = field.unit("stoker-slice.path", "ActiveState")
    expect(active == "active", f"stoker-slice.path is {active}")
    expect(_shown(field)["level"] == "partition", f"before: {_shown(field)}")
    own = str(_shown(field)["cpus"])
    guest.write(_PARTITION, "member\n")

    def anew() -> bool:
        return "made anew" in str(_shown(field)["reason"])

    noticed_s = guest.until("the partition is made anew", anew, timeout_s=_NOTICED_S)
    kernel = guest.text(["cat", _PARTITION])
    expect(kernel == "root", f"made anew, it reads {kernel!r}")
    expect(_shown(field)["level"] == "partition", f"made anew: {_shown(field)}")
    try:
        # Another's group with the same CPUs: now the kernel itself calls ours invalid.
        guest.run(["mkdir", _RIVAL]).must()
        guest.write(f"{_RIVAL}/cpuset.cpus", f"{own}\n")
        guest.until(
            "the CPUs are shared", lambda: _shown(field)["level"] == "cpuset", timeout_s=_NOTICED_S
        )
        why = str(_shown(field)["reason"])
        expect("lost 2 times" in why, f"the reason is {why!r}")
        field.answers()
    finally:
        guest.run(["rmdir", _RIVAL])
        field.restart()
    field.ready()
    expect(_shown(field)["level"] == "partition", f"after a restart: {_shown(field)}")
    return f"made anew after {noticed_s:.0f} s; then: {why}"


def _stats(field: Field, pid: int) -> list[list[str]]:
    """Of each thread the fields of its stat from the third on; the second may hold spaces."""
    rows = field.guest.text(f"sed 's/.*) //' /proc/{pid}/task/*/stat").splitlines()
    return [row.split() for row in rows]


def _policies(field: Field, pid: int) -> list[tuple[int, int]]:
    """(policy, real-time priority) of each thread."""
    return [(int(words[38]), int(words[37])) for words in _stats(field, pid)]


def fifo(field: Field) -> str:
    """Within the unit's sandbox and limits; taken back when an ordinary process starves."""
    guest = field.guest
    with field.setting("80-realtime", '[runner]\nrealtime = "fifo"\n'):
        field.ready()
        field.answers()
        shown = _shown(field)
        expect(shown["scheduling"] == "fifo:5", f"rt show: {shown}")
        pid = field.runner_pid()
        real = [priority for policy, priority in _policies(field, pid) if policy == _FIFO]
        cpus = guest.text(["cat", f"{_GROUP}/stoker.slice/cpuset.cpus.effective"])
        expect(set(real) == {5}, f"threads of the runner: {_policies(field, pid)}")
        # The canary is the ordinary one of the runner's two children.
        children = guest.text(["pgrep", "-P", str(pid)]).split()
        ordinary = [child for child in children if _policies(field, int(child)) == [(0, 0)]]
        expect(len(ordinary) == 1, f"children of the runner: {children}")
        guest.run(["kill", "-STOP", ordinary[0]]).must()

        def taken_back() -> bool:
            return all(policy != _FIFO for policy, _ in _policies(field, pid))

        seconds = guest.until("FIFO is taken back", taken_back, timeout_s=30)
        said = guest.text(["journalctl", "-u", field.runner_unit(), "-o", "cat", "--no-pager"])
        expect("FIFO is taken back" in said, f"the journal says: {said[-300:]}")
        field.answers()
    field.ready()
    back = _shown(field)["scheduling"]
    expect(back != "fifo:5", "the threads are real-time though it is off again")
    return f"{len(real)} threads FIFO 5 on CPUs {cpus}; taken back {seconds:.0f} s after a stop"


def weights(field: Field) -> str:
    """As the unit files say, without a quota; and the probe's pinned arms beside the runner."""
    guest, found = field.guest, []
    for group, weight in (("stoker.slice", "100"), ("system.slice/stoker.service", "200")):
        reads = guest.text(["cat", f"{_GROUP}/{group}/cpu.weight"])
        quota = guest.text(["cat", f"{_GROUP}/{group}/cpu.max"])
        expect(reads == weight, f"cpu.weight of {group} is {reads}, not {weight}")
        expect(quota.startswith("max "), f"cpu.max of {group} is {quota}")
        found.append(f"{group} {reads}")
    command = ["stokerctl", "--json", "rt", "probe", "--seconds", "1", "--tool", "own"]
    probe = json.loads(guest.run(command, timeout_s=180).must().out)
    expect(probe["pinned_in"] == "partition", f"the pinned arms ran elsewhere: {probe['note']}")
    expect("samples" in probe["arms"]["pinned"], f"pinned in the partition: {probe['arms']}")
    outside = json.loads(guest.run(command, user=USER, timeout_s=180).must().out)
    expect("only root" in outside["note"], f"a person's probe says {outside['note']!r}")
    return f"{', '.join(found)}; pinned arms on CPU {probe['cpu']} of the partition"


def masks(field: Field) -> str:
    """The level below the cpusets, in the unit's sandbox: masks, and niceness by LimitNICE=."""
    with steps_sandbox.cpus_chosen(field) as choose:
        choose("none")
        field.ready()
        alike = _shown(field)
        expect(alike["level"] == "none", f"CPUs that are alike: {alike}")
        expect("alike" in str(alike["reason"]), f"the reason is {alike['reason']!r}")
        with field.setting("80-masks", '[runner]\npin = "set"\n'):
            field.ready()
            field.answers()
            shown = _shown(field)
            expect(shown["level"] == "affinity", f"rt show: {shown}")
            expect(shown["nice"] == -10, f"rt show: {shown}")
            nice = sorted(int(words[16]) for words in _stats(field, field.runner_pid()))  # field 19
            expect(nice[0] == -10, f"niceness of the runner's threads: {nice}")
    field.ready()
    expect(_shown(field)["level"] == "partition", f"after a restart: {_shown(field)}")
    return f"alike: nothing; asked for: CPUs {shown['cpus']}, nice {nice}"


STEPS: tuple[Step[Field], ...] = (
    Step("partition-lost", "a lost CPU partition is made anew once, then shared; rt show says so",
         partition_lost, ("small",), "second"),
    Step("fifo", "real-time compute threads where wanted, taken back when others starve", fifo,
         ("small",), "second"),
    Step("weights", "cpu.weight as designed, no quota; the probe enters the partition", weights,
         ("small",), "second"),
    Step("masks", "without a cpuset: affinity masks and niceness, in the sandbox", masks,
         ("small",), "second"),
)  # fmt: skip
