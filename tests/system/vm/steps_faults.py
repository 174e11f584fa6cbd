"""Steps: things die, hang, run out of memory, lose power. The service answers again each time."""

from __future__ import annotations

import json
import time

from tests.system.vm.field import ANSWER_S, USER, Field
from tests.system.vm.report import Miss, expect
from tests.system.vm.table import Step

_BACK_S = 120.0
_OUT_OF_MEMORY = "0d5aa9edca044a7b9fd4b472e127ff37"  # see systemd/stoker.catalog
_WATCHDOG_S = 150.0  # WatchdogSec 30, TimeoutAbortSec 10, and a start on an emulated processor

# A long answer as a program would read it: the stream's lines, written to a file as they come.
_LONG = """\
import sys
from stoker_client import Stoker, StokerClientError
try:
    with Stoker().stream("Count from one to three hundred.", max_tokens=400) as stream:
        for record in stream:
            sys.stdout.write(record.kind + "\\n")
            open("/tmp/field-progress", "a").write(record.kind + "\\n")
except StokerClientError as error:
    sys.stdout.write("error " + error.code + "\\n")
"""


def _another_runner(field: Field, before: int) -> bool:
    try:
        return field.runner_pid() not in {0, before}
    except Miss:
        return False


def _recovered(field: Field, before: int) -> float:
    """Seconds until another runner is ready and answers a person without rights."""
    began = time.monotonic()
    field.guest.until("another runner", lambda: _another_runner(field, before), timeout_s=_BACK_S)
    field.ready()
    field.answers()
    return time.monotonic() - began


def _long_answer(field: Field) -> int:
    """Begins a long answer and waits for its first words."""
    field.guest.run("rm -f /tmp/field-progress")
    number = field.guest.start(
        ["/usr/bin/python3", "-c", _LONG], user=USER, timeout_s=ANSWER_S
    )  # fmt: skip
    field.guest.until(
        "the first words",
        lambda: field.guest.run("grep -q text /tmp/field-progress").code == 0,
        timeout_s=90,
    )
    return number


def killed_runner(field: Field) -> str:
    """SIGKILL in the middle of an answer: a typed error or a whole answer, never silence."""
    field.ready()  # the steps of heat do not wait for the model
    daemon, runner = field.daemon_pid(), field.runner_pid()
    answer = _long_answer(field)
    field.guest.run(["kill", "-KILL", str(runner)]).must()
    said = field.guest.wait(answer).must("the client of a killed runner")
    last = said.text.splitlines()[-1]
    expect(last.startswith(("error ", "done")), f"the client's last word was {last!r}")
    seconds = _recovered(field, runner)
    expect(field.daemon_pid() == daemon, "stokerd was restarted too")
    return f"the client heard {last!r}; answers again after {seconds:.0f} s"


def hung_runner(field: Field) -> str:
    """SIGSTOP: the runner is alive and silent."""
    daemon, runner = field.daemon_pid(), field.runner_pid()
    field.guest.run(["kill", "-STOP", str(runner)]).must()
    seconds = _recovered(field, runner)
    expect(field.daemon_pid() == daemon, "stokerd was restarted too")
    gone = field.guest.run(["test", "-e", f"/proc/{runner}"])
    gone.must_fail("the hung runner is gone")
    return f"answers again after {seconds:.0f} s"


def stuck_daemon(field: Field) -> str:
    """SIGSTOP: stokerd keeps its name and does nothing; systemd's watchdog must see it."""
    daemon = field.daemon_pid()
    began = time.monotonic()
    restarts = int(field.unit("stoker.service", "NRestarts"))
    field.guest.run(["kill", "-STOP", str(daemon)]).must()
    field.guest.until(
        "another stokerd", lambda: field.daemon_pid() not in {0, daemon}, timeout_s=_WATCHDOG_S,
        every_s=2,
    )  # fmt: skip
    noticed = time.monotonic() - began
    field.ready()
    field.answers()
    expect(int(field.unit("stoker.service", "NRestarts")) > restarts, "systemd counts no restart")
    told = field.guest.text(
        "journalctl -b -u stoker.service -o cat --no-pager | grep -ci watchdog || true"
    )
    expect(int(told) > 0, "the journal does not speak of the watchdog")
    return f"new stokerd after {noticed:.0f} s, answers after {time.monotonic() - began:.0f} s"


