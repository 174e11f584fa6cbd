"""docs/man/stoker.toml.5, the part below SETTINGS: policies/stoker.toml's comments as a man page.

    python -m bench.settings_page

It writes the page anew and decides nothing; a test holds the page to the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from stoker.cli.manpage import escape

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCE: Final = ROOT / "policies/stoker.toml"
PAGE: Final = ROOT / "docs/man/stoker.toml.5"
BEGIN: Final = '.\\" Made by python -m bench.settings_page from policies/stoker.toml, to "end".\n'
END: Final = '.\\" end\n'
_KEY: Final = re.compile(r"#([a-z_0-9]+) = (.*)")
_SECTION: Final = re.compile(r"\[([a-z_.]+)\]")


def made(text: str) -> str:
    """The part, from the configuration file's ``text``. What comes before a section is left out."""
    rows: list[str] = [BEGIN]
    comment: list[str] = []
    inside = False
    for line in text.splitlines():
        section, key = _SECTION.fullmatch(line), _KEY.fullmatch(line)
        if section:
            rows.append(f".SS [{section[1]}]\n")
            comment, inside = [], True
        elif key and inside:
            rows.append(f'.TP\n.BR {key[1]} " = {_quoted(key[2])}"\n')
            rows += [f"{escape(row)}\n" for row in comment]
            comment = []
        elif line.startswith("#"):
            comment.append(line[1:].removeprefix(" "))
        else:
            rows += _free(comment) if inside else ()
            comment = []
    rows += _free(comment)
    return "".join([*rows, END])


def _free(comment: Sequence[str]) -> Iterator[str]:
    """A comment that belongs to no key; what is indented in it stays as it is."""
    verbatim = False
    for number, row in enumerate(comment):
        indented = row.startswith("  ") or (verbatim and not row)
        if not number and not indented:
            yield ".PP\n"
        if indented != verbatim:
            yield ".PP\n.nf\n" if indented else ".fi\n.PP\n"
            verbatim = indented
        if row or verbatim:
            yield f"{escape(row)}\n"
        else:
            yield ".PP\n"
    if verbatim:
        yield ".fi\n"


def _quoted(value: str) -> str:
    return escape(value).replace('"', '""')


def page(before: str, settings: str) -> str:
    """The whole page with its part made anew."""
    head, _, rest = before.partition(BEGIN)
    return head + settings + rest.partition(END)[2]


def main() -> None:
    PAGE.write_text(page(PAGE.read_text(), made(SOURCE.read_text())))


if __name__ == "__main__":
    main()
