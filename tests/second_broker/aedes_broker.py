"""aedes in the place of the rig's mosquitto, for tests that any broker must pass.

It is fetched once a run with npm, pinned by package-lock.json. What it cannot show, and why,
stands in ``CANNOT`` and nowhere else.
"""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tests.integration import broker_rig

HERE = Path(__file__).parent

CANNOT: Final = {
    "test_what_was_retained_outlives_a_restart_and_is_ignored": "it keeps all in memory",
    "test_a_subscription_that_is_refused_is_told": "it needs mosquitto's plugin for such rules",
    "test_a_full_outbox_stays_within_its_bounds_and_keeps_what_is_newest":
        "MQTT 3.1.1 has no answer to a denied publish: it hangs up instead",
}  # fmt: skip
"""Tests that ``make second-broker`` skips, and why."""


class Aedes(broker_rig.Broker):
    """TLS, certificates and the ACL as mosquitto; MQTT 3.1.1; nothing in it outlives it."""

    v5 = False

    def start(self) -> None:
        config = self.folder / "aedes.json"
        config.write_text(json.dumps(self._told()))
        command = ["node", "broker.cjs", str(self.port), str(config)]
        self._process = subprocess.Popen(command, cwd=_program(), stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def _prepare(self) -> None:
        assert not self.unix
        assert not self.users

    def _told(self) -> dict[str, object]:
        if self.tls is None or self._server is None:
            return {"acl": self.acl}
        pair = self._server
        files = {"ca": self.tls.ca, "cert": pair.certificate, "key": pair.key}
        return {"acl": self.acl, "tls": {name: str(path) for name, path in files.items()}}


@functools.cache
def _program() -> Path:
    """A folder with it, until the end of this run."""
    folder = Path(tempfile.mkdtemp(prefix="stoker-aedes-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name in ("package.json", "package-lock.json", "broker.cjs"):
        shutil.copy(HERE / name, folder / name)
    subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=folder, check=True)
    return folder
