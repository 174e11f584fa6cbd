"""Loops: sense, decide, act, report. They know ports, never drivers."""
