"""What a recipe may hold, as an example: for the man page and docs/ota.md. A test parses it."""

from __future__ import annotations

from typing import Final

EXAMPLE: Final = """\
deployment_id = "chat"             # a name in the catalog; it never vanishes again
version = 2                        # of this deployment, counted up
issued_at = "2026-01-31T12:00:00Z" # left out: now, and --days until it
expires = "2026-05-01T12:00:00Z"
min_agent_version = "0.1"
depends = {}                       # name = "least version" of what must be installed
chunk_size = 61440                 # bytes; what is fetched in pieces, 0 = nothing is

[targets]                          # what is left out is for all
boards = ["raspberrypi5"]
arch = ["aarch64"]
libc = ["glibc"]
os = ["debian"]
python_abi = ["cpython-311"]       # for a runtime
min_ram_mib = 3500
min_free_bytes = 0                 # beside what the update itself takes
labels = {ring = "canary"}

[rollout]                          # a growing part of the devices, drawn by their ids
start = "2026-02-01T00:00:00Z"
duration_s = 86400
salt = "chat-2"
max_fraction = 0.1

[window]                           # local hours in which to change over
from_hour = 2
to_hour = 5
deadline = "2026-02-08T00:00:00Z"

[network]
allow_full = true                  # the whole file if deltas fail
allow_metered = false
max_rate = 0                       # bytes a second; 0 = no limit

[health]
startup_s = 120                    # for a set to load and answer
min_tok_s = 4.0
max_temp_c = 78.0
soak_s = 600
confirm = "auto"                   # or "dbus": somebody must say yes

[[health.probes]]                  # stoker-ota probe make
text = "Water boils at a hundred degrees."
min_nats = 2.1
max_nats = 3.4

[[health.canaries]]                # the answer must hold one of the words
prompt = "What is the capital of France?"
expect = ["Paris"]

[[artifacts]]                      # kind: model, adapter, runtime or policy
kind = "model"
name = "chat"
version = "2.0"
release_counter = 2                # devices never go below it again
file = "v2.gguf"                   # relative to the recipe
deltas = ["v1-v2.delta"]
sources = ["file:blobs/{sha256}"]  # or https: and mqtt: addresses; {sha256} is filled in

[[artifacts]]
kind = "adapter"
name = "terse"
version = "1.3"
release_counter = 1
file = "terse-lora.gguf"
base = "v2.gguf"                   # the model that it was made for
"""
