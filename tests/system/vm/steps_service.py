"""Steps: from a bare Debian to an answer. Boot, install, who runs as whom, asking, rights."""

from __future__ import annotations

import re

from tests.system.vm.field import AGENT, ANSWER_S, USER, Field
from tests.system.vm.report import Miss, expect
from tests.system.vm.table import Step

# Short answers, and patience: the processor is emulated. An administrator's edit of the conffile,
# so that the upgrade has something to keep.
SETTINGS = {
    "max_tokens": "4",
    "slots": "2",
    "batch_tokens": "64",
    "hello_timeout_s": "120.0",
    "crash_limit": "10",
    "temperature": "0.0",
}
VARIANT = "haswell"  # of llama.cpp, that the package must choose on the emulated processor
CONFFILE = "/etc/stoker/stoker.toml"

_SITE_RULE = "/etc/polkit-1/rules.d/10-field.rules"
_NOT_OTHER = """\
polkit.addRule(function (action, subject) {
    if (action.id === "org.stoker.Agent1.manage" && subject.user === "other") {
        return polkit.Result.NO;
    }
    return polkit.Result.NOT_HANDLED;
});
"""
_ASK_PYTHON = """\
import sys
from stoker_client import Stoker
sys.stdout.write(Stoker().ask("Name a fruit.", max_tokens=3))
"""


def boot(field: Field) -> str:
    seconds = field.machine.boot()
    field.guest.run(["systemctl", "is-system-running", "--wait"], timeout_s=240)
    failed = field.guest.text("systemctl list-units --failed --plain --no-legend")
    expect(not failed, f"failed units before anything is installed: {failed}")
    kernel = field.guest.text(["uname", "-r"])
    version = field.guest.text("systemctl --version | head -n 1").split()[1]
    return f"agent after {seconds:.0f} s; kernel {kernel}, systemd {version}"


def no_network(field: Field) -> str:
    """What comes next, all of it, happens on a machine that is connected to nothing."""
    links = field.guest.text("ls /sys/class/net").split()
    expect(links == ["lo"], f"the machine has network devices: {links}")
    routes = field.guest.text("ip route show table all type unicast | grep -v ' dev lo ' || true")
    expect(not routes, f"the machine has routes: {routes}")
    return "only the loopback is there; apt reads a disk"


def install(field: Field) -> str:
    """The first version, by name; the model comes as a recommendation."""
    return settle(field)


def settle(field: Field, *options: str) -> str:
    """The packages but the model's, by apt with these options; their service runs."""
    names = field.packages.names
    ours = [name for name in names if not name.startswith("stoker-model")]
    field.apt("update").must()
    wanted = [f"{name}={field.packages.version}" for name in ours]
    done = field.apt(*options, "install", *wanted).must()
    failed = field.guest.text("systemctl list-units --failed --plain --no-legend")
    expect(not failed, f"failed units after the installation: {failed}")
    active = field.unit("stoker.service", "ActiveState")
    expect(active == "active", f"stoker.service is {active} after the installation")
    listed = field.guest.text(
        "dpkg-query -W -f '${binary:Package} ${Version} ${db:Status-Status}\\n' '*stoker*'"
    )
    installed = [line for line in listed.splitlines() if line.endswith(" installed")]
    counts = {len(names), len(ours)} if options else {len(names)}  # the model may be there already
    expect(len(installed) in counts, f"installed: {installed}, wanted: {counts}")
    return f"apt took {done.seconds:.0f} s; {len(installed)} packages of {field.packages.version}"


def configure(field: Field) -> str:
    """The administrator's settings; then the model is there."""
    edit(field)
    field.restart()
    seconds = field.ready()
    status = field.status()
    # qemu's "max" has AVX2 and nothing that the later variants need.
    chosen = f"({VARIANT})" in status["library"] or not field.machine.emulated
    expect(chosen, f"not {VARIANT} was chosen: {status['library']}")
    return f"ready after {seconds:.0f} s: {status['model']}, {status['library']}"


def edit(field: Field) -> None:
    """SETTINGS, where the conffile has them as comments."""
    edits = [word for k, v in SETTINGS.items() for word in ("-e", f"s/^#{k} = .*/{k} = {v}/")]
    field.guest.run(["sed", "-i", *edits, CONFFILE]).must()
    for key, value in SETTINGS.items():
        field.guest.run(["grep", "-qx", f"{key} = {value}", CONFFILE]).must(
            f"{key} is in {CONFFILE}"
        )


