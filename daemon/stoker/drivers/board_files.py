"""Reads board presets (TOML files) and what the device says of itself."""

from __future__ import annotations

import platform
import tomllib
from pathlib import Path

from stoker.core.boards import BoardFacts, BoardPreset, parse_board
from stoker.drivers.attribute import ReadText, read_attribute
from stoker.errors import ConfigInvalid


def load_boards(directory: Path) -> tuple[BoardPreset, ...]:
    """All ``*.toml`` of the directory by name. Errors: ConfigInvalid naming file and key."""
    presets: dict[str, BoardPreset] = {}
    for path in sorted(directory.glob("*.toml")):
        try:
            data = tomllib.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigInvalid(f"cannot read board preset {path.name}: {error}") from error
        preset = parse_board(data, path.name)
        if preset.name in presets:
            raise ConfigInvalid(f"cannot read board preset {path.name}: {preset.name} exists twice")
        presets[preset.name] = preset
    if not presets:
        raise ConfigInvalid(
            f"cannot read board presets: none in {directory}",
            hint="they belong to the package; policies/boards in a checkout",
        )
    return tuple(presets.values())


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
