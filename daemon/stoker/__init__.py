"""Stoker keeps a language model burning on a Linux device.

The agent: supervisor, scheduler, thermal loop and D-Bus doors. The floors and
their rules are in docs/architecture.md; ``tests/test_rules.py`` holds them.
"""

__version__ = "0.1.0"
