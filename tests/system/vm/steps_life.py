"""Steps: the package's life. Full disk, upgrade, downgrade, remove, purge, back again."""

from __future__ import annotations

from collections.abc import Callable

from tests.system.vm import steps_heat
from tests.system.vm.field import Field
from tests.system.vm.packages import NEXT_COMMENT, NEXT_SUFFIX
from tests.system.vm.report import expect
from tests.system.vm.steps_service import CONFFILE
from tests.system.vm.steps_sessions import AFTER_UPGRADE
from tests.system.vm.table import Step

# Names that may stay after a purge: the harness's, apt's and dpkg's own memory, the journal.
_SEARCH = r"""find / -xdev \( -path /proc -o -path /sys -o -path /media -o -path /tmp \
    -o -path /var/log -o -path /var/cache/apt -o -path /var/lib/apt \) -prune \
    -o -iname '*stoker*' -print {owned}
find /run /dev/shm /tmp /var/tmp -iname '*stoker*' -print {owned}"""
_USERS = ("stoker", "stoker-runner", "stoker-apply", "stoker-gateway")
_GROUPS = ("stoker", "stoker-runner", "stoker-apply", "stoker-gateway", "stoker-admin")
_HARNESS = (
    "/etc/apt/sources.list.d/stoker.list",
    "/etc/initramfs-tools/conf.d/stoker-vm",
    "/media/stoker",
    "media-stoker",
    "org.stoker.vm",
)


# What root alone may use as well; a little is left for dpkg's own files.
_FILL = """\
fallocate -l $(df --output=avail -B1 / | tail -n 1) /var/filler
cat /dev/zero >>/var/filler
truncate -s -1500000 /var/filler
"""


def _version(field: Field, name: str = "stoker") -> str:
    return field.guest.text(["dpkg-query", "-W", "-f", "${Version}", name])


def full_disk(field: Field) -> str:
    """dpkg runs out of space while it unpacks: the old version is put back and serves again."""
    guest = field.guest
    guest.run(["apt-get", "clean"])
    daemon = field.daemon_pid()
    deb = f"/media/stoker/debs/stoker_{field.packages.next_version}_amd64.deb"
    try:
        guest.run(_FILL).must()
        # Not by apt, which would look first and begin nothing.
        done = guest.run(["dpkg", "--unpack", deb], timeout_s=200)
    finally:
        guest.run(["rm", "-f", "/var/filler"]).must()
    done.must_fail("an upgrade on a full disk")
    said = done.out + done.err
    expect("No space left on device" in said, f"it failed of something else: {said[-400:]}")
    field.ready()
    expect(field.daemon_pid() not in {0, daemon}, "stokerd ran while its files changed")
    guest.run(["dpkg", "--configure", "-a"], timeout_s=200).must()
    field.apt("-f", "install").must()
    audit = guest.text(["dpkg", "--audit"])
    expect(not audit, f"dpkg finds after a full disk: {audit}")
    expect(_version(field) == field.packages.version, f"the version is {_version(field)}")
    field.ready()
    field.answers()
    return "no space for dpkg; stopped, put back and started again by it, the old version answers"


