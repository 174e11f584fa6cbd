"""Reads board presets (TOML files) and what the device says of itself."""

from __future__ import annotations

import platform
import tomllib
from pathlib import Path

from stoker.core.boards import BoardFacts, BoardPreset, parse_board
from stoker.drivers.attribute import ReadText, read_attribute
from stoker.errors import ConfigInvalid


def load_boards(directory: Path, own: Path | None = None) -> tuple[BoardPreset, ...]:
    """All ``*.toml`` of the package's directory by name. Those of the site's ``own``, which may be
    absent, come before them and in place of those of the same name. Errors: ConfigInvalid naming
    file and key."""
    presets = {} if own is None else _in_folder(own)
    packaged = _in_folder(directory)
    if not packaged:
        raise ConfigInvalid(
            f"cannot read board presets: none in {directory}",
            hint="they belong to the package; policies/boards in a checkout",
        )
    return tuple((presets | packaged | presets).values())


def _in_folder(folder: Path) -> dict[str, BoardPreset]:
    presets: dict[str, BoardPreset] = {}
    # Editors leave ".x.toml.swp" and the like.
    for path in sorted(p for p in folder.glob("*.toml") if not p.name.startswith(".")):
        try:
            data = tomllib.loads(path.read_text("utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigInvalid(f"cannot read board preset {path}: {error}") from error
        preset = parse_board(data, str(path))
        if preset.name in presets:
            raise ConfigInvalid(f"cannot read board preset {path}: {preset.name} exists twice")
        presets[preset.name] = preset
    return presets


def read_board_facts(root: Path, read: ReadText = read_attribute) -> BoardFacts:
    """Device tree strings and DMI names below ``root``; absent ones read as empty."""

    def text(path: Path) -> str:
        try:
            return read(path)
        except OSError:
            return ""

    tree = text(root / "firmware" / "devicetree" / "base" / "compatible")
    dmi = root / "class" / "dmi" / "id"
    names = (text(dmi / "sys_vendor"), text(dmi / "product_name"))
    return BoardFacts(
        compatible=tuple(part for part in tree.split("\0") if part),
        dmi=" ".join(name for name in names if name),
        machine=platform.machine(),
    )
