"""A simulated board under the real thermal service, cool or at its wall."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fakes.thermal import TOP_KHZ, Rig


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


@pytest.fixture
def hot(rig: Rig) -> Rig:
    """Capped and settled at the wall."""
    rig.warm_to(78.0)
    rig.run(60)
    assert rig.limit_khz() < TOP_KHZ
    return rig