def processes(field: Field) -> str:
    """No root, no capability, no way to gain one; the runner in its own slice and network."""
    guest, daemon, runner = field.guest, field.daemon_pid(), field.runner_pid()
    for pid, user in ((daemon, "stoker"), (runner, "stoker-runner")):
        owner = guest.text(["stat", "-c", "%U", f"/proc/{pid}"])
        uids = set(field.process(pid, "Uid").split())
        wanted = guest.text(["id", "-u", user])
        expect(uids == {wanted}, f"process {pid} runs as {owner} ({uids}), not as {user}")
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            value = field.process(pid, name)
            expect(int(value, 16) == 0, f"{user}: {name} is {value}")
        expect(field.process(pid, "NoNewPrivs") == "1", f"{user} may gain privileges")
        expect(field.process(pid, "Seccomp") == "2", f"{user} has no system call filter")
    host_net = guest.text(["readlink", "/proc/1/ns/net"])
    expect(
        guest.text(["readlink", f"/proc/{runner}/ns/net"]) != host_net, "the runner sees the net"
    )
    cgroup = guest.text(["cat", f"/proc/{runner}/cgroup"])
    expect(cgroup.startswith("0::/stoker.slice/stoker-runner@"), f"the runner is in {cgroup}")
    rooted = guest.text("ps -eo user:20,args | grep -i '[s]toker' | grep '^root ' || true")
    ours = [
        row for row in rooted.splitlines() if "/media/stoker" not in row and "ps -eo" not in row
    ]
    expect(not ours, f"processes of ours that are root: {ours}")
    return f"stokerd {daemon} as stoker, runner {runner} as stoker-runner, no capabilities"


def ask_busctl(field: Field) -> str:
    done = field.answers()
    return f"{done.seconds:.1f} s: {done.text}"


def ask_gdbus(field: Field) -> str:
    done = field.guest.run(
        ["gdbus", "call", "--system", "--timeout", str(ANSWER_S), "--dest", AGENT[0],
         "--object-path", AGENT[1], "--method", "org.stoker.Inference1.Ask", "Name a tree."],
        user=USER, timeout_s=ANSWER_S,
    ).must()  # fmt: skip
    expect(done.text.startswith("('") and len(done.text) > 5, f"it said {done.text!r}")
    return f"{done.seconds:.1f} s: {done.text}"


def ask_python(field: Field) -> str:
    done = field.guest.run(["/usr/bin/python3", "-"], user=USER, stdin=_ASK_PYTHON,
                           timeout_s=ANSWER_S).must()  # fmt: skip
    expect(bool(done.text), "the answer is empty")
    return f"{done.seconds:.1f} s: {done.text!r}"


def ask_stokerctl(field: Field) -> str:
    done = field.guest.run(
        ["stokerctl", "ask", "--max-tokens", "3", "--stats", "Name a bird."],
        user=USER, timeout_s=ANSWER_S,
    ).must()  # fmt: skip
    expect(bool(done.text), "the answer is empty")
    status = field.guest.run(["stokerctl", "status"], user=USER).must()
    expect("ready" in status.out, f"stokerctl status: {status.text}")
    return f"{done.seconds:.1f} s: {done.text!r}"


def activation(field: Field) -> str:
    """A stopped service is started by the first who asks, whoever it is."""
    field.guest.run(["systemctl", "stop", "stoker.service"], timeout_s=120).must()
    began = field.call("Agent1", "Status").must("a question to a stopped service")
    active = field.unit("stoker.service", "ActiveState")
    expect(active == "active", f"stoker.service is {active} after a question")
    field.ready()
    field.answers()
    return f"the status came after {began.seconds:.0f} s, then an answer"


