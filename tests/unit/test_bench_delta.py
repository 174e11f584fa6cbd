"""What the benchmark of deltas says of its figures."""

from __future__ import annotations

import pytest
from bench.delta import judged


@pytest.mark.parametrize(("size_mib", "verdict"), [(128.0, False), (1024.0, True)])
def test_memory_for_a_gigabyte_is_judged_only_by_a_gigabyte(size_mib: float, verdict: bool) -> None:
    rows = judged({"large.size_mib": (size_mib, "MiB"), "large.apply_peak_mib": (60.0, "MiB")})
    assert ("met" in rows["delta.large.apply_peak_mib"]) is verdict
