"""Runs inside the guest: carries out commands that the harness sends over a virtio-serial port.

Request, one JSON object a line: id, argv, user, timeout_s, stdin. Reply: id, code, out, err,
seconds. Knows nothing of Stoker and imports only the standard library (Debian's Python).
"""

from __future__ import annotations

import grp
import json
import os
import pwd
import signal
import subprocess
import sys
import threading
import time
from typing import Any

PORT = "/dev/virtio-ports/org.stoker.vm"
TIMED_OUT = 124  # as timeout(1) says it

_write_lock = threading.Lock()


def _identity(user: str) -> dict[str, Any]:
    """What Popen needs to become ``user`` as a login would, groups included."""
    if user == "root":
        return {"env": {**os.environ, "HOME": "/root", "LC_ALL": "C.UTF-8"}}
    entry = pwd.getpwnam(user)
    groups = {entry.pw_gid, *(g.gr_gid for g in grp.getgrall() if user in g.gr_mem)}
    return {
        "user": entry.pw_uid,
        "group": entry.pw_gid,
        "extra_groups": sorted(groups),
        "cwd": entry.pw_dir if os.path.isdir(entry.pw_dir) else "/",  # noqa: PTH112
        "env": {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": entry.pw_dir,
            "USER": user,
            "LC_ALL": "C.UTF-8",
        },
    }


def _run(request: dict[str, Any]) -> dict[str, Any]:
    started = time.monotonic()
    child = subprocess.Popen(
        request["argv"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        **_identity(request["user"]),
    )
    try:
        out, err = child.communicate(request["stdin"].encode(), timeout=request["timeout_s"])
        code = child.returncode
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        out, err = child.communicate()
        code = TIMED_OUT
    return {
        "code": code,
        "out": out.decode(errors="replace"),
        "err": err.decode(errors="replace"),
        "seconds": time.monotonic() - started,
    }


def _answer(port: int, request: dict[str, Any]) -> None:
    try:
        reply = _run(request)
    except (OSError, KeyError, ValueError, subprocess.SubprocessError) as error:
        reply = {"code": 127, "out": "", "err": f"agent: {error!r}", "seconds": 0.0}
    _send(port, {"id": request["id"], **reply})


def _send(port: int, message: dict[str, Any]) -> None:
    data = json.dumps(message).encode() + b"\n"
    with _write_lock:
        while data:
            data = data[os.write(port, data) :]


def main() -> int:
    port = os.open(PORT, os.O_RDWR)
    _send(port, {"hello": time.monotonic()})
    kept = b""
    while True:
        data = os.read(port, 1 << 16)
        if not data:  # the host side is closed
            time.sleep(0.1)
            continue
        *lines, kept = (kept + data).split(b"\n")
        for line in lines:
            threading.Thread(target=_answer, args=(port, json.loads(line)), daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
