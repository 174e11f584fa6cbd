"""Doors in: D-Bus objects that authorise, parse, call one service method and convert."""