def memory(field: Field) -> str:
    """The runner's MemoryMax is hit: the kernel ends the runner alone, callers hear it."""
    guest, unit, runner = field.guest, field.runner_unit(), field.runner_pid()
    limit = field.unit(unit, "MemoryMax")
    expect(limit.isdigit(), f"{unit} has MemoryMax={limit}")
    daemon = field.daemon_pid()
    answer = _long_answer(field)
    # The first start of the runner's life is enough to be far above this.
    guest.run(["systemctl", "set-property", "--runtime", unit, "MemoryMax=24M"], timeout_s=120)
    said = guest.wait(answer).must("the client of a runner that ran out of memory")
    last = said.text.splitlines()[-1]
    guest.run(["systemctl", "revert", unit], timeout_s=60)
    guest.run(["rm", "-rf", f"/run/systemd/system.control/{unit}.d"])
    guest.run(["systemctl", "daemon-reload"], timeout_s=60).must()
    expect(last == "error insufficient-memory", f"the client's last word was {last!r}")
    seconds = _recovered(field, runner)
    expect(field.daemon_pid() == daemon, "stokerd died with its runner")
    told = guest.text("journalctl -b -k -o cat --no-pager | grep -c 'Memory cgroup out of' || true")
    expect(int(told) > 0, "the kernel killed nothing for want of memory")
    known = guest.text(["journalctl", "-b", "-x", "--no-pager", f"MESSAGE_ID={_OUT_OF_MEMORY}"])
    expect("Take a smaller model" in known, "the journal does not say what to do about it")
    return f"the client heard {last!r}; answers again after {seconds:.0f} s; limit {limit}"


def power_cut(field: Field) -> str:
    """qemu is killed in the middle of an answer; the next boot serves by itself."""
    guest = field.guest
    settings = guest.text("cat /etc/stoker/stoker.toml /etc/stoker/stoker.d/*.toml | sha256sum")
    guest.run(["sync"])
    _long_answer(field)
    field.machine.cut_power()
    boot_s = field.machine.boot()
    guest = field.guest
    ready_s = field.ready()
    field.answers()
    failed = guest.text("systemctl list-units --failed --plain --no-legend 'stoker*'")
    expect(not failed, f"failed units after the power cut: {failed}")
    circles = guest.run("journalctl -b --no-pager -o cat | grep 'ordering cycle'").text
    expect(not circles, f"systemd had to leave units out of the boot: {circles}")
    audit = guest.text(["dpkg", "--audit"])
    expect(not audit, f"dpkg finds: {audit}")
    now = guest.text("cat /etc/stoker/stoker.toml /etc/stoker/stoker.d/*.toml | sha256sum")
    expect(now == settings, "the configuration is not what it was")
    mode = json.loads(guest.run("cat /run/stoker-slice/state.json").out or "{}")
    return f"boot {boot_s:.0f} s, then ready after {ready_s:.0f} s; CPUs: {mode.get('state', mode)}"


STEPS: tuple[Step[Field], ...] = (
    Step("killed-runner", "the runner is killed in the middle of an answer", killed_runner,
         ("configure",)),
    Step("hung-runner", "the runner hangs (SIGSTOP)", hung_runner, ("configure",)),
    Step("memory", "the runner hits its memory limit", memory, ("configure",)),
    Step("stuck-daemon", "stokerd hangs (SIGSTOP); the watchdog restarts it", stuck_daemon,
         ("configure",)),
    Step("power-cut", "the power is cut in the middle of an answer", power_cut, ("configure",)),
)  # fmt: skip
