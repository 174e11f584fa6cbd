"""The loops: read, decide in the core, write, report."""
