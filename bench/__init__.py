"""Measured, not asserted: benchmarks and the simulated boards they run on."""
