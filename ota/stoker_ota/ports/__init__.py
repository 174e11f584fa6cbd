"""Protocols of what the outside must give."""
