"""Artifacts, deltas, signatures and the store; used by the agent and by the build host."""
