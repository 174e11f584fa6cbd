"""Options among a command's words: anywhere, for every command of stoker-ota and stoker-model."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.models import words as model_words
from stoker_ota.cli import arguments
from stoker_ota.core.word_order import gathered

Parsers = Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]


def _leaves(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> Parsers:
    groups = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not groups:
        yield path, parser
    for group in groups:
        for name, child in group.choices.items():
            yield from _leaves(child, (*path, name))


def _value(action: argparse.Action) -> str:
    """A word that the option or the positional takes."""
    for word in (*map(str, action.choices or ()), "7", "0.5", "word", "a=q4_0"):
        try:
            action.type(word) if callable(action.type) else None
        except (ValueError, argparse.ArgumentTypeError):
            continue
        return word
    raise AssertionError(f"no word for {action.dest}")


LINES = [
    pytest.param(whole, path, parser, id=" ".join((whole.prog, *path)))
    for whole in (arguments.build(), model_words.build())
    for path, parser in _leaves(whole)
]


@pytest.mark.parametrize(("whole", "path", "parser"), LINES)
def test_options_stand_anywhere_among_a_commands_words(
    whole: argparse.ArgumentParser, path: tuple[str, ...], parser: argparse.ArgumentParser
) -> None:
    places = [action for action in parser._actions if not action.option_strings]
    others = [_value(place) for place in places]
    others += [_value(place) for place in places if place.nargs in ("*", "+")][:1]
    taken = [a for a in parser._actions if a.option_strings and a.dest not in ("help", "version")]
    options = [[a.option_strings[-1], *([] if a.nargs == 0 else [_value(a)])] for a in taken]
    groups = parser._mutually_exclusive_groups
    excluded = {a.option_strings[-1] for g in groups for a in g._group_actions[1:]}
    plain = [option for option in options if option[0] not in excluded]
    greedy = {a.option_strings[-1] for a in taken if a.nargs in ("*", "+")}
    flat = [word for option in plain for word in option]
    wanted = whole.parse_args([*path, *others, *flat])
    movable = [option for option in plain if option[0] not in greedy]
    rest = [word for option in plain if option[0] in greedy for word in option]
    for at in range(len(others) + 1):
        for cut in range(len(movable) + 1):
            early = [word for option in movable[:cut] for word in option]
            late = [word for option in movable[cut:] for word in option]
            mixed = [*path, *early, *others[:at], *late, *others[at:], *rest]
            assert whole.parse_args(mixed) == wanted, mixed


def _some() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("--flag", action="store_true")
    parser.add_argument("--value")
    parser.add_argument("--many", nargs="*")
    return parser


WORD = st.sampled_from(["--flag", "--value", "--value=x", "--many", "--", "-3", "-", "a", "b", ""])


@given(st.lists(WORD, max_size=9))
def test_no_word_is_lost_and_none_changes_what_it_is(words: list[str]) -> None:
    found = gathered(_some(), words)
    assert sorted(found) == sorted(words)
    end = words.index("--") if "--" in words else len(words)
    assert found[len(found) - len(words[end:]) :] == words[end:]
    assert gathered(_some(), found) == found


def test_an_option_without_its_value_takes_nobody_elses() -> None:
    assert gathered(_some(), ["--value", "--", "a"]) == ["--value", "--", "a"]
    assert gathered(_some(), ["a", "--value"]) == ["a", "--value"]
