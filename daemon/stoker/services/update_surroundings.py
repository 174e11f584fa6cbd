"""The device as the update engine asks for it: effective time, identity, files, inhibitors.

The side of ``stoker_ota``'s port ``Surroundings`` that the agent has. Time is held by
floors: when this program was built, and the newest moment that a document proved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Protocol

import stoker
from stoker_ota.core import clock
from stoker_ota.core.clock import Now
from stoker_ota.core.targeting import Device
from stoker_ota.errors import OtaError
from stoker_ota.services.store import Store


class WallClock(Protocol):
    def now(self) -> datetime: ...
    def synchronised(self) -> bool: ...
    def built(self) -> datetime: ...
    def local_hour(self) -> int: ...


class Identity(Protocol):
    def device_id(self) -> str: ...
    def labels(self) -> Mapping[str, str]: ...
    def arch(self) -> str: ...
    def system(self) -> str: ...
    def libc(self) -> str: ...
    def python_abi(self) -> str: ...
    def ram_mib(self) -> int: ...
    def free_memory_bytes(self) -> int: ...


class DeviceSurroundings:
    """See ``stoker_ota.ports.updates.Surroundings``."""

    def __init__(
        self,
        store: Store,
        wall: WallClock,
        identity: Identity,
        *,
        board: str,
        files: Callable[[], Mapping[str, str]],
        inhibited: Callable[[], str],
    ) -> None:
        self._store, self._wall, self._identity, self._board = store, wall, identity, board
        self._files, self._inhibited = files, inhibited

    def now(self) -> Now:
        kept = self._store.floors()
        return clock.effective(
            self._wall.now(),
            synchronised=self._wall.synchronised(),
            floors=(self._wall.built(), kept.time),
            told=kept.told,
        )

    def local_hour(self) -> int:
        return self._wall.local_hour()

    def device(self) -> Device:
        me = self._identity
        return Device(
            me.device_id(),
            board=self._board,
            arch=me.arch(),
            os=me.system(),
            libc=me.libc(),
            python_abi=me.python_abi(),
            ram_mib=me.ram_mib(),
            agent_version=stoker.__version__,
            labels=me.labels(),
            installed=self._installed(),
        )

    def free_memory_bytes(self) -> int:
        return self._identity.free_memory_bytes()

    def inhibited(self) -> str:
        return self._inhibited()

    def package_files(self) -> Mapping[str, str]:
        return self._files()

    def _installed(self) -> dict[str, str]:
        current = self._store.current()
        try:
            members = self._store.members(current) if current else ()
        except OtaError:
            members = ()
        return {member.name: member.version for member in members}
