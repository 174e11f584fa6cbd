"""What the steps in the chroot share: the Debian, and the packages that go into it."""

from __future__ import annotations

from dataclasses import dataclass

from tests.system.chroot.room import Room
from tests.system.vm.packages import Packages


@dataclass(frozen=True, slots=True)
class Site:
    room: Room
    packages: Packages
