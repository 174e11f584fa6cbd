"""Updates as a program sees them: what a bundle holds, installing it, going back.

Every method is one D-Bus call and raises StokerClientError. Looking is for everyone,
the rest for administrators.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from stoker_client.bus import AGENT_PATH, Bus, variants
from stoker_client.errors import StokerClientError

UPDATE: Final = "org.stoker.Update1"
UPDATE_JOB: Final = "org.stoker.UpdateJob1"
Facts = dict[str, Any]


class Updates:
    """``Stoker.updates``. Deployments and records have the keys of org.stoker.Update1.xml."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    def facts(self) -> Facts:
        """The properties of Update1 by name."""
        return self._bus.properties(UPDATE)

    def check(self) -> list[Facts]:
        """Look into the configured sources."""
        return list(self._bus.call_at(AGENT_PATH, UPDATE, "CheckNow", "()", (), "(aa{sv})", 600.0))

    def deployments(self) -> list[Facts]:
        """As the last check saw them."""
        return list(self._bus.call_at(AGENT_PATH, UPDATE, "ListDeployments", "()", (), "(aa{sv})"))

    def inspect(self, folder: str | Path) -> list[Facts]:
        """Judge a bundle; nothing is kept of it."""
        (found,) = self._with_folder(folder, "Inspect", "(h)", lambda: (0,), "(aa{sv})")
        return list(found)

    def install(self, folder: str | Path, deployment: str = "", *, force: bool = False) -> str:
        """Begin; the path of the job. Raises when the bundle is refused."""
        pairs = {"deployment": ("s", deployment), "force": ("b", force)}
        (job,) = self._with_folder(
            folder, "InstallBundle", "(ha{sv})", lambda: (0, variants(pairs)), "(o)"
        )
        return str(job)

    def install_listed(self, deployment: str = "", *, force: bool = False) -> str:
        """Begin with what the last ``check`` found, by name ("" = the only new one)."""
        pairs = {"force": ("b", force)}
        args = (deployment, variants(pairs))
        path = self._bus.call_at(AGENT_PATH, UPDATE, "Install", "(sa{sv})", args, "(o)", 600.0)
        return str(path)

    def rollback(self) -> str:
        """Begin to go back to the set before; the path of the job."""
        return str(self._bus.call_at(AGENT_PATH, UPDATE, "Rollback", "()", (), "(o)"))

    def confirm(self, deployment: str) -> None:
        self._bus.call_at(AGENT_PATH, UPDATE, "Confirm", "(s)", (deployment,), "()")

    def inhibit(self, who: str, why: str) -> int:
        """A descriptor: nothing is installed until it is closed."""
        _, (fd,) = self._bus.call_with_files(
            AGENT_PATH, UPDATE, "Inhibit", "(ss)", lambda: (who, why), "(h)"
        )
        return fd

    def history(self, limit: int = 100, offset: int = 0) -> list[Facts]:
        """Newest first."""
        args = (offset, limit)
        return list(self._bus.call_at(AGENT_PATH, UPDATE, "GetHistory", "(uu)", args, "(aa{sv})"))

    def job(self, path: str) -> Facts:
        """The properties of a job by name; State is running, waiting, done or failed."""
        return self._bus.properties(UPDATE_JOB, path=path)

    def cancel(self, path: str) -> None:
        self._bus.call_at(path, UPDATE_JOB, "Cancel", "()", (), "()")

    def _with_folder(
        self, folder: str | Path, method: str, signature: str, body: Any, out: str
    ) -> tuple[Any, ...]:
        try:
            fd = os.open(folder, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as fault:
            raise StokerClientError(
                "file-unreadable", f"cannot open the bundle {folder}: {fault.strerror}",
                hint="a bundle is what 'stoker-ota bundle make' or 'bundle pack' has made",
            ) from fault  # fmt: skip
        try:
            values, _ = self._bus.call_with_files(
                AGENT_PATH, UPDATE, method, signature, body, out, fd
            )
        finally:
            os.close(fd)
        return values
