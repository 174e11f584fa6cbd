"""Reads the configuration files: what packages bring, a signed policy, /etc/stoker/stoker.toml,
its stoker.d.

Bytes and TOML end here; what the keys mean is ``config/parse``. A missing main file
means the defaults, unless somebody named that file: then only it and its drop-ins count.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

from stoker.config.parse import Source, parse
from stoker.config.policy import check
from stoker.config.schema import Config
from stoker.drivers.regular_file import read_regular
from stoker.errors import ConfigInvalid

DEFAULT_PATH: Final = Path("/etc/stoker/stoker.toml")
VENDOR_PATH: Final = Path("/usr/share/stoker/stoker.d")  # stoker-model-smollm2, for one
MAX_FILE_BYTES: Final = 256 * 1024
MAX_DROP_INS: Final = 64


def load(path: Path | None = None, policy: Path | None = None) -> Config:
    """The configuration of ``path`` and its drop-ins; None = the usual place. ConfigInvalid."""
    return parse(read(path, policy))


def read(path: Path | None = None, policy: Path | None = None) -> list[Source]:
    """(file name, table) in the order in which they count; ConfigInvalid names the file."""
    main = path or DEFAULT_PATH
    sources = _in_folder(VENDOR_PATH) if path is None else []
    if policy is not None:
        sources.append(_policy(policy))
    text = _text(main)
    if text is not None:
        sources.append((str(main), _table(main, text)))
    elif path is not None:
        raise _refused(main, "no such file")
    return sources + _in_folder(main.with_suffix(".d"))


def _policy(path: Path) -> Source:
    text = _text(path)
    if text is None:
        raise _refused(path, "no such file")
    table = _table(path, text)
    check(str(path), table)
    return str(path), table


def _in_folder(folder: Path) -> list[Source]:
    sources: list[Source] = []
    for drop_in in _drop_ins(folder):
        text = _text(drop_in)
        if text is not None:  # gone since it was listed
            sources.append((str(drop_in), _table(drop_in, text)))
    return sources


def _drop_ins(folder: Path) -> list[Path]:
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise _refused(folder, _reason(error)) from error
    # Editors leave ".x.toml.swp" and "x.toml~"; package managers "x.toml.dpkg-old".
    chosen = [name for name in names if name.endswith(".toml") and not name.startswith(".")]
    if len(chosen) > MAX_DROP_INS:
        raise _refused(folder, f"more than {MAX_DROP_INS} files")
    return [folder / name for name in chosen]


def _text(path: Path) -> str | None:
    """None = absent."""
    try:
        data = read_regular(path, MAX_FILE_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _refused(path, _reason(error)) from error
    if len(data) > MAX_FILE_BYTES:
        raise _refused(path, f"larger than {MAX_FILE_BYTES} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _refused(path, f"not UTF-8 (at line {line})") from error


def _table(path: Path, text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError, or an integer of thousands of digits
        raise _refused(path, str(error)) from error
    except RecursionError as error:
        raise _refused(path, "nested too deep") from error


def _refused(path: Path, reason: str) -> ConfigInvalid:
    return ConfigInvalid(
        f"cannot read configuration: {path}: {reason}", details={"file": str(path)}
    )


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
