"""What stoker-slice wrote is what people are told; nonsense is "unknown", never an error."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest

from stoker.drivers.cpu_share import read_cpu_share
from stoker.drivers.partition import Result
from stoker.ports.doors import CpuShare


def test_the_words_of_stoker_slice_are_read_as_written(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    for result in (
        Result("partition", "2-3", "root"),
        Result("cpuset", "1", "root invalid", "the kernel refused the partition"),
        Result("none", "", "", "not wanted"),
    ):
        file.write_text(json.dumps(asdict(result)))
        assert read_cpu_share(file) == CpuShare(result.state, result.cpus, result.reason)


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "{}", "\xff", '{"state": ""}'])
def test_nonsense_is_unknown(tmp_path: Path, text: str) -> None:
    file = tmp_path / "state.json"
    file.write_bytes(text.encode("latin-1"))
    assert read_cpu_share(file) == CpuShare()


def test_what_is_no_file_is_unknown(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "absent", tmp_path, tmp_path / "fifo"):
        assert read_cpu_share(path) == CpuShare()
