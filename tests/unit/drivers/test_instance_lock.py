"""A second stokerd stays out of the first one's directory; a dead one leaves no lock."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stoker.drivers.instance_lock import InstanceLock
from stoker.errors import Unavailable


def test_the_second_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    first, second = InstanceLock(tmp_path / "made"), InstanceLock(tmp_path / "made")
    first.take()
    with pytest.raises(Unavailable, match="another stokerd"):
        second.take()
    first.release()
    first.release()
    second.take()
    second.release()


@pytest.mark.parametrize("kind", ["file", "fifo", "link"])
def test_a_place_that_cannot_be_locked_is_said_and_no_obstacle(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "run"
    if kind == "file":
        place.touch()
    else:
        place.mkdir()
        lock = place / "stokerd.lock"
        os.mkfifo(lock) if kind == "fifo" else lock.symlink_to("/dev/null")
    lock_ = InstanceLock(place)
    lock_.take()
    lock_.release()
    assert kind == "fifo" or "cannot lock" in caplog.text
