"""Updates: what the door may ask (``UpdateDoor``), and what does the work (``Updater``).

The Updater belongs to one thread and may block for minutes; the door answers from the last
published snapshot or with a future, and never blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol

from stoker.events.updates import Deployment, InstallOptions, UpdateJob, UpdateSnapshot

Record = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class UpdateListener:
    """Called from the service's thread; must only hand over."""

    changed: Callable[[UpdateSnapshot], None] = field(default=lambda _snapshot: None)


class UpdateDoor(Protocol):
    """Any thread. Descriptors of folders are the service's from the call on."""

    def listen(self, listener: UpdateListener) -> None: ...

    def snapshot(self) -> UpdateSnapshot: ...

    def check(self) -> Future[Sequence[Deployment]]:
        """Look into the configured sources."""

    def inspect(self, folder_fd: int) -> Future[Sequence[Deployment]]:
        """What is in a bundle; nothing is kept of it."""

    def deployments(self) -> Sequence[Deployment]:
        """As the last check saw them."""

    def install(self, folder_fd: int, options: InstallOptions) -> Future[UpdateJob]:
        """Done when the bundle was judged and the work begins. Busy while another one runs."""

    def install_listed(self, options: InstallOptions) -> Future[UpdateJob]:
        """What the last look found at a source, by its name ("" = the only new one)."""

    def renew_trust(self, steps: Sequence[bytes]) -> Future[int]:
        """Walk trust documents that follow ours; the version that is trusted now."""

    def rollback(self) -> Future[UpdateJob]:
        """To the previous set. Busy while something else runs."""

    def confirm(self, deployment: str) -> Future[None]:
        """The word that a tested set waits for."""

    def cancel(self, job: str) -> None: ...

    def job(self, job: str) -> UpdateJob | None: ...

    @property
    def current_job(self) -> str:
        """The id of the one under way, or ""."""

    def history(self, offset: int, limit: int) -> Future[Sequence[Record]]:
        """Newest first."""

    def inhibit(self, who: str, why: str) -> int:
        """A number for ``release``. Busy when there are too many."""

    def release(self, number: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Reports:
    """What an Updater tells and asks while it works; all from its own thread."""

    phase: Callable[[str, str, str], None]  # phase, code, reason
    progress: Callable[[int, int], None]
    wire: Callable[[int], None]  # bytes that the present fetch took from the network
    inhibited: Callable[[], str]
    cancelled: Callable[[], bool]  # raises when the service stops


class Updater(Protocol):
    """The update engine with its disk. One thread; raises StokerError."""

    def begin(self) -> None:
        """After every start: ``step`` goes on where the last process stopped."""

    def install(self, folder: str, options: InstallOptions) -> tuple[str, int]:
        """Judge a bundle in a folder or at an address, and offer it; (deployment, version)."""

    def renew_trust(self, steps: Sequence[bytes]) -> int:
        """Accept each in turn; the version that is trusted now."""

    def rollback(self) -> None: ...

    def confirm(self, deployment: str) -> None: ...

    def cancel(self) -> bool: ...

    def step(self) -> bool:
        """One action, which may take minutes; False = nothing is to be done now."""

    def retry(self) -> None:
        """The time of a wait is over."""

    @property
    def waiting(self) -> bool: ...

    @property
    def phase(self) -> str: ...

    @property
    def replaceable(self) -> bool:
        """Nothing is under way that another installation could disturb."""

    def snapshot(self) -> UpdateSnapshot: ...

    def inspect(self, folder: str, *, keep: bool) -> Sequence[Deployment]:
        """``keep``: remember what was accepted."""

    def history(self) -> Sequence[Record]:
        """Oldest first; the one method for other threads."""
