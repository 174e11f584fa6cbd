#!/usr/bin/python3
"""Ask about a large text: the request goes as a sealed memory file, not through the bus.

    large_pydbus.py QUESTION FILE

The client library does this by itself; here is what happens. As stream_pydbus.py otherwise.
"""

import fcntl
import json
import os
import sys
from pathlib import Path

import pydbus
from gi.repository import Gio, GLib

address = os.environ.get("STOKER_BUS_ADDRESS")
bus = pydbus.connect(address) if address else pydbus.SystemBus()
question, name = sys.argv[1:3]

request = {"prompt": f"{question}\n\n{Path(name).read_text()}", "max_tokens": 200}
fd = os.memfd_create("request", os.MFD_ALLOW_SEALING)
with os.fdopen(fd, "w", closefd=False) as file:
    json.dump(request, file)
seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)  # nobody can change it now: the agent insists on that

reply, fds = bus.con.call_with_unix_fd_list_sync(
    "org.stoker.Agent1", "/org/stoker/Agent1", "org.stoker.Inference1", "CreateJobFd",
    GLib.Variant("(ha{sv})", (0, {"format": GLib.Variant("s", "text")})), None, 0, -1,
    Gio.UnixFDList.new_from_array([fd]), None,
)  # fmt: skip
with os.fdopen(fds.steal_fds()[reply.unpack()[1]]) as answer:
    for piece in answer:
        sys.stdout.write(piece)
sys.stdout.write("\n")
