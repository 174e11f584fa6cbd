"""The bash completion script, made from the command line itself. Knows no model names."""

from __future__ import annotations

import argparse
from typing import Final

from stoker.cli import arguments

_TEMPLATE: Final = """\
# bash completion for stokerctl, as `stokerctl completion` prints it.
_stokerctl() {
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
    --bus) words="system session" ;;
@CHOICES@
    @VALUED_REST@) return ;;
    *)
        case $verb in
        "") words="@TOP@" ;;
@VERBS@
        esac
        ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -o default -F _stokerctl stokerctl
"""


def bash() -> str:
    """The script; it completes verbs, options and the names of buses."""
    parser = arguments.build()
    verbs = verbs_of(parser)
    everything = [parser, *verbs.values()]
    valued = sorted(
        {o for p in everything for a in actions(p) if a.nargs != 0 for o in a.option_strings}
    )
    chosen = {
        o: " ".join(map(str, a.choices))
        for p in everything
        for a in actions(p)
        for o in a.option_strings
        if a.choices
    }
    cases = [f'        {name}) words="{" ".join(_words(sub))}" ;;' for name, sub in verbs.items()]
    parts = {
        "@VALUED@": " | ".join(valued),
        "@VALUED_REST@": " | ".join(o for o in valued if o not in {"--bus", *chosen}),
        "@CHOICES@": "\n".join(f'    {o}) words="{words}" ;;' for o, words in chosen.items()),
        "@TOP@": " ".join([*verbs, *_words(parser)]),
        "@VERBS@": "\n".join(cases),
    }
    script = _TEMPLATE
    for mark, text in parts.items():
        script = script.replace(mark, text)
    return script


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
