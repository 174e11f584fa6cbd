"""Protocols only, one file an area: what services need from the world.

Each port has a real driver and a fake; one contract test runs on both.
"""
