"""A child that talks: what it says arrives, and one that hangs, dies or is cancelled is ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker_ota.drivers.told_child import Child, Told, number
from stoker_ota.errors import (
    Cancelled,
    InternalError,
    NoMemory,
    NoSpace,
    OtaError,
    Unavailable,
)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path / "told_program.py"


def run(
    program: Path, text: str, cancel_after: int = -1, **options: object
) -> tuple[Told, list[Told]]:
    program.write_text(text)
    heard: list[Told] = []
    values: dict[str, object] = {"silence_s": 20.0, **options}
    child = Child("told_program", "do it", **values)  # type: ignore[arg-type]
    done = child.run(("word",), heard.append, lambda: len(heard) == cancel_after, b"the request\n")
    return done, heard


def test_lines_words_and_the_request_go_through(program: Path) -> None:
    text = (
        "import sys, json\n"
        "print(json.dumps({'done': 1}), flush=True)\n"
        "print('no json')\n"
        "print('[' * 100_000)\n"
        "print(json.dumps({'word': sys.argv[1], 'request': sys.stdin.readline()}))\n"
    )
    done, heard = run(program, text)
    assert done == {"word": "word", "request": "the request\n"}
    assert [number(line, "done") for line in heard] == [1, 0, 0, 0]


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("import sys; print('{\"error\": {\"code\": \"no-space\", \"message\": \"full\"}}');"
         " sys.exit(1)", NoSpace, "full"),
        ("import sys; sys.exit(3)", InternalError, "status 3"),
        ("print('')", InternalError, "status 0"),
        ("import os; os.kill(os.getpid(), 9)", NoMemory, "signal 9"),
        ("import sys; print('{\"error\": {\"code\": \"strange\"}}'); sys.exit(1)",
         InternalError, "do it"),
    ],
)  # fmt: skip
def test_every_end_has_its_error(
    program: Path, text: str, error: type[OtaError], message: str
) -> None:
    with pytest.raises(error, match=message):
        run(program, text)


def test_a_silent_child_is_ended_with_the_error_of_its_kind(program: Path) -> None:
    text = "import time\nprint('{}', flush=True)\ntime.sleep(60)\n"
    with pytest.raises(Unavailable, match="hangs"):
        run(program, text, silence_s=0.3, hung=Unavailable)


@pytest.mark.parametrize("grace_s", [0.0, 10.0])
def test_a_cancelled_child_may_clean_up_if_it_has_time(
    program: Path, tmp_path: Path, grace_s: float
) -> None:
    note = tmp_path / "note"
    text = (
        "import signal, sys, time, pathlib\n"
        f"def end(*_): pathlib.Path({str(note)!r}).touch(); sys.exit(1)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('{}', flush=True)\ntime.sleep(60)\n"
    )
    with pytest.raises(Cancelled):
        run(program, text, cancel_after=1, grace_s=grace_s)
    assert note.exists() == (grace_s > 0)