def upgrade(field: Field) -> str:
    """A higher version: the administrator's files are kept, the service is the new one."""
    guest = field.guest
    guest.write("/etc/stoker/stoker.d/70-mine.toml", "[inference]\nqueue_limit = 5\n")
    guest.run("echo kept >/var/lib/stoker/field-test; chown stoker: /var/lib/stoker/field-test")
    guest.run("echo kept >/var/lib/stoker/models/mine.gguf").must()
    before, daemon = guest.text(["sha256sum", CONFFILE]), field.daemon_pid()
    # Not by force: dpkg asks about the one file that both sides changed, and hears "keep mine".
    done = guest.run(
        "apt-get -q -y -o Dpkg::Use-Pty=0 install stoker python3-stoker-client",
        timeout_s=400, stdin="N\n",
    ).must("upgrade")  # fmt: skip
    said = done.out + done.err  # dpkg asks on standard error
    mask = guest.text(
        "ls /run/systemd/system /run | grep -x 'stoker.service\\|stoker-upgrade' || true"
    )
    expect(not mask, f"the upgrade left {mask}")
    asked = said.count("Configuration file '")
    expect(asked == 1 and f"Configuration file '{CONFFILE}'" in said,
           f"dpkg asked {asked} times about configuration files: {said[-600:]}")  # fmt: skip
    version = _version(field)
    expect(version == field.packages.next_version, f"the version is {version}")
    expect(version.endswith(NEXT_SUFFIX), "that is not the next version")
    expect(guest.text(["sha256sum", CONFFILE]) == before, f"{CONFFILE} is not the administrator's")
    guest.run(["grep", "-q", NEXT_COMMENT, "/etc/default/stoker"]).must(
        "a file that nobody edited is the new one"
    )
    running = field.status()["version"]
    expect(running == version, f"the service still runs the code of {running}")
    for kept in ("/etc/stoker/stoker.d/70-mine.toml", "/var/lib/stoker/field-test",
                 "/var/lib/stoker/models/mine.gguf"):  # fmt: skip
        guest.run(["test", "-e", kept]).must(f"{kept} is kept")
    expect(field.daemon_pid() not in {0, daemon}, "the old stokerd still runs")
    audit = guest.text(["dpkg", "--audit"])
    expect(not audit, f"dpkg finds: {audit}")
    wrong = guest.text(["dpkg", "--verify", "stoker", "python3-stoker-client"])
    others = [row for row in wrong.splitlines() if not row.endswith(CONFFILE)]
    expect(not others, f"files that are not as packed: {others}")
    seconds = field.ready()
    field.answers()
    return f"{version} in {done.seconds:.0f} s, ready after {seconds:.0f} s; asked once, kept mine"


def downgrade(field: Field) -> str:
    """Safe: the older version starts with the newer one's state and configuration."""
    old = field.packages.version
    models = tuple(name for name in field.packages.names if name.startswith("stoker-model"))
    wanted = [f"{name}={old}" for name in field.packages.names if name not in models]
    field.apt("--allow-downgrades", "install", *wanted).must("downgrade")
    expect(_version(field) == old, f"the version is {_version(field)}")
    expect(field.status()["version"] == old, "the service runs other code than the package's")
    field.ready()
    field.answers()
    return f"{old} serves with what {field.packages.next_version} left"


def remove(field: Field) -> str:
    """Program gone, nothing running, no cap; configuration, state and the record stay."""
    guest = field.guest
    steps_heat.board_on(field)
    held = steps_heat.hold(field)
    field.apt("remove", "stoker").must()
    _expect_own_clock(field)
    steps_heat.board_away(field)
    running = guest.run("ps -eo user,args | grep -E '^stoker|[s]tokerd' || true").text
    expect(not running, f"still running: {running}")
    guest.run(["test", "-e", CONFFILE]).must("remove keeps the configuration")
    # stoker-tools may stay, with its part of the folder
    left = guest.run("ls /usr/sbin/stokerd /usr/bin/stokerctl /usr/lib/stoker/stoker/core").text
    expect(not left, f"left by remove: {left}")
    loaded = guest.text(
        "systemctl list-units --all --plain --no-legend --state=loaded 'stoker*' || true"
    )
    expect(not _ours(loaded), f"units still loaded: {loaded}")
    cpus = guest.text(["cat", "/sys/fs/cgroup/cpuset.cpus.effective"])
    everything = guest.text(["cat", "/sys/devices/system/cpu/online"])
    expect(cpus == everything, f"the system has CPUs {cpus} of {everything}")
    refused = field.ask().must_fail("asking after remove")
    return f"{refused.err.strip()[:80]!r}; a cap of {held} kHz given back; no unit is loaded"


def _ours(units: str) -> list[str]:
    """Rows of systemctl that are not the harness's."""
    return [row for row in units.splitlines() if not any(mine in row for mine in _HARNESS)]


