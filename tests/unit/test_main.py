"""stokerd's own words: what a model named on the command line is called, when it ends."""

from __future__ import annotations

import gc
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from gi.repository import GLib

from stoker import main, wiring
from stoker.config.schema import Config
from stoker.errors import ConfigInvalid, InternalError, StokerError
from stoker.heat_parts import check_board
from stoker.units import Celsius


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


@pytest.mark.parametrize(("board", "name"), [("raspberrypi-4", "raspberrypi-4"), ("vm", "vm"),
                                            ("sim:pi4-bare", "raspberrypi-4")])  # fmt: skip
def test_board_presets_beside_the_configuration_in_use_count_first(
    root: Path, tmp_path: Path, board: str, name: str
) -> None:
    file = tmp_path / "stoker.toml"
    file.write_text(f'[thermal]\nboard = "{board}"\n')
    config = main.configuration(main.parser().parse_args(["--config", str(file)]))
    packaged = check_board(config)
    (tmp_path / "boards").mkdir()
    text = (root / "policies/boards" / f"{name}.toml").read_text()
    own = re.sub(r"^wall_c = [\d.]+", "wall_c = 61.5", text, flags=re.MULTILINE)
    (tmp_path / "boards/any.toml").write_text(own)
    assert packaged.wall_c != 61.5
    assert check_board(config) == replace(packaged, wall_c=Celsius(61.5))


def test_a_devfreq_device_that_this_machine_lacks_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "stoker.toml"
    file.write_text('[thermal]\nboard = "generic"\ndevfreq = ["no-such-gpu"]\n')
    config = main.configuration(main.parser().parse_args(["--config", str(file)]))
    with pytest.raises(ConfigInvalid, match="no-such-gpu"):
        check_board(config)


class Agent:
    """One that ends as soon as it runs."""

    def __init__(self) -> None:
        self.bus = self.notifier = self
        self.frozen = 0

    def on_lost(self, lost: Callable[[StokerError], None]) -> None:
        self._lost = lost

    def watchdog_interval_s(self) -> float:
        return 0.0

    def start(self) -> None:
        GLib.idle_add(self._lost, InternalError("cannot go on"))

    def stop(self) -> None:
        self.frozen = gc.get_freeze_count()


def test_what_a_start_made_is_never_looked_through_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look through it stopped every thread for up to 0.3 s, also the one that holds the wall."""
    agent = Agent()
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    monkeypatch.setattr(wiring, "build", lambda *_args: agent)
    before = gc.get_freeze_count()
    try:
        main._run(Config(), lambda _policy: Config(), [])
    finally:
        gc.unfreeze()
    assert agent.frozen - before > 10_000
