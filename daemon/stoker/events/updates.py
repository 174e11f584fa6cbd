"""Values of updates as the doors show them: the service at one moment, and a job of it."""

from __future__ import annotations

from dataclasses import dataclass

READING = "reading"  # what the last process left is not read yet; then comes a phase
RUNNING, WAITING, DONE, FAILED = "running", "waiting", "done", "failed"


@dataclass(frozen=True, slots=True)
class UpdateSnapshot:
    """``state``: a phase of stoker_ota's machine, or READING; sets are generations, 0 = the
    package's."""

    state: str = "idle"
    deployment: str = ""
    version: int = 0
    current: int = 0
    previous: int = 0
    clock_trusted: bool = False
    frozen: bool = False  # the catalog accepted last is past its expiry
    error_code: str = ""  # of the update that ended last; "" = it went well
    error_text: str = ""


@dataclass(frozen=True, slots=True)
class UpdateJob:
    """One installation or return. ``done`` and ``total`` are bytes of the present phase."""

    id: str
    kind: str  # install | rollback
    deployment: str = ""
    version: int = 0
    state: str = RUNNING
    phase: str = ""
    done: int = 0
    total: int = 0
    eta_s: int = -1  # of the present phase; -1 = not known
    wire_bytes: int = 0  # that came over the network for it
    error_code: str = ""
    error_text: str = ""

    @property
    def over(self) -> bool:
        return self.state in (DONE, FAILED)


@dataclass(frozen=True, slots=True)
class Deployment:
    """One deployment that a bundle lists.

    ``state``: new | installed | failed | refused | absent (listed, but not in this bundle).
    """

    name: str
    version: int
    state: str
    reason: str = ""  # why it is refused
    code: str = ""
    size_bytes: int = 0  # of all that it brings, whole
    wire_bytes: int = 0  # of what would be fetched here; 0 = nothing, or not known
    source: str = ""


@dataclass(frozen=True, slots=True)
class InstallOptions:
    deployment: str = ""  # "" = the only one of the bundle
    forced: bool = False  # although it failed before or is installed; no waiting for its window
