"""A compromised runner or applier: takes its place in its sandbox and tries what an attacker would.

Prints one JSON object: "reached" (what must be out of reach and was not), "writable" (places
outside its scratch that took a file), "seen" (how much it can look at). Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import signal
import socket
import sys
from collections.abc import Callable

_OWN = "/var/cache/stoker-runner"  # the runner's scratch
_SCRATCH = [_OWN]
_SECRETS = (
    "/etc/shadow", "/etc/stoker/stoker.toml", "/etc/stoker/keys/device.key", "/etc/machine-id",
    "/var/lib/stoker/secret", "/var/lib/private", "/root", "/home/tester/letter", "/boot",
    "/run/stoker/secret", "/run/dbus/system_bus_socket", "/run/systemd/private", "/dev/mem",
    "/dev/vda", "/dev/kmsg", "/proc/kcore", "/sys/kernel/security", "/media/stoker/agent.py",
    "/var/log/journal", "/proc/sysrq-trigger",
    "/var/lib/stoker/sessions.db", "/var/lib/stoker/ota/state.json",
)  # fmt: skip
_FAMILIES = {"AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16, "AF_PACKET": 17, "AF_VSOCK": 40}
_CLONE_NEWUSER = 0x10000000
_PTRACE_ATTACH = 16

libc = ctypes.CDLL(None, use_errno=True)


def works(act: Callable[[], object]) -> bool:
    try:
        result = act()
    except (OSError, ValueError, PermissionError):
        return False
    return result is not False


def c_call(name: str, *words: object) -> Callable[[], bool]:
    return lambda: bool(getattr(libc, name)(*words) == 0)


def connects(family: int, address: str | tuple[str, int]) -> Callable[[], object]:
    def act() -> None:
        with socket.socket(family, socket.SOCK_STREAM) as link:
            link.settimeout(3)
            link.connect(address)

    return act


def opened(path: str, flags: int = os.O_RDONLY) -> Callable[[], object]:
    def act() -> object:
        if os.path.isdir(path):  # noqa: PTH112
            return bool(os.listdir(path))  # noqa: PTH208
        os.close(os.open(path, flags))
        return True

    return act


def executable_memory() -> None:
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.close()


def made(family: int) -> Callable[[], object]:
    return lambda: socket.socket(family, socket.SOCK_DGRAM).close()


def takes_a_file(path: str) -> bool:
    return works(lambda: os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)))


def deeds(daemon: int) -> dict[str, Callable[[], object]]:
    """What would change something if it worked; last and only in the sandbox."""
    return {
        "signal to stokerd": lambda: os.kill(daemon, signal.SIGTERM),
        "signal to init": lambda: os.kill(1, signal.SIGTERM),
        "ptrace of stokerd": c_call("ptrace", _PTRACE_ATTACH, daemon, None, None),
        "setuid 0": lambda: os.setuid(0),
        "mount": c_call("mount", b"none", b"/usr", b"tmpfs", 0, None),
        "new user namespace": c_call("unshare", _CLONE_NEWUSER),
        "host name": lambda: socket.sethostname("pwned"),
        "chroot": lambda: os.chroot("/usr"),
        "device node": lambda: os.mknod(f"{_OWN}/sda", 0o60600, os.makedev(254, 0)),
        "module": c_call("syscall", 175, b"", 0, b""),
    }


def attempts(daemon: int) -> dict[str, Callable[[], object]]:
    """Name of a thing that must fail -> how it is tried. ``daemon`` 0 = look, touch nothing."""
    tries: dict[str, Callable[[], object]] = {
        "loopback of the machine": connects(socket.AF_INET, ("127.0.0.1", 7007)),
        "abstract socket of the machine": connects(socket.AF_UNIX, "\0stoker-field-test"),
        "system bus": connects(socket.AF_UNIX, "/run/dbus/system_bus_socket"),
        "manager of systemd": connects(socket.AF_UNIX, "/run/systemd/private"),
        "memory of stokerd": opened(f"/proc/{daemon}/mem"),
        "environment of stokerd": opened(f"/proc/{daemon}/environ"),
        "keyring": c_call("syscall", 250, 0, -3, 1, 0, 0),
        "bpf": c_call("syscall", 321, 0, None, 0),
        "memory to write and execute": executable_memory,
        "more processor time by cgroup": opened("/sys/fs/cgroup/cgroup.procs", os.O_WRONLY),
        "frequency caps": opened(
            "/sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq", os.O_WRONLY
        ),
    }
    for name, family in _FAMILIES.items():
        tries[f"a socket of {name}"] = made(family)
    for path in _SECRETS:
        tries[f"read {path}"] = opened(path)
    return {**tries, **deeds(daemon)} if daemon else tries


def writable() -> list[str]:
    """Folders outside the scratch in which a file can be made, looking three levels deep."""
    found: list[str] = []
    waiting = [("/", 0)]
    while waiting:
        folder, depth = waiting.pop()
        if folder in _SCRATCH or (folder.startswith("/proc/") and folder != "/proc/sys"):
            continue
        probe = os.path.join(folder, ".intruder")  # noqa: PTH118
        if takes_a_file(probe):
            found.append(folder)
            with contextlib.suppress(OSError):
                os.unlink(probe)  # noqa: PTH108
        if depth < 3:
            with contextlib.suppress(OSError):
                waiting += [(e.path, depth + 1) for e in os.scandir(folder)
                            if e.is_dir(follow_symlinks=False)]  # fmt: skip
    return sorted(found)


def main() -> int:
    daemon = int(sys.argv[1])
    if "no-scratch" in sys.argv:  # for a process that has none
        _SCRATCH.clear()
    reached = [name for name, act in attempts(daemon).items() if works(act)]
    processes = [entry for entry in os.listdir("/proc") if entry.isdigit()]  # noqa: PTH208
    scratch = takes_a_file(f"{_OWN}/ok")
    seen = {"processes": len(processes), "uid": os.getuid(), "scratch": scratch}
    report = {"reached": reached, "writable": writable(), "seen": seen}
    sys.stdout.write(json.dumps(report) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
