"""Artifacts, deltas, signatures and the store; used by the agent and by the build host."""

__version__ = "0.1.0"
