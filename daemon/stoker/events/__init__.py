"""Frozen values that travel between the floors, one file an area."""
