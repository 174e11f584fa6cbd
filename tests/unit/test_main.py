"""stokerd's own words: what a model named on the command line is called, when it ends."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from gi.repository import GLib

from stoker import main
from stoker.errors import InternalError, StokerError


def test_a_thread_that_dies_ends_the_service(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    lost: list[StokerError] = []
    main.end_with_any_thread(lost.append)

    def fault() -> None:
        raise ZeroDivisionError

    thread = threading.Thread(target=fault, name="inference")
    thread.start()
    thread.join()
    assert lost == []  # the main loop decides, not the thread
    context = GLib.MainContext.default()
    while not lost:
        context.iteration(True)
    assert isinstance(lost[0], InternalError)
    assert "inference" in lost[0].message
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/m/tiny.Q4_1.gguf", "tiny.Q4_1"),
        ("/m/a b\nc.gguf", "a-b-c"),
        ("/m/\udcff.gguf", "model"),
        ("/m/ü.gguf", "model"),
        ("/", "model"),
        ("/m/" + "x" * 100, "x" * 64),
    ],
)
def test_a_model_of_the_command_line_gets_a_name_that_configuration_would_take(
    path: str, name: str, tmp_path: Path
) -> None:
    file = tmp_path / "stoker.toml"
    file.touch()
    words = ["--config", str(file), "--model", path]
    config = main.configuration(main.parser().parse_args(words))
    assert (config.default_model, config.models[0].name) == (name, name)
    assert config.models[0].path == path
