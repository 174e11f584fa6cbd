"""Steps: what the units keep apart. Partition, sandbox scores, a compromised runner."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from tests.system.vm.field import USER, Field
from tests.system.vm.report import Miss, expect
from tests.system.vm.table import Step

WORST = {"stoker.service": 1.8, "runner": 1.0, "apply": 1.0, "stoker-slice.service": 4.0}
_SLICE = "/sys/fs/cgroup/stoker.slice"
_DEFAULTS = "/etc/default/stoker"
_DROP_IN = "/run/systemd/system/{unit}.d/intruder.conf"
_PROGRAM = "/media/stoker/intruder.py"

# The unit as it is, with our code in its program's place; systemd opens that for it.
_INTRUDER = """\
[Unit]
PartOf=
[Service]
Type=oneshot
WatchdogSec=0
EnvironmentFile=
TimeoutStartSec=120
ExecStart=
ExecStart=/usr/bin/python3 -I - {daemon} {words}
StandardInput=file:{program}
"""

# Things that would be worth stealing, and doors that would be open without the sandbox.
_BAIT = """\
mkdir -p /etc/stoker/keys
echo secret | tee /etc/stoker/keys/device.key >/var/lib/stoker/secret
echo secret >/run/stoker/secret
chown stoker: /etc/stoker/keys/device.key /var/lib/stoker/secret /run/stoker/secret
chmod 600 /etc/stoker/keys/device.key
# State of the daemon under its real names, with its real modes.
for file in sessions.db ota/state.json; do
    file=/var/lib/stoker/$file
    [ -e "$file" ] && continue
    [ -d "${{file%/*}}" ] || install -d -o stoker -g stoker -m 755 "${{file%/*}}"
    install -o stoker -g stoker -m 600 /dev/stdin "$file" </etc/stoker/keys/device.key
    echo "$file" >>/tmp/bait-made
done
chmod 644 /var/lib/stoker/secret /run/stoker/secret
echo dear >/home/tester/letter; chmod 644 /home/tester/letter; chmod 755 /home/tester
touch {socket}
systemd-run --quiet --unit=field-doors /usr/bin/python3 -c '
import socket, time
inet = socket.create_server(("127.0.0.1", 7007))
unix = socket.socket(socket.AF_UNIX); unix.bind(chr(0) + "stoker-field-test"); unix.listen()
time.sleep(600)' || true
"""
_CLEAN = """\
systemctl stop field-doors.service
if [ -e /tmp/bait-made ]; then xargs rm -f </tmp/bait-made; rm /tmp/bait-made; fi
rm -rf /run/systemd/system/{unit}.d /etc/stoker/keys \
    /var/lib/stoker/secret /run/stoker/secret {socket}
systemctl daemon-reload
systemctl reset-failed '{unit}' || true
"""


_STATE = ("/var/lib/stoker/sessions.db", "/var/lib/stoker/ota/state.json")
_OPEN = (
    "loopback of the machine", "abstract socket of the machine", "system bus",
    "a socket of AF_INET", "a socket of AF_NETLINK", "memory to write and execute",
    "read /run/stoker/secret", "read /home/tester/letter", "read /media/stoker/agent.py",
)  # fmt: skip


def _report(said: str) -> dict[str, Any]:
    return next(json.loads(row) for row in said.splitlines() if row.startswith("{"))


def _cpus(text: str) -> set[int]:
    """A kernel list such as 0,2-3."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def partition(field: Field) -> str:
    """Read back, not believed: a write to cpuset.cpus.partition succeeds even when invalid."""
    guest = field.guest
    kind = guest.text(["cat", f"{_SLICE}/cpuset.cpus.partition"])
    expect(kind in {"root", "isolated"}, f"the partition is {kind!r}")
    own = _cpus(guest.text(["cat", f"{_SLICE}/cpuset.cpus.effective"]))
    rest = _cpus(guest.text(["cat", "/sys/fs/cgroup/cpuset.cpus.effective"]))
    expect(bool(own) and 0 not in own, f"CPU 0 must stay with the system; the slice has {own}")
    expect(not own & rest, f"CPUs of both: {own & rest}")
    pid = field.runner_pid()
    lists = guest.text(f"sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/{pid}/task/*/status")
    for allowed in lists.splitlines():
        expect(_cpus(allowed) <= own, f"a thread of the runner may run on {allowed}")
    daemon = _cpus(field.process(field.daemon_pid(), "Cpus_allowed_list"))
    expect(not daemon & own, f"stokerd may run on the runner's CPUs: {daemon & own}")
    return f"{kind} on CPUs {sorted(own)}, {len(lists.splitlines())} threads of the runner inside"


@contextlib.contextmanager
def cpus_chosen(field: Field) -> Iterator[Callable[[str], None]]:
    """A line more in the administrator's file; the service starts with it, in the end without."""
    guest = field.guest

    def choose(wanted: str) -> None:
        guest.run(f"echo STOKER_CPUS={wanted} >>{_DEFAULTS}").must()
        field.restart()

    guest.run(["cp", "-p", _DEFAULTS, "/tmp/defaults"]).must()
    try:
        yield choose
    finally:
        guest.run(["mv", "/tmp/defaults", _DEFAULTS]).must()
        field.restart()


