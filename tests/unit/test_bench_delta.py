"""What the benchmark of deltas says of its figures."""

from __future__ import annotations

import sys

import pytest
from bench.delta import judged
from bench.delta_peers import run


@pytest.mark.parametrize(("size_mib", "verdict"), [(128.0, False), (1024.0, True)])
def test_memory_for_a_gigabyte_is_judged_only_by_a_gigabyte(size_mib: float, verdict: bool) -> None:
    rows = judged({"large.size_mib": (size_mib, "MiB"), "large.apply_peak_mib": (60.0, "MiB")})
    assert ("met" in rows["delta.large.apply_peak_mib"]) is verdict


def test_the_peak_of_a_child_is_its_own_and_not_ours() -> None:
    """The kernel counts as the peak of a child what its parent had before it."""
    ours = bytearray(100 << 20)
    ours[::4096] = b"x" * len(ours[::4096])  # resident
    assert run(("true",), {}).peak_bytes < 60 << 20
    assert len(ours) > run((sys.executable, "-c", "x = bytearray(1 << 20)"), {}).peak_bytes


def test_a_child_that_fails_ends_the_measurement() -> None:
    with pytest.raises(SystemExit, match="false ended with 1"):
        run(("false",), {})
