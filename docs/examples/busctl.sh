#!/bin/sh
# Ask from a shell with busctl (package systemd). Usage: busctl.sh [QUESTION]
# STOKER_BUS_ADDRESS selects another bus than the system's.
set -eu
bus="--system"
[ -z "${STOKER_BUS_ADDRESS:-}" ] || bus="--address=$STOKER_BUS_ADDRESS"
agent="org.stoker.Agent1 /org/stoker/Agent1"

# busctl waits 25 s by default; a small board may need minutes for a whole answer.
busctl "$bus" --timeout=300 call $agent org.stoker.Inference1 Ask s "${1:-Why is the sky blue?}"

busctl "$bus" get-property $agent org.stoker.Inference1 State Model
busctl "$bus" get-property $agent org.stoker.Thermal1 Temperature Headroom
busctl "$bus" --json=short call $agent org.stoker.Inference1 ListModels
