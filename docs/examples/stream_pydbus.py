#!/usr/bin/python3
"""Stream an answer as it is made, with pydbus (package python3-pydbus).

pydbus' proxies pass no file descriptors, so the call is made on its connection.
STOKER_BUS_ADDRESS selects another bus than the system's.
"""

import json
import os
import sys

import pydbus
from gi.repository import GLib

address = os.environ.get("STOKER_BUS_ADDRESS")
bus = pydbus.connect(address) if address else pydbus.SystemBus()

question = sys.argv[1] if len(sys.argv) > 1 else "Why is the sky blue?"
request = {"prompt": GLib.Variant("s", question), "max_tokens": GLib.Variant("u", 200)}
reply, fds = bus.con.call_with_unix_fd_list_sync(
    "org.stoker.Agent1", "/org/stoker/Agent1", "org.stoker.Inference1", "CreateJob",
    GLib.Variant("(a{sv}a{sv})", (request, {})), None, 0, -1, None, None,
)  # fmt: skip
_job, stream = reply.unpack()

last = None
with os.fdopen(fds.steal_fds()[stream]) as lines:
    for line in lines:
        last = json.loads(line)
        sys.stdout.write(last.get("t", ""))
        sys.stdout.flush()
sys.stdout.write("\n")
if last is None or "done" not in last:  # an error record, or none: then the service died
    sys.exit(f"no answer: {last['error']['message'] if last else 'the stream was cut'}")
