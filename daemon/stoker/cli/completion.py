"""Bash completion scripts, made from the command lines themselves. Knows no model names."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Final

from stoker.cli import arguments

_TEMPLATE: Final = """\
# bash completion for @PROGRAM@, @MADE@.
_@FUNCTION@() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    local verb="" word skip=0 words=""
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        if ((skip)); then
            skip=0
            continue
        fi
        case $word in
        @VALUED@) skip=1 ;;
        -*) ;;
        *)
            verb=$word
            break
            ;;
        esac
    done
    case $previous in
@CHOICES@    @VALUED_REST@) return ;;
    *)
        case $verb in
        "") words="@TOP@" ;;
@VERBS@        esac
        ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -o default -F _@FUNCTION@ @PROGRAM@
"""


def bash() -> str:
    """stokerctl's; it completes verbs, options and the names of buses."""
    made, buses = "as `stokerctl completion` prints it", {"--bus": "system session"}
    return script("stokerctl", made, arguments.build(), buses)


def script(
    program: str, made: str, parser: argparse.ArgumentParser, known: Mapping[str, str] | None = None
) -> str:
    """``made``: how, for the first line. ``known``: words for options that may be others, too."""
    verbs = verbs_of(parser)
    everything = [parser, *verbs.values()]
    pairs = [(o, a) for p in everything for a in actions(p) for o in a.option_strings]
    valued = sorted({option for option, action in pairs if action.nargs != 0})
    chosen = {**(known or {}), **{o: " ".join(map(str, a.choices)) for o, a in pairs if a.choices}}
    cases = [f'        {name}) words="{" ".join(_words(sub))}" ;;\n' for name, sub in verbs.items()]
    parts = {
        "@VALUED@": " | ".join(valued),
        "@VALUED_REST@": " | ".join(o for o in valued if o not in chosen),
        "@CHOICES@": "".join(f'    {o}) words="{words}" ;;\n' for o, words in chosen.items()),
        "@TOP@": " ".join([*verbs, *_words(parser)]),
        "@VERBS@": "".join(cases),
        "@FUNCTION@": program.replace("-", "_"),
        "@PROGRAM@": program,
        "@MADE@": made,
    }
    text = _TEMPLATE
    for mark, part in parts.items():
        text = text.replace(mark, part)
    return text


def verbs_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parser of each verb, by its name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Options and arguments of one parser, without the list of verbs."""
    return [a for a in parser._actions if not isinstance(a, argparse._SubParsersAction)]


def _words(parser: argparse.ArgumentParser) -> list[str]:
    options = [o for a in actions(parser) for o in a.option_strings]
    choices = [str(c) for a in actions(parser) if not a.option_strings for c in a.choices or ()]
    return choices + options
