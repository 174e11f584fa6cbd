"""stoker-model: from the command line to a study, and from an error to an exit status."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import psutil

from stoker.api.errormap import exit_status
from stoker.cli.bars import Bar
from stoker.cli.terminal import Terminal
from stoker.errors import InvalidRequest, StokerError, StorageFailed
from stoker.models import study, tables, words
from stoker.models.workshop import Workshop

USAGE: Final = 64
INTERRUPT: Final = 130
PROBE_BYTES: Final = 16 << 10


def entry() -> int:
    """What the program ``stoker-model`` calls."""
    return run(sys.argv[1:])


def run(given: Sequence[str]) -> int:
    """One command line; the exit status."""
    terminal = Terminal()
    try:
        args = words.build().parse_args(given)
        terminal = Terminal(as_json=args.json)
        with _saying(terminal) as say:
            found = DOES[args.verb](args, say)
        _show(args, found, terminal)
    except SystemExit as leaving:  # argparse
        return 0 if leaving.code in (0, None) else USAGE
    except StokerError as error:
        return _fail(error, terminal)
    except KeyboardInterrupt:
        return INTERRUPT
    return 0


def _inspect(args: Namespace, say: Saying) -> dict[str, Any]:
    found = _shop(args, say).do("inspect", model=_name(args.model))
    memory = psutil.virtual_memory()
    total = args.memory or memory.total
    free = args.memory or memory.available
    return {"model": str(args.model), **tables.inspected(found, args.board or "", total, free)}


def _quantize(args: Namespace, say: Saying) -> dict[str, Any]:
    _check_target(args)
    if (args.importance or args.budget) and args.text is None:
        raise InvalidRequest("cannot quantise: --importance and --budget need a --text")
    shop = _shop(args, say)
    with tempfile.TemporaryDirectory(prefix="stoker-model-") as folder:
        importance = ""
        if args.importance:
            text = study.read_text(args.text, args.tokens)
            importance = str(Path(folder) / "importance.npz")
            say("watching activations", 0.0)
            shop.do("importance", model=_name(args.source), text=text.words, tokens=text.tokens,
                    target=importance)  # fmt: skip
        if args.budget:
            text = study.read_text(args.text, args.tokens)
            wanted = study.Mix(args.low, args.high, args.budget)
            return study.mix(shop, args.source, args.target, text, wanted, importance, say)
        say("quantising", 0.0)
        return shop.do("make", source=_name(args.source), target=str(args.target), type=args.type,
                       types=args.tensor, importance=importance)  # fmt: skip


def _prune(args: Namespace, say: Saying) -> dict[str, Any]:
    _check_target(args)
    shop = _shop(args, say)
    if args.layers:
        made = shop.do("make", source=_name(args.source), target=str(args.target), type=args.type,
                       prune=list(args.layers))  # fmt: skip
        return {**made, "layers": list(args.layers)}
    if args.text is None:
        raise InvalidRequest("cannot prune: --count needs a --text")
    text = study.read_text(args.text, args.tokens)
    return study.prune(shop, args.source, args.target, text, args.count, args.type, say)


def _evaluate(args: Namespace, say: Saying) -> dict[str, Any]:
    shop = _shop(args, say)
    text = study.read_text(args.text, args.tokens)
    rows = study.compare(shop, args.models, text, args.reference, args.keep, say)
    if args.plot:
        from stoker.models import plot

        plot.save(rows, args.plot)
    written = _figures(args, shop, say) if args.probes else []
    return {"variants": rows, "figures": written}


def _figures(args: Namespace, shop: Workshop, say: Saying) -> list[str]:
    """One file of JSON lines a variant, as 'stoker-ota probe make' reads them."""
    lines = study.read_text(args.probes, 0).words.splitlines()
    texts = [line.strip() for line in lines if line.strip()]
    if any(len(text.encode()) > PROBE_BYTES for text in texts):
        raise InvalidRequest(f"cannot use {args.probes}: a text is longer than {PROBE_BYTES} bytes")
    folder = args.figures or Path()
    out = []
    for number, model in enumerate(args.models):
        say(f"probes of {model.name}", number / len(args.models))
        found = shop.do("score", model=_name(model), texts=texts)["figures"]
        path = folder / f"{model.stem}.figures.json"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(json.dumps(one) + "\n" for one in found), encoding="utf-8")
        except OSError as error:
            raise StorageFailed(f"cannot write {path}: {error.strerror}") from error
        out.append(str(path))
    return out


DOES: Final[dict[str, Callable[[Namespace, Saying], dict[str, Any]]]] = {
    "inspect": _inspect, "quantize": _quantize, "prune": _prune, "evaluate": _evaluate,
}  # fmt: skip


def _show(args: Namespace, found: dict[str, Any], terminal: Terminal) -> None:
    if terminal.as_json:
        terminal.json(found)
        return
    for line in tables.lines(args.verb, found, getattr(args, "target", None)):
        terminal.line(terminal.clean(line))


class Saying:
    """One bar for a study and for the step under way: ``say`` names a step, ``within`` moves it."""

    def __init__(self, bar: Bar) -> None:
        self._bar, self._title, self._part = bar, "", 0.0

    def __call__(self, title: str, part: float) -> None:
        self._title, self._part = title, part
        self._bar.update(title, part)

    def within(self, part: float) -> None:
        self._bar.update(f"{self._title}: {part:.0%}", max(self._part, 0.0) or part)


@contextlib.contextmanager
def _saying(terminal: Terminal) -> Iterator[Saying]:
    bar = Bar(shown=terminal.err_is_tty and not terminal.as_json)
    try:
        yield Saying(bar)
    finally:
        bar.close()


def _shop(args: Namespace, say: Saying) -> Workshop:
    return Workshop(args.threads or len(os.sched_getaffinity(0)), say.within)


def _check_target(args: Namespace) -> None:
    if args.target.exists() and args.target.samefile(args.source):
        raise InvalidRequest(f"cannot write {args.target}: it is the source")
    if not args.target.parent.is_dir():
        raise InvalidRequest(f"cannot write {args.target}: there is no such folder")


def _name(path: Path) -> str:
    return str(path)


def _fail(error: StokerError, terminal: Terminal) -> int:
    if terminal.as_json:
        terminal.json({"error": error.record()})
    terminal.note(
        f"stoker-model: {error.message}" + (f"\nhint: {error.hint}" if error.hint else "")
    )
    return exit_status(error)


if __name__ == "__main__":
    sys.exit(entry())
