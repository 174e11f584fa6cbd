"""The bash completion script, made from the command line itself."""

from __future__ import annotations

import argparse
from typing import Final

from stoker_ota.cli import arguments

_TEMPLATE: Final = """\
# bash completion for stoker-ota, as `stoker-ota completion` prints it.
_stoker_ota() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    local path="" word words=""
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case "$path $word" in
        @PATHS@) path="${path:+$path }$word" ;;
        esac
    done
    case $previous in
@CHOICES@
    @FILES@) return ;;
    *)
        case $path in
@WORDS@
        esac
        ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -o default -F _stoker_ota stoker-ota
"""


def bash() -> str:
    """The script; it completes commands, options and their choices, and else files."""
    found = commands_of(arguments.build())
    valued = sorted({o for p in found.values() for a in actions(p) if a.nargs != 0
                     for o in a.option_strings})  # fmt: skip
    chosen = {
        option: " ".join(map(str, action.choices))
        for parser in found.values()
        for action in actions(parser)
        for option in action.option_strings
        if action.choices
    }
    cases = [f'        "{path}") words="{" ".join(_words(p))}" ;;' for path, p in found.items()]
    paths = [f'"{" ".join(path.split()[:-1])} {path.split()[-1]}"' for path in found if path]
    parts = {
        "@PATHS@": " | ".join(paths),
        "@CHOICES@": "\n".join(f'    {o}) words="{words}" ;;' for o, words in chosen.items()),
        "@FILES@": " | ".join(o for o in valued if o not in chosen),
        "@WORDS@": "\n".join(cases),
    }
    script = _TEMPLATE
    for mark, text in parts.items():
        script = script.replace(mark, text)
    return script


def commands_of(
    parser: argparse.ArgumentParser, path: str = ""
) -> dict[str, argparse.ArgumentParser]:
    """Every parser by its words: "", "delta", "delta make"…"""
    found = {path: parser}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                found |= commands_of(sub, f"{path} {name}".strip())
    return found


def actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Options and arguments of one parser, without the list of commands."""
    return [a for a in parser._actions if not isinstance(a, argparse._SubParsersAction)]


def _words(parser: argparse.ArgumentParser) -> list[str]:
    names = [
        name
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for name in action.choices
    ]
    options = [o for a in actions(parser) for o in a.option_strings]
    choices = [str(c) for a in actions(parser) if not a.option_strings for c in a.choices or ()]
    return [*names, *choices, *options]
