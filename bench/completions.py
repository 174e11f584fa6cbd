"""docs/completion: bash scripts for the programs that print none of their own, from their parsers.

    python -m bench.completions

It writes files and decides nothing; a test holds them to the parsers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from stoker import main as stokerd
from stoker.cli.completion import script
from stoker.gateway import main as gateway
from stoker.models import words as stoker_model

FOLDER: Final = Path(__file__).resolve().parent.parent / "docs/completion"
PROGRAMS: Final = {
    "stokerd": stokerd.parser,
    "stoker-gateway": gateway.parser,
    "stoker-model": stoker_model.build,
}


def made() -> dict[str, str]:
    """File name → its text."""
    how = "made by python -m bench.completions"
    return {f"{name}.bash": script(name, how, build()) for name, build in PROGRAMS.items()}


def main() -> None:
    for name, text in made().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
