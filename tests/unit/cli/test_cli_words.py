"""Words on the command line and in a chat; statuses; the pages made from them."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.api import errormap
from stoker.cli import arguments, bench, completion, fleet, main, manpage
from stoker.cli.conversation import Ask, Conversation, Leave, Say
from stoker.cli.failure import report
from stoker.cli.terminal import Terminal
from stoker.cli.verb import Verb
from stoker_client import Stoker, StokerClientError
from stoker_client.errors import from_dbus

VERBS = ["ask", "chat", "sessions", "status", "models", "tokens", "embed", "thermal", "calibrate",
         "rt", "bench", "top", "report", "update", "fleet", "version", "reload", "restart-runner",
         "completion"]  # fmt: skip


def test_the_verbs_are_these() -> None:
    assert list(completion.verbs_of(arguments.build())) == VERBS


@pytest.mark.parametrize("words", [["--json", "status"], ["status", "--json"]])
def test_global_options_stand_before_or_after_the_verb(words: list[str]) -> None:
    args = arguments.parse([*words, "--bus", "x"])
    assert (args.json, args.bus, args.no_color) == (True, "x", False)


def _words_of(verb: str) -> list[list[str]]:
    """Command lines of the verb with each of its actions and as many words as it takes."""
    parser = completion.verbs_of(arguments.build())[verb]
    places = [action for action in parser._actions if not action.option_strings]
    first = list(places[0].choices or ["one"]) if places else []
    more = [f"word{n}" for n in range(1, len(places))]
    if places and places[0].nargs == "*":
        more = ["two", "three"]
    return [[str(word), *more] for word in first] or [[]]


@pytest.mark.parametrize("verb", VERBS)
def test_global_options_stand_anywhere_among_a_verbs_words(verb: str) -> None:
    for words in _words_of(verb):
        plain = arguments.parse(["--json", "--bus", "x", verb, *words])
        for at in range(len(words) + 1):
            mixed = [verb, *words[:at], "--json", "--bus", "x", *words[at:]]
            assert arguments.parse(mixed) == plain, mixed
            apart = [verb, "--json", *words[:at], "--bus=x", *words[at:]]
            assert arguments.parse(apart) == plain, apart


def test_a_verbs_own_options_stand_anywhere_too() -> None:
    args = arguments.parse(["update", "install", "--deployment", "chat", "usb", "--force"])
    assert (args.action, args.target, args.deployment, args.force) == (
        "install", "usb", "chat", True,
    )  # fmt: skip
    args = arguments.parse(["ask", "one", "--seed", "-7", "two", "--", "--json", "-3"])
    assert (args.words, args.seed, args.json) == (["one", "two", "--json", "-3"], -7, False)


@pytest.mark.parametrize("words", [["ask", "why", "--model"], ["ask", "--model", "--", "why"]])
def test_no_other_word_becomes_the_value_that_an_option_lacks(words: list[str]) -> None:
    assert main.run(words) == 64


def test_an_option_before_the_verb_is_not_undone_by_the_verb() -> None:
    assert arguments.parse(["--bus", "x", "status"]).bus == "x"


@pytest.mark.parametrize(
    "words",
    [[], ["frob"], ["ask", "--max-tokens", "many"], ["ask", "--timeout", "0"], ["status", "x"],
     ["ask", "--max", "3", "x"]],
)  # fmt: skip
def test_wrong_words_exit_with_64(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(words) == 64
    said = capsys.readouterr()
    assert said.out == ""
    assert "usage: stokerctl" in said.err


@pytest.mark.parametrize("verb", arguments.VERBS, ids=lambda verb: verb.name)
def test_every_verb_has_help_with_examples(verb: Verb, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([verb.name, "--help"]) == 0
    said = capsys.readouterr().out
    assert verb.text in said
    assert all(example in said for example in verb.examples)


def test_help_names_every_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--help"]) == 0
    said = capsys.readouterr().out
    for row in errormap.ROWS:
        line = next(
            line for line in said.splitlines() if line.split()[:1] == [str(row.exit_status)]
        )
        assert row.code in line
    assert "130 cancelled, Ctrl-C" in said


@pytest.mark.parametrize("row", errormap.ROWS, ids=lambda row: row.code)
def test_an_error_becomes_its_exit_status_and_a_message(row: errormap.Row) -> None:
    err = io.StringIO()
    error = StokerClientError(row.code, "cannot do it: no", hint="do that")
    assert report(error, Terminal(out=io.StringIO(), err=err)) == row.exit_status
    assert err.getvalue().startswith("stokerctl: cannot do it: no\n  hint: do that\n")
    assert ("journalctl -u stoker" in err.getvalue()) == (row.code == "unavailable")


def test_an_agent_that_answers_is_not_to_be_started() -> None:
    err = io.StringIO()
    error = from_dbus("org.stoker.Error.Unavailable", "cannot reach a fleet: no broker")
    assert report(error, Terminal(out=io.StringIO(), err=err)) == 69
    assert "systemctl start" not in err.getvalue()


@pytest.mark.parametrize(
    "words",
    [["report", "--hours", "abc"], ["top", "--count", "x"], ["top", "--seconds", "nan"],
     ["bench", "--runs", "0"], ["bench", "--runs", "1.5"], ["rt", "--interval-us", "x"]],
)  # fmt: skip
def test_a_wrong_number_is_told_without_names_of_ours(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(words) == 64
    said = capsys.readouterr().err
    assert f"argument {words[1]}: {words[2]} is not " in said


@pytest.mark.parametrize(
    "read",
    [lambda path: bench.perplexity(Stoker(), path), lambda path: bench._read(str(path)),
     lambda path: fleet._certificate(str(path))],
)  # fmt: skip
def test_a_missing_file_is_named_once(read: Callable[[Path], object], tmp_path: Path) -> None:
    missing = tmp_path / "none"
    with pytest.raises(StokerClientError) as caught:
        read(missing)
    assert caught.value.message == f"cannot read {missing}: No such file or directory"


def test_an_error_for_programs_is_one_json_line() -> None:
    out, err = io.StringIO(), io.StringIO()
    report(StokerClientError("busy", "full"), Terminal(out=out, err=err, as_json=True))
    assert out.getvalue() == ('{"error": {"code": "busy", "message": "full", "retryable": true}}\n')
    assert err.getvalue() == ""


def test_version_is_the_package_version(capsys: pytest.CaptureFixture[str]) -> None:
    from stoker import __version__

    assert main.run(["version"]) == 0
    assert main.run(["--json", "version"]) == 0
    assert capsys.readouterr().out == (
        f'stokerctl {__version__}\n{{"stokerctl": "{__version__}"}}\n'
    )


def test_chat_remembers_turns_and_resets() -> None:
    talk = Conversation(system="be brief")
    assert talk.take("hello\n") == Ask()
    talk.answered("hi")
    assert talk.take("//x") == Ask()
    assert talk.messages() == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "hi"},
        {"role": "user", "content": "/x"},
    ]
    assert isinstance(talk.take("/reset"), Say)
    assert talk.messages() == [{"role": "system", "content": "be brief"}]


def test_a_question_without_an_answer_is_taken_back() -> None:
    talk = Conversation()
    talk.take("hello")
    talk.answered("")
    assert talk.messages() == []


@pytest.mark.parametrize("line", ["/quit", "/exit", " /q \n"])
def test_chat_can_be_left(line: str) -> None:
    assert Conversation().take(line) == Leave()


def test_chat_commands_talk_back() -> None:
    talk = Conversation()
    assert talk.take("   ") is None
    assert talk.take("/system  be kind ") == Say("Set.")
    assert talk.take("/system") == Say("be kind")
    said = talk.take("/frob")
    assert isinstance(said, Say)
    assert "/frob" in said.text
    for command in ("/help", "/reset", "/system", "/quit", "Ctrl-C", "Ctrl-D"):
        help_text = talk.take("/help")
        assert isinstance(help_text, Say)
        assert command in help_text.text
    assert talk.turns == []


def test_the_man_page_is_what_the_command_line_gives(root: Path) -> None:
    shipped = (root / "docs/man/stokerctl.1").read_text(encoding="utf-8")
    assert shipped == manpage.page(), "run: python -m stoker.cli.manpage > docs/man/stokerctl.1"


def test_the_completion_file_is_what_the_verb_prints(root: Path) -> None:
    shipped = (root / "docs/completion/stokerctl.bash").read_text(encoding="utf-8")
    assert shipped == completion.bash(), (
        "run: stokerctl completion > docs/completion/stokerctl.bash"
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("stokerctl ", set(VERBS)),
        ("stokerctl --json st", {"status"}),
        ("stokerctl --bus s", {"system", "session"}),
        ("stokerctl --bus session re", {"reload", "report", "restart-runner"}),
        ("stokerctl ask --max", {"--max-tokens"}),
        ("stokerctl ask --seed ", set()),
        ("stokerctl ask --class b", {"background"}),
    ],
)
def test_bash_completes(root: Path, line: str, expected: set[str]) -> None:
    script = f"""
        source docs/completion/stokerctl.bash
        read -ra COMP_WORDS <<<'{line}'
        [[ '{line}' == *' ' ]] && COMP_WORDS+=("")
        COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        $(complete -p stokerctl | sed 's/.*-F \\([^ ]*\\).*/\\1/')
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "-c", script], cwd=root, capture_output=True, text=True, check=True, timeout=20
    )
    found = {word for word in done.stdout.split() if not (line == "stokerctl " and word[0] == "-")}
    assert found == expected
