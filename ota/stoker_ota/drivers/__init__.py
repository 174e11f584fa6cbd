"""Files, processes and their limits."""
