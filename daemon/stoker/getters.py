"""Typed getters for TOML tables, JSON objects and unpacked a{sv}: those of ``stoker_ota``.

The update engine stands on its own floor and never imports the agent, so what both
need lives there.
"""

from stoker_ota.getters import Fail, Table

__all__ = ["Fail", "Table"]