def cpus(field: Field) -> str:
    """The administrator's file says which; the status tells what came of it."""
    said = []
    with cpus_chosen(field) as choose:
        for wanted, state, shown in (("2", "partition", "2"), ("none", "none", "")):
            choose(wanted)  # the model need not be there for what the status says of CPUs
            now = field.status()
            found = (now["cpu_state"], now["cpus"])
            expect(found == (state, shown), f"STOKER_CPUS={wanted} made {found}")
            said.append(field.guest.text("stokerctl status | grep ^cpus", user=USER))
    field.ready()
    return "; ".join(" ".join(row.split()) for row in said)


def security(field: Field) -> str:
    """systemd's own judgement of each unit; lower is better."""
    runner = field.runner_unit()
    facts: list[str] = []
    misses: list[str] = []
    for unit, key in (
        ("stoker.service", "stoker.service"), (runner, "runner"),
        ("stoker-apply@1.service", "apply"), ("stoker-slice.service", "stoker-slice.service"),
    ):  # fmt: skip
        told = field.guest.text(["systemd-analyze", "security", "--no-pager", unit], timeout_s=120)
        found = re.search(r"exposure level for .*: ([0-9.]+)", told)
        if found is None:
            raise Miss(f"systemd-analyze said nothing of {unit}")
        facts.append(f"{key} {found[1]}")
        if float(found[1]) > WORST[key]:
            worst = [row for row in told.splitlines() if row.startswith("✗")]
            misses.append(f"{unit}: {found[1]} > {WORST[key]}\n" + "\n".join(worst))
    if misses:
        raise Miss("\n".join(misses))
    return ", ".join(facts)


def _taken_over(field: Field, kind: str, *words: str) -> tuple[int, dict[str, Any]]:
    """Our code in the place of a unit's program: how many doors are open to it outside the
    sandbox, and what it says of its life inside.
    """
    guest = field.guest
    unit, socket = f"stoker-{kind}@intruder.service", f"/run/stoker/{kind}-intruder.sock"
    guest.run(_BAIT.format(socket=socket)).must()
    drop_in = _INTRUDER.format(program=_PROGRAM, daemon=field.daemon_pid(), words=" ".join(words))
    guest.write(_DROP_IN.format(unit=unit), drop_in)
    try:
        for bait in _STATE:
            owner = guest.text(["stat", "-c", "%U", bait])
            expect(owner == "stoker", f"the bait {bait} is {owner}'s")
        guest.run(["systemctl", "daemon-reload"]).must()
        outside = ["/usr/bin/python3", "-I", _PROGRAM, "0"]
        control = _report(guest.text(outside, user=USER, timeout_s=120))
        started = guest.run(["systemctl", "start", unit], timeout_s=150)
        said = guest.text(["journalctl", "-u", unit, "-o", "cat", "--no-pager"])
        started.must(f"the intruder could not even start: {said[-500:]}")
        report = _report(said)
    finally:
        guest.run(_CLEAN.format(unit=unit, socket=socket))
    # The same program without the sandbox finds these doors open: the bait was there.
    missing = set(_OPEN) - set(control["reached"])
    expect(not missing, f"nobody without a sandbox reached {missing}: the test proves nothing")
    reached = ", ".join(report["reached"])
    expect(not reached, f"the intruder reached: {reached}; wrote in {report['writable']}")
    expect(not report["writable"], f"the intruder wrote in {report['writable']}")
    expect(report["seen"]["uid"] != 0, "the intruder is root")
    field.answers()
    return len(control["reached"]), report["seen"]


def intruder(field: Field) -> str:
    """Our code in the runner's place: no network, no key, no state of the daemon, no writing."""
    doors, seen = _taken_over(field, "runner")
    expect(seen["scratch"], "the runner has no scratch of its own")
    return f"nothing reached ({doors} doors are open outside); sees {seen['processes']} process"


def intruder_apply(field: Field) -> str:
    """Our code where deltas are unpacked: the same, and no place of its own to write in."""
    doors, seen = _taken_over(field, "apply", "no-scratch")
    expect(not seen["scratch"], "it has a place to write in")
    return f"nothing reached ({doors} doors are open outside); sees {seen['processes']} process"


STEPS: tuple[Step[Field], ...] = (
    Step("partition", "the CPU partition is valid and the runner inside it", partition,
         ("configure",)),
    Step("cpus", "an administrator chooses the CPUs, and the status says so", cpus,
         ("partition",)),
    Step("security", "systemd-analyze security: stokerd ≤ 1.8, runner and apply ≤ 1.0", security,
         ("configure",)),
    Step("intruder", "a compromised runner reaches nothing", intruder, ("configure",)),
    Step("intruder-apply", "a compromised applier of deltas reaches nothing, writes nowhere",
         intruder_apply, ("configure",)),
)  # fmt: skip
