#!/usr/bin/env python3
"""Stream an answer in asyncio with dbus-fast (pip install dbus-fast).

STOKER_BUS_ADDRESS selects another bus than the system's.
"""

import asyncio
import os
import sys

from dbus_fast import BusType, Message, MessageType, Variant
from dbus_fast.aio import MessageBus


async def main(question: str) -> None:
    address = os.environ.get("STOKER_BUS_ADDRESS")
    bus = MessageBus(address, bus_type=BusType.SYSTEM, negotiate_unix_fd=True)
    await bus.connect()
    request = {"prompt": Variant("s", question), "max_tokens": Variant("u", 200)}
    call = Message(
        destination="org.stoker.Agent1", path="/org/stoker/Agent1",
        interface="org.stoker.Inference1", member="CreateJob", signature="a{sv}a{sv}",
        body=[request, {"format": Variant("s", "text")}],
    )  # fmt: skip
    reply = await bus.call(call)
    if reply is None or reply.message_type == MessageType.ERROR:
        sys.exit(f"no answer: {reply.body[0] if reply else 'the bus is gone'}")

    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    pipe = os.fdopen(reply.unix_fds[reply.body[1]], "rb")
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    while text := await reader.read(4096):
        sys.stdout.buffer.write(text)
        sys.stdout.flush()
    bus.disconnect()  # leaving the bus earlier would cancel the job


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "Why is the sky blue?"))
