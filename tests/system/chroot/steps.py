"""Steps in the chroot: apt installs, files and users are right, programs start, a model answers,
purge leaves nothing. No systemd runs there: units, bus policy and sandbox are the field test's.
"""

from __future__ import annotations

import json
import re
import shutil

from tests.system.chroot.site import Site
from tests.system.chroot.steps_tests import AUTOPKGTEST, SCRIPTS
from tests.system.vm.report import expect
from tests.system.vm.table import Step

MODEL = "/usr/share/stoker/models/SmolLM2-135M-Instruct.Q4_1.gguf"
# path: owner:group mode
_MODES = {
    "/etc/stoker/stoker.toml": "root:root 644",
    "/etc/default/stoker": "root:root 644",
    "/var/lib/stoker": "stoker:stoker 750",
    "/var/lib/stoker/models": "root:root 755",
    "/usr/sbin/stokerd": "root:root 755",
    "/usr/bin/stokerctl": "root:root 755",
    "/usr/bin/stoker-ota": "root:root 755",
    "/usr/libexec/stoker/runner": "root:root 755",
    "/usr/share/polkit-1/rules.d/stoker.rules": "root:root 644",
    "/usr/share/dbus-1/system.d/org.stoker.Agent1.conf": "root:root 644",
    MODEL: "root:root 644",
}
# What the runner loads: no code for pictures and sound (mtmd, llava), servers or training.
_LIBRARY = re.compile(r"lib/lib(llama|ggml|ggml-base|ggml-cpu-[a-z0-9._]+)\.so")
_GATEWAY = "/etc/stoker/gateway.toml"
# A proxy that nobody is: a package that apt would have to fetch is an error.
_NO_NETWORK = (
    "-o Acquire::http::Proxy=http://127.0.0.1:9 -o Acquire::https::Proxy=http://127.0.0.1:9"
)
_TALK = """\
set -eu
mkdir /tmp/talk
cd /tmp/talk
export HOME=$PWD
printf '[runner]\\nhello_timeout_s = 300.0\\nheartbeat_timeout_s = 120.0\\n' >stoker.toml
stokerd --session --config stoker.toml --model {model} --state-dir $PWD/state \\
    --runtime-dir $PWD/run 2>log &
for _ in $(seq 300); do
    stokerctl --bus session --json status >status 2>/dev/null || true
    grep -q '"state": *"ready"' status && break
    sleep 0.5
done
stokerctl --bus session ask --max-tokens 4 --temperature 0 "Name a colour." >answer || {{
    cat log status >&2
    exit 1
}}
if grep -s cryptography /proc/$!/maps >&2; then exit 1; fi
kill $!
wait $! || true
printf '%s\\n%s\\n' "$(tr '\\n' ' ' <status)" "$(tr '\\n' ' ' <answer)"
rm -rf /tmp/talk
"""


def install(site: Site) -> str:
    """With what apt had fetched before: no network, no question asked."""
    room = site.room
    before = room.text("find / -xdev -iname '*stoker*'")
    expect(not before, f"the Debian was not clean: {before}")
    (room.root / "debs").mkdir()
    for deb in site.packages.files:
        shutil.copy(deb, room.root / "debs")
    done = room.run(
        f"apt-get -q -y --no-install-recommends {_NO_NETWORK} install /debs/*.deb", timeout_s=1200
    ).must()
    shutil.rmtree(room.root / "debs")
    audit = room.text(["dpkg", "--audit"])
    expect(not audit, f"dpkg finds: {audit}")
    wrong = room.text(["dpkg", "--verify", *site.packages.names])
    expect(not wrong, f"files that are not as packed: {wrong}")
    return f"{', '.join(site.packages.names)} {site.packages.version} in {done.seconds:.0f} s"


def files(site: Site) -> str:
    for path, wanted in _MODES.items():
        found = site.room.text(["stat", "-c", "%U:%G %a", path])
        expect(found == wanted, f"{path} is {found}, not {wanted}")
    compiled = int(site.room.text("find /usr/lib/stoker -name '*.pyc' | wc -l"))
    expect(compiled > 100, f"only {compiled} modules were compiled at the installation")
    held = set(
        site.room.text(
            "find /usr/lib/stoker/llama_cpp -type f -name '*.so*' -printf '%P\\n'"
        ).split()
    )
    others = {name for name in held if not _LIBRARY.fullmatch(name)}
    expect(not others and len(held) > 3, f"no part of what the runner needs: {others}; {held}")
    writable = site.room.text("find /usr/lib/stoker /etc/stoker -perm /022 -not -type l")
    expect(not writable, f"writable by others: {writable}")
    return f"{len(_MODES)} owners and modes; {compiled} compiled modules"


