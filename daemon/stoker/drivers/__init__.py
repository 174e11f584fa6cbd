"""Doors out: thin adapters to the kernel, processes and files. No decisions here."""
