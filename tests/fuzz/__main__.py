"""``make fuzz``: every entry for its share of the time, by atheris where it is installed, else by
hypothesis and by changing good samples. Ends with 1 and the bytes at the first bug.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from tests.fuzz import delta, documents, fetching, fleet

PARTS = (delta, documents, fetching, fleet)
ENTRIES = {name: entry for part in PARTS for name, entry in part.ENTRIES.items()}
KEEP = Path("build/fuzz")
ODD = (b"-1", b"1e999", b'"', b"\\u0000", b"\\ud800", b"null", b"{", b"9" * 30)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for all entries together")
    parser.add_argument("--seed", type=int, default=None, help="the same seed, the same inputs")
    parser.add_argument("entries", nargs="*", metavar="ENTRY", help=", ".join(ENTRIES))
    args = parser.parse_args()
    chosen = args.entries or list(ENTRIES)
    seed = args.seed if args.seed is not None else time.time_ns() & 0xFFFFFFFF
    each_s = args.seconds / len(chosen)
    known = {name: good for part in PARTS for name, good in part.samples().items()}
    atheris = importlib.util.find_spec("atheris") is not None
    _say(f"seed {seed}, {each_s:.1f} s each, by {'atheris' if atheris else 'own changes'}")
    for name in chosen:
        _say(f"== {name}")
        bad = _by_atheris(name, known.get(name, []), each_s) if atheris else _by_changes(
            ENTRIES[name], known.get(name, []), each_s, random.Random(seed), name
        )  # fmt: skip
        if bad:
            return 1
    return 0


def _by_atheris(name: str, samples: list[bytes], seconds: float) -> bool:
    """In a process of its own: libFuzzer ends the process that it runs in. What it finds new is
    kept for the next run, and so are bytes that are a bug.
    """
    corpus = KEEP / f"corpus-{name}"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(samples):
        (corpus / f"sample-{number}").write_bytes(data)
    program = (
        "import sys, atheris\n"
        "with atheris.instrument_imports(include=['stoker_ota']):\n"
        "    from tests.fuzz.__main__ import ENTRIES\n"
        f"atheris.Setup(sys.argv, ENTRIES[{name!r}])\natheris.Fuzz()\n"
    )
    words = [sys.executable, "-c", program, f"-max_total_time={max(1, round(seconds))}",
             f"-artifact_prefix={KEEP}/{name}-", str(corpus)]  # fmt: skip
    return subprocess.run(words, check=False).returncode != 0


def _by_changes(
    entry: Callable[[bytes], None], samples: list[bytes], seconds: float, chance: random.Random,
    name: str,
) -> bool:  # fmt: skip
    """Random bytes, and good samples with bytes changed, cut out, doubled or taken from another."""
    end, tries = time.monotonic() + seconds, 0
    corpus = [*samples, b""]
    while time.monotonic() < end:
        data = changed(chance, corpus)
        tries += 1
        try:
            entry(data)
        except Exception:
            KEEP.mkdir(parents=True, exist_ok=True)
            found = KEEP / f"{name}.bin"
            found.write_bytes(data)
            traceback.print_exc()
            _say(f"{name}: a bug; the bytes are in {found}")
            return True
    _say(f"{name:<12} {tries} inputs")
    return False


def changed(chance: random.Random, corpus: list[bytes]) -> bytes:
    """Another input."""
    if chance.random() < 0.1:
        return chance.randbytes(chance.randrange(512))
    data = bytearray(chance.choice(corpus))
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(5):
            case 0 if at < len(data):
                data[at] ^= 1 << chance.randrange(8)
            case 1:
                del data[at : at + chance.randrange(1, 32)]
            case 2:
                data[at:at] = data[at : at + chance.randrange(1, 64)]
            case 3:
                other = chance.choice(corpus)
                start = chance.randrange(len(other) + 1)
                data[at:at] = other[start : start + chance.randrange(1, 64)]
            case _:
                data[at:at] = chance.choice(
                    (b"-1", b"1e999", b'"', b"\\u0000", b"\\ud800", b"null", b"{", b"9" * 30)
                )
    return bytes(data)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
