#!/usr/bin/python3
"""Ask and print the whole answer with pydbus (package python3-pydbus).

STOKER_BUS_ADDRESS selects another bus than the system's.
"""

import os
import sys

import pydbus

address = os.environ.get("STOKER_BUS_ADDRESS")
bus = pydbus.connect(address) if address else pydbus.SystemBus()
agent = bus.get("org.stoker.Agent1", "/org/stoker/Agent1")

question = sys.argv[1] if len(sys.argv) > 1 else "Why is the sky blue?"
# The default reply timeout of 25 s is shorter than a small board's answer.
sys.stdout.write(agent["org.stoker.Inference1"].Ask(question, timeout=300) + "\n")

thermal = agent["org.stoker.Thermal1"]
sys.stdout.write(f"{thermal.Temperature} °C, headroom {thermal.Headroom}\n")