def _expect_own_clock(field: Field) -> None:
    """The board's frequency limit is what it was, and ours to set no more."""
    left = steps_heat.cap_khz(field)
    expect(left == steps_heat.FULL_KHZ, f"a cap of {left} kHz is left")
    owner = field.guest.text(["stat", "-c", "%U:%G %a", steps_heat.CAP])
    expect(owner == "root:root 644", f"the frequency limit is left as {owner}")


def purge(field: Field) -> str:
    """Nothing left: no file, no process, no user, no CPU taken away."""
    return _purged(field, lambda: None)


def purge_held(field: Field) -> str:
    """From full work, without a removal before: the cap goes, too."""
    steps_heat.board_on(field)
    field.ready()
    held = steps_heat.hold(field)

    def board_away() -> None:
        _expect_own_clock(field)
        steps_heat.board_away(field)

    said = _purged(field, board_away)
    return f"a cap of {held} kHz given back; {said}"


def _numbers(field: Field, kind: str, names: tuple[str, ...]) -> list[str]:
    """Of users or groups. The gateway's go with its package; the others must be there, since a
    search for fewer would find less.
    """
    rows = [row.split(":") for row in field.guest.run(["getent", kind, *names]).text.splitlines()]
    missing = set(names) - {row[0] for row in rows} - {"stoker-gateway"}
    expect(not missing, f"not there before the purge: {missing}")
    return [row[2] for row in rows]


def _purged(field: Field, then: Callable[[], None]) -> str:
    """``then`` looks at what the purge left before the files are looked for."""
    guest = field.guest
    users, groups = _numbers(field, "passwd", _USERS), _numbers(field, "group", _GROUPS)
    field.apt("purge", *field.packages.names).must()
    then()
    owned = " ".join(
        f"-o -{kind} {number} -print"
        for kind, numbers in (("uid", users), ("gid", groups))
        for number in numbers
    )
    found = guest.run(_SEARCH.format(owned=owned), timeout_s=120).text
    left = [path for path in found.splitlines() if not any(mine in path for mine in _HARNESS)]
    expect(not left, "files left by purge:\n" + "\n".join(left[:40]))
    processes = guest.run(f"ps -u {','.join(users)} -o pid,args --no-headers").text
    expect(not processes, f"processes left by purge: {processes}")
    known_by = guest.run("getent passwd | grep stoker; getent group | grep stoker").text
    failed = guest.text("systemctl list-units --failed --plain --no-legend")
    expect(not failed, f"failed units after purge: {failed}")
    units = guest.text("systemctl list-units --all --plain --no-legend '*stoker*' || true")
    expect(not _ours(units), f"units left by purge: {_ours(units)}")
    known = guest.run("dpkg-query -W '*stoker*' | grep -v '^ *$'").text
    expect(not known_by, f"users and groups left by purge: {known_by}")
    return f"no file, process, user or group is left; dpkg knows: {known or 'nothing'}"


def reinstall(field: Field) -> str:
    """As on the first day, with the defaults: the model is there and answers."""
    done = field.apt("install", "stoker").must()
    field.ready()
    field.guest.write("/etc/stoker/stoker.d/50-short.toml", "[inference]\nmax_tokens = 4\n")
    field.guest.run(["systemctl", "reload", "stoker.service"], timeout_s=90).must()
    field.answers()
    return f"installed again in {done.seconds:.0f} s and answers"


STEPS: tuple[Step[Field], ...] = (
    Step("full-disk", "an upgrade on a full disk leaves the old version serving", full_disk,
         ("configure",)),
    Step("upgrade", "another version's code and files; configuration kept", upgrade,
         ("configure",)),
    AFTER_UPGRADE,
    Step("downgrade", "the older version is safe on the newer one's state", downgrade,
         ("upgrade",)),
    Step("remove", "removed while a cap is held: it is given back, the configuration stays", remove,
         ("configure",)),
    Step("purge", "purged: nothing is left", purge, ("configure",)),
    Step("reinstall", "installed again, and it answers", reinstall, ("purge",)),
    Step("purge-held", "purged while it serves and holds a cap: nothing is left", purge_held,
         ("reinstall",)),
)  # fmt: skip
