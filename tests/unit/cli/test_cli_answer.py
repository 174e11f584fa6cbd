"""An answer on its way out: what is written where, for pipes, terminals and programs."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, cast

import pytest

from stoker.cli import ask
from stoker.cli.answer import Writer, begin, options_of, stats
from stoker.cli.arguments import parse
from stoker.cli.terminal import Terminal
from stoker_client import Record, Stoker, StokerClientError, Stream

DONE = Record(
    "done",
    data={"done": {"finish_reason": "length", "usage": {"completion_tokens": 4},
                   "timings": {"first_token_ms": 1.25, "decode_tok_s": 20.06}}},
)  # fmt: skip


class _Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


class _Stream:
    def __init__(self, records: Sequence[Record | BaseException]) -> None:
        self._records = iter(records)

    def wait(self, _timeout_s: float) -> bool:
        return True

    def __iter__(self) -> _Stream:
        return self

    def __next__(self) -> Record:
        item = next(self._records)
        if isinstance(item, BaseException):
            raise item
        return item


def _write(
    records: Sequence[Record | BaseException],
    *,
    reasoning: bool = False,
    tty: bool = False,
    as_json: bool = False,
) -> tuple[str, Writer]:
    out = _Tty() if tty else io.StringIO()
    terminal = Terminal(out=out, err=io.StringIO(), as_json=as_json)
    writer = Writer(terminal, reasoning=reasoning)
    writer.write(cast(Stream, _Stream(records)), cast(Stoker, None))
    return out.getvalue(), writer


def _text(text: str) -> Record:
    return Record("text", text=text, data={"t": text})


def _thought(text: str) -> Record:
    return Record("reasoning", text=text, data={"r": text})


def test_a_pipe_gets_the_answer_and_one_newline() -> None:
    shown, writer = _write([_thought("hm"), _text("a"), _text("b"), DONE])
    assert shown == "ab\n"
    assert writer.answer.text == "ab"
    assert writer.answer.end is DONE


def test_no_second_newline_after_an_answer_that_ends_with_one() -> None:
    assert _write([_text("a\n"), DONE])[0] == "a\n"


def test_an_empty_answer_writes_nothing() -> None:
    assert _write([DONE])[0] == ""


def test_reasoning_stands_apart_where_it_is_shown() -> None:
    shown, _ = _write([_thought("hm"), _text("\n\na"), DONE], reasoning=True)
    assert shown == "hm\n\na\n"


def test_reasoning_is_dim_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    shown, _ = _write([_thought("hm"), _text("a\x1b[2J"), DONE], tty=True)
    assert shown == "\x1b[2mhm\x1b[0m\n\na[2J\n"


def test_json_passes_every_record_on_as_it_came() -> None:
    shown, writer = _write([_thought("hm"), _text("ä\n"), DONE], as_json=True)
    assert shown.splitlines()[:2] == ['{"r": "hm"}', '{"t": "ä\\n"}']
    assert len(shown.splitlines()) == 3
    assert writer.answer.text == "ä\n"


def test_an_error_ends_the_open_line_and_keeps_what_came() -> None:
    out = io.StringIO()
    writer = Writer(Terminal(out=out, err=io.StringIO()), reasoning=False)
    broken = _Stream([_text("half"), StokerClientError("engine-failed", "x")])
    with pytest.raises(StokerClientError):
        writer.write(cast(Stream, broken), cast(Stoker, None))
    assert out.getvalue() == "half\n"
    assert writer.answer.text == "half"


class _Loading:
    """Refuses until it was waited for."""

    def __init__(self, code: str = "model-loading") -> None:
        self.calls: list[str] = []
        self._code = code

    def stream(self, _question: str, **_options: Any) -> str:
        self.calls.append("stream")
        if "wait" not in self.calls:
            raise StokerClientError(self._code, "not yet")
        return "the stream"

    def wait_ready(self, _timeout_s: float, progress: Any) -> None:
        progress("loading", 0.5)
        self.calls.append("wait")


def test_a_loading_model_is_waited_for() -> None:
    stoker = _Loading()
    terminal = Terminal(out=io.StringIO(), err=io.StringIO())
    assert cast(Any, begin(cast(Stoker, stoker), "q", {}, terminal)) == "the stream"
    assert stoker.calls == ["stream", "wait", "stream"]


def test_other_refusals_are_not_tried_again() -> None:
    stoker = _Loading("busy")
    with pytest.raises(StokerClientError):
        begin(cast(Stoker, stoker), "q", {}, Terminal(out=io.StringIO(), err=io.StringIO()))
    assert stoker.calls == ["stream"]


def test_only_options_that_were_given_are_sent() -> None:
    assert options_of(parse(["ask", "x"])) == {}
    words = ["ask", "--raw", "--stop", "a", "--stop", "b", "--seed", "0", "--temperature", "0"]
    words += ["--timeout", "2.5", "--system", "", "--max-tokens", "9", "--model", "m"]
    words += ["--class", "background", "x"]
    assert options_of(parse(words)) == {
        "raw": True, "stop": ["a", "b"], "seed": 0, "temperature": 0.0, "deadline_s": 2.5,
        "system": "", "max_tokens": 9, "model": "m", "job_class": "background",
    }  # fmt: skip


def test_stats_say_what_is_known() -> None:
    assert stats(DONE) == "4 answer tokens (20.1 a second), the first after 1.2 ms, ended by length"
    assert stats(Record("other")) == "ended by nothing"


def test_statistics_tell_what_was_known_already_and_what_was_left_out() -> None:
    usage = {"prompt_tokens": 50, "cached_tokens": 40, "completion_tokens": 4}
    done = {"usage": usage, "finish_reason": "stop", "omitted_messages": 2, "shifted_tokens": 9}
    said = stats(Record("done", data={"done": done}))
    assert "50 prompt tokens, 40 of them known already, 4 answer tokens" in said
    assert "2 messages left out, 9 tokens shifted out" in said


@pytest.mark.parametrize(
    ("words", "given", "question"),
    [
        (["sum", "up:"], "body\n", "sum up:\n\nbody\n"),
        (["why?"], "", "why?"),
        (["why?"], " \n", "why?"),
        ([], "body", "body"),
        ([], "\n", ""),
    ],
)
def test_words_and_standard_input_make_the_question(
    words: list[str], given: str, question: str
) -> None:
    assert ask.compose(words, given) == question
