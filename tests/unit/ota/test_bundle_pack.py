"""What is no folder of a bundle is told for what it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker_ota.drivers import archives
from stoker_ota.errors import FileUnreadable, InvalidRequest


def test_a_folder_that_is_not_there_is_no_empty_bundle(tmp_path: Path) -> None:
    with pytest.raises(FileUnreadable, match="usb: No such file or directory"):
        archives.pack_bundle(tmp_path / "usb", tmp_path / "out", lambda *_: None)
    with pytest.raises(InvalidRequest, match="it must hold 1 to"):
        archives.pack_bundle(tmp_path, tmp_path / "out", lambda *_: None)
    assert not (tmp_path / "out").exists()
