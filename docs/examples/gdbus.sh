#!/bin/sh
# Ask from a shell with gdbus (package libglib2.0-bin). Usage: gdbus.sh [QUESTION]
# STOKER_BUS_ADDRESS selects another bus than the system's.
set -eu
call() {
    method=$1
    shift
    if [ -n "${STOKER_BUS_ADDRESS:-}" ]; then
        set -- --address "$STOKER_BUS_ADDRESS" "$@"
    else
        set -- --system "$@"
    fi
    gdbus call --timeout 300 --dest org.stoker.Agent1 --object-path /org/stoker/Agent1 \
        --method "$method" "$@"
}

call org.stoker.Inference1.Ask "${1:-Why is the sky blue?}"
call org.stoker.Inference1.CountTokens "${1:-Why is the sky blue?}"
call org.freedesktop.DBus.Properties.Get org.stoker.Thermal1 Headroom
call org.stoker.Agent1.Status
