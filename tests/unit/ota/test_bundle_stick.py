"""A stick that answers with errors, as one that was pulled out does, is told as typed errors."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from stoker_ota.drivers import bundle_file
from stoker_ota.drivers.bundle_source import BundleFolder, BundleSource
from stoker_ota.errors import FileUnreadable, Unavailable
from stoker_ota.values.fetching import Wanted

WANTED = Wanted(size=4, sha256="ab" * 32, uris=("file:blobs/aa",))


@pytest.fixture(params=[errno.EIO, errno.EACCES], ids=["eio", "eacces"])
def stick(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its every stat fails."""
    path, stat = tmp_path / "stick", os.stat

    def failing(name: Any, *words: Any, **more: Any) -> os.stat_result:
        if not isinstance(name, int) and str(path) in os.fspath(name):
            raise OSError(request.param, os.strerror(request.param), str(name))
        return stat(name, *words, **more)

    monkeypatch.setattr(os, "stat", failing)
    return path


def test_whether_it_is_a_file_or_a_folder_cannot_be_told(stick: Path, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="stick"):
        bundle_file.source(stick, tmp_path)
    with pytest.raises(Unavailable, match="stick"):
        bundle_file.folder(stick)


def test_a_fetch_from_it_waits_for_it_to_come_back(stick: Path, tmp_path: Path) -> None:
    source = BundleSource(stick, tmp_path)
    with pytest.raises(Unavailable):
        source.has(WANTED.uris)
    with pytest.raises(Unavailable):
        source.fetch(WANTED, "part", lambda *_: None)


def test_a_folder_where_a_document_should_be_is_no_document(tmp_path: Path) -> None:
    (tmp_path / "catalog.json").mkdir()
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(FileUnreadable, match="no regular file"):
        BundleFolder(tmp_path).read("catalog.json", 9)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_what_is_neither_a_folder_nor_a_file_is_called_so(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for odd in (tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(FileUnreadable, match="neither a folder nor a file"):
            bundle_file.folder(odd)
