"""Whether a manifest is for this device, and whether now is the time. Pure.

Who takes part in a rollout is drawn by a hash of the device's id and the rollout's salt:
the same device always draws the same number, nobody has to keep lists.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from stoker_ota.core.clock import Now
from stoker_ota.core.manifest import Manifest, Rollout, Window
from stoker_ota.errors import Dependency, WrongTarget

_DRAW_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Device:
    """What targets are compared with. ``installed``: name → version of what is here."""

    device_id: str
    board: str = ""
    arch: str = ""
    os: str = ""
    libc: str = ""
    python_abi: str = ""
    ram_mib: int = 0
    agent_version: str = "0"
    labels: Mapping[str, str] = field(default_factory=dict)
    installed: Mapping[str, str] = field(default_factory=dict)


def check(manifest: Manifest, device: Device) -> None:
    """Raises WrongTarget, Dependency: this device never installs it."""
    targets = manifest.targets
    for what, allowed, mine in (
        ("board", targets.boards, device.board),
        ("architecture", targets.arch, device.arch),
        ("system", targets.os, device.os),
        ("C library", targets.libc, device.libc),
        ("Python", targets.python_abi, device.python_abi),
    ):
        if allowed and mine not in allowed:
            raise WrongTarget(
                f"cannot install {manifest.deployment_id}: it is for {what} "
                f"{' or '.join(allowed)}, this is {mine or 'unknown'}"
            )
    for key, value in targets.labels.items():
        if device.labels.get(key) != value:
            raise WrongTarget(
                f"cannot install {manifest.deployment_id}: it is for devices labelled {key}={value}"
            )
    if device.ram_mib < targets.min_ram_mib:
        raise WrongTarget(
            f"cannot install {manifest.deployment_id}: it needs {targets.min_ram_mib} MiB of "
            f"memory, this device has {device.ram_mib}"
        )
    if version_key(device.agent_version) < version_key(manifest.min_agent_version):
        raise Dependency(
            f"cannot install {manifest.deployment_id}: it needs agent "
            f"{manifest.min_agent_version}, this is {device.agent_version}",
            hint="upgrade the package stoker with apt first",
        )
    for name, least in manifest.depends.items():
        have = device.installed.get(name)
        if have is None or version_key(have) < version_key(least):
            raise Dependency(
                f"cannot install {manifest.deployment_id}: it needs {name} {least}, "
                f"{'nothing of that name' if have is None else have} is installed"
            )


def check_bases(manifest: Manifest, package_files: Callable[[], Collection[str]]) -> None:
    """Each adapter's model is the set's or one that this device is configured with, whose hashes
    ``package_files`` knows; they may take a while. Raises Dependency.
    """
    models = {item.sha256 for item in manifest.artifacts if item.kind == "model"}
    for item in manifest.artifacts:
        if item.kind != "adapter" or item.base_sha256 in models:
            continue
        if models or item.base_sha256 not in package_files():
            raise Dependency(
                f"cannot install {manifest.deployment_id}: adapter {item.name} was made for a "
                f"model that is not {'in the set' if models else 'here'} "
                f"({item.base_sha256[:12]}…)"
            )


def not_drawn(manifest: Manifest, device: Device, now: Now) -> str:
    """Why fetching has to wait, in words; "" when it may begin."""
    if drawn(manifest.rollout, device.device_id, now.moment):
        return ""
    return "the rollout has not reached this device"


def outside_window(manifest: Manifest, now: Now, local_hour: int) -> str:
    """Why activating has to wait; "" when it may go on. ``local_hour`` 0..23."""
    if window_open(manifest.window, local_hour, now.moment):
        return ""
    return f"it waits for {manifest.window.from_hour}:00 to {manifest.window.to_hour}:00"


def drawn(rollout: Rollout, device_id: str, moment: datetime) -> bool:
    """Whether the growing fraction of the rollout includes this device."""
    draw = drawn_number(device_id, rollout.salt)
    if draw >= rollout.max_fraction:
        return False
    if rollout.start is None:
        return True
    if moment < rollout.start:
        return False
    end = rollout.start + timedelta(seconds=rollout.duration_s)
    if moment >= end:
        return True
    return draw <= rollout.max_fraction * ((moment - rollout.start) / (end - rollout.start))


def window_open(window: Window, local_hour: int, moment: datetime) -> bool:
    if window.from_hour == window.to_hour % 24:
        return True
    if window.deadline is not None and moment >= window.deadline:
        return True
    if window.from_hour < window.to_hour:
        return window.from_hour <= local_hour < window.to_hour
    return local_hour >= window.from_hour or local_hour < window.to_hour


def version_key(text: str) -> tuple[tuple[int, int | str], ...]:
    """Versions in order: numbers as numbers, words after numbers (1.10 > 1.9 > 1.9rc1 > 1.9a)."""
    parts: list[tuple[int, int | str]] = []
    for piece in text.replace("-", ".").replace("+", ".").split("."):
        word = piece.lstrip("0123456789")
        number = piece[: len(piece) - len(word)]
        if number:
            parts.append((1, int(number)))
        if word:
            parts.append((0, word))
    while parts and parts[-1] == (1, 0):
        parts.pop()
    parts.append((1, -1) if not parts or parts[-1][0] == 1 else (0, ""))
    return tuple(parts)


def drawn_number(device_id: str, salt: str) -> float:
    """0 ≤ draw < 1, evenly."""
    digest = hashlib.sha256(f"{device_id}\0{salt}".encode()).digest()
    return int.from_bytes(digest[:_DRAW_BYTES], "big") / (1 << (8 * _DRAW_BYTES))
