"""docs/completion: bash scripts for the programs that print none of their own, from their parsers.

    python -m bench.completions

It writes files and decides nothing; a test holds them to the parsers.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from stoker import main as stokerd
from stoker.cli.completion import actions, verbs_of
from stoker.gateway import main as gateway
from stoker.models import words as stoker_model

FOLDER: Final = Path(__file__).resolve().parent.parent / "docs/completion"
PROGRAMS: Final = {
    "stokerd": stokerd.parser,
    "stoker-gateway": gateway.parser,
    "stoker-model": stoker_model.build,
}
_TEMPLATE: Final = """\
# bash completion for @PROGRAM@, made by python -m bench.completions.
_@FUNCTION@() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} words=""
    case $previous in
@VALUES@
    *)
        case ${COMP_WORDS[1]} in
@VERBS@
        *) words="@TOP@" ;;
        esac
        ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -o default -F _@FUNCTION@ @PROGRAM@
"""


def script(program: str, parser: argparse.ArgumentParser) -> str:
    """Verbs, options and what these may be; of an option that takes anything else, files."""
    verbs = verbs_of(parser)
    cases = [f'        {name}) words="{_options(sub)}" ;;\n' for name, sub in verbs.items()]
    parts = {
        "@VALUES@\n": "".join(_values([parser, *verbs.values()])),
        "@VERBS@\n": "".join(cases),
        "@TOP@": " ".join([*verbs, _options(parser)]),
        "@FUNCTION@": program.replace("-", "_"),
        "@PROGRAM@": program,
    }
    text = _TEMPLATE
    for mark, part in parts.items():
        text = text.replace(mark, part)
    return text


def _options(parser: argparse.ArgumentParser) -> str:
    return " ".join(o for action in actions(parser) for o in action.option_strings)


def _values(parsers: list[argparse.ArgumentParser]) -> Iterator[str]:
    """What may follow an option that takes a value."""
    free: set[str] = set()
    chosen: dict[str, str] = {}
    for action in (a for parser in parsers for a in actions(parser) if a.nargs != 0):
        for option in action.option_strings:
            if action.choices:
                chosen[option] = " ".join(map(str, action.choices))
            else:
                free.add(option)
    for option, words in sorted(chosen.items()):
        yield f'    {option}) words="{words}" ;;\n'
    if rest := sorted(free - set(chosen)):
        yield f"    {' | '.join(rest)}) return ;;\n"


def made() -> dict[str, str]:
    """File name → its text."""
    return {f"{name}.bash": script(name, build()) for name, build in PROGRAMS.items()}


def main() -> None:
    for name, text in made().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