def users(site: Site) -> str:
    for name in ("stoker", "stoker-runner"):
        entry = site.room.text(["getent", "passwd", name]).split(":")
        expect(0 < int(entry[2]) < 1000, f"{name} has the user ID {entry[2]}")
        expect(entry[6].endswith("nologin"), f"{name} has the shell {entry[6]}")
    members = site.room.text(["getent", "group", "stoker-runner"]).split(":")[3]
    expect(members == "stoker", f"group stoker-runner has {members!r}")
    admins = site.room.text(["getent", "group", "stoker-admin"]).split(":")[3]
    expect(not admins, f"group stoker-admin has {admins!r}")
    return "stoker, stoker-runner, group stoker-admin (empty)"


def programs(site: Site) -> str:
    room = site.room
    version = room.text(["stokerd", "--version"], user="nobody")
    checked = room.text(["stokerd", "--check-config"], user="stoker")
    expect("models smollm2" in checked, f"--check-config says {checked!r}")
    for words in (["stokerd", "--help"], ["stokerctl", "--help"], ["stokerctl", "version"],
                  ["/usr/libexec/stoker/runner", "--help"]):  # fmt: skip
        room.run(words, user="nobody").must()
    room.run(["stokerctl", "status"], user="nobody").must_fail("a status without a service")
    room.run(["stokerd", "--restore-caps"], user="stoker").must()
    room.run(["python3", "-c", "import stoker_client; stoker_client.Stoker"], user="nobody").must()
    room.run(["python3", "-c", "import stoker"]).must_fail("the daemon's code as a public module")
    return f"{version}; {checked}"


def reconfigure(site: Site) -> str:
    """Once more all that configuring does: nothing is asked, nobody's file is changed."""
    room = site.room
    mine = "/etc/stoker/stoker.d/70-mine.toml"
    room.text(f"printf '[inference]\\nqueue_limit = 5\\n' >{mine}")
    before = room.text(f"sha256sum /etc/stoker/stoker.toml {mine} /etc/passwd /etc/group")
    names = [name for name in site.packages.names if not name.startswith("stoker-model")]
    room.run(["dpkg-reconfigure", *names], timeout_s=300).must()
    after = room.text(f"sha256sum /etc/stoker/stoker.toml {mine} /etc/passwd /etc/group")
    expect(after == before, f"before: {before}; after: {after}")
    room.text(["rm", mine])
    return f"{len(names)} packages; configuration and users are what they were"


def answer(site: Site) -> str:
    """As user stoker on a bus of its own: the daemon starts the runner, which answers."""
    said = site.room.run(
        ["dbus-run-session", "--", "sh", "-c", _TALK.format(model=MODEL)],
        user="stoker", timeout_s=900 if site.room.cpu else 180,
    ).must()  # fmt: skip
    status, _, words = said.text.partition("\n")
    expect(bool(words.strip()), "the answer is empty")
    return f"{words.strip()!r} in {said.seconds:.0f} s: {json.loads(status)['library']}"


def purge(site: Site) -> str:
    """Of a gateway that was only removed the configuration stays when stoker is purged."""
    room = site.room
    for words in (["remove", "stoker-gateway"], ["purge", "stoker"]):
        room.run(["apt-get", "-q", "-y", *words], timeout_s=300).must()
        room.run(["test", "-e", _GATEWAY]).must(f"{_GATEWAY} is kept by {' '.join(words)}")
    room.run(["apt-get", "-q", "-y", "purge", *site.packages.names], timeout_s=300).must()
    left = room.text(
        "find / -xdev -iname '*stoker*' -not -path '/var/log/*' -not -path '/var/cache/apt/*'"
    )
    expect(not left, f"left by purge: {left}")
    known = room.run("getent passwd | grep stoker; getent group | grep stoker").text
    expect(not known, f"users and groups left by purge: {known}")
    return "no file, user or group is left"


STEPS: tuple[Step[Site], ...] = (
    Step("install", "apt installs the packages into a clean Debian, without network", install),
    Step("files", "owners and modes are right", files, ("install",)),
    Step("users", "system users and groups are there", users, ("install",)),
    Step("programs", "every program starts, the configuration is good", programs, ("install",)),
    Step("reconfigure", "dpkg-reconfigure changes nothing", reconfigure, ("install",)),
    Step("answer", "stokerd starts the runner, and the model answers", answer, ("install",)),
    *SCRIPTS,
    AUTOPKGTEST,
    Step("purge", "purge leaves nothing", purge, ("install",)),
)
