"""Frozen values that travel between the floors."""