def access(field: Field) -> str:
    """Everyone may ask, only administrators change; root and the group stoker-admin are those."""
    for interface, method, *words in (
        ("Agent1", "Reload"), ("Agent1", "RestartRunner"),
        ("Thermal1", "Calibrate", "a{sv}", "0"), ("Thermal1", "CancelCalibration"),
    ):  # fmt: skip
        done = field.call(interface, method, *words)
        done.must_fail(f"{method} by a person without rights")
        denied = any(word in done.err.lower() for word in ("not", "denied", "only"))
        expect(denied, f"{method} was refused with other words: {done.err.strip()}")
    field.call("Agent1", "Reload", user="root").must("Reload by root")
    field.guest.run(["usermod", "-a", "-G", "stoker-admin", "other"]).must()
    field.call("Agent1", "Reload", user="other").must("Reload by a member of stoker-admin")
    _polkit_is_asked(field)
    before = field.runner_pid()
    field.call("Agent1", "RestartRunner", user="root").must("RestartRunner by root")
    field.guest.until("another runner", lambda: _another(field, before), timeout_s=60)
    field.ready()
    # Nor by systemd: only user stoker manages the runner's unit, and nobody the daemon's.
    unit = field.runner_unit()
    for command in (["stop", unit], ["restart", "stoker.service"], ["start", "stoker-runner@9"]):
        field.guest.run(["systemctl", "--no-ask-password", *command], user=USER).must_fail(
            f"systemctl {' '.join(command)} by a person without rights"
        )
    # State is stokerd's alone: a person sees no name in it.
    seen = field.guest.run(["ls", "/var/lib/stoker"], user=USER).must_fail("a look at the state")
    expect("denied" in seen.err, f"a look at the state failed of something else: {seen.err}")
    return "refused to tester, granted to root and stoker-admin; polkit has the last word"


def _polkit_is_asked(field: Field) -> None:
    """A rule of the site outweighs the group; without polkit the group decides alone."""
    guest = field.guest

    def may() -> bool:
        return field.call("Agent1", "Reload", user="other").code == 0

    guest.write(_SITE_RULE, _NOT_OTHER)
    guest.run(["chmod", "644", _SITE_RULE])
    guest.until("a site's rule keeps a member out", lambda: not may(), timeout_s=60)
    refused = field.call("Agent1", "Reload", user="other").must_fail("Reload against the rule")
    expect("may not manage" in refused.err, f"it was refused with other words: {refused.err}")
    field.call("Agent1", "Reload", user="root").must("Reload by root against the rule")
    guest.run(["systemctl", "mask", "--runtime", "--now", "polkit.service"], timeout_s=120).must()
    expect(may(), "without polkit a member of stoker-admin may not manage")
    guest.run(["systemctl", "unmask", "--runtime", "polkit.service"], timeout_s=120).must()
    guest.run(["rm", _SITE_RULE]).must()
    guest.run(["systemctl", "start", "polkit.service"], timeout_s=120).must()
    expect(may(), "with the rule gone a member of stoker-admin may not manage")


def autopkgtest(field: Field) -> str:
    """Debian's own machinery finds the package's tests and runs all of them on this machine."""
    done = field.guest.run(
        ["autopkgtest", "--no-built-binaries", "--ignore-restrictions=isolation-machine",
         "/media/stoker/source", "--", "null"],
        timeout_s=600,
    )  # fmt: skip
    rows = dict(re.findall(r"^(\w+)\s+(PASS|FAIL|SKIP)\b", done.out, re.MULTILINE))
    expect(done.code == 0, f"autopkgtest: exit {done.code}: {(done.out + done.err)[-1200:]}")
    expect(set(rows.values()) == {"PASS"}, f"autopkgtest: {rows}")
    return f"{', '.join(sorted(rows))} in {done.seconds:.0f} s"


def _another(field: Field, before: int) -> bool:
    try:
        return field.runner_pid() not in {0, before}
    except Miss:
        return False


STEPS: tuple[Step[Field], ...] = (
    Step("boot", "a minimal Debian boots", boot),
    Step("no-network", "the machine has no network: nothing that follows needs any", no_network,
         ("boot",)),
    Step("install", "apt installs the packages, the service runs", install, ("no-network",)),
    Step("configure", "an administrator's settings hold after a restart", configure, ("install",)),
    Step("processes", "no root, no capabilities, own users, private network", processes,
         ("configure",)),
    Step("ask-busctl", "a person without rights asks with busctl", ask_busctl, ("configure",)),
    Step("ask-gdbus", "… with gdbus", ask_gdbus, ("configure",)),
    Step("ask-python", "… with python3-stoker-client", ask_python, ("configure",)),
    Step("ask-stokerctl", "… with stokerctl", ask_stokerctl, ("configure",)),
    Step("autopkgtest", "autopkgtest passes the package's own tests", autopkgtest, ("configure",)),
)  # fmt: skip
LATER: tuple[Step[Field], ...] = (
    Step("activation", "a question on the bus starts a stopped service", activation,
         ("configure",)),
    Step("access", "only administrators change things", access, ("configure",)),
)  # fmt: skip
