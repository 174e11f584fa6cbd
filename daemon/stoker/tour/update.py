"""The update step: a signed delta that is kept, a changed one that is refused, and a damaged
model whose signature is right, which its probes find out.

The operator makes them (``operator``); the device is asked with stokerctl.
"""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path

from stoker.errors import EngineFailed
from stoker.tour.operator import NAME, Operator
from stoker.tour.screen import Screen
from stoker_client import Stoker


class Update:
    """``model`` is the one in use."""

    def __init__(self, screen: Screen, stoker: Stoker, operator: Operator, model: Path) -> None:
        self._screen, self._stoker, self._model = screen, stoker, model
        self._operator = operator

    @staticmethod
    def config(folder: Path, model: Path) -> str:
        """Lines of stoker.toml with which stokerd trusts the operator; [updates] is their last
        table.
        """
        quoted = json.dumps(str(model))
        trust = json.dumps(str(Operator.trust(folder)))
        return f"[models.{NAME}]\npath = {quoted}\n[updates]\ntrust = {trust}\n"

    def show(self) -> None:
        say = self._screen.say
        say("An operator makes keys, a delta from the model in use to a new one, and a bundle.")
        with self._operator.at_work():
            self._operator.found()
            first = self._operator.bundle(1, self._model, shown=True)
            second = self._operator.bundle(2, self._operator.home / "v1.gguf", shown=False)
        say("\nThe device: verified, applied, tried beside the model that serves, and kept:")
        self._install(first, 0)
        say("\nOne byte of the bundle is changed on its way:")
        self._install(self._changed(second), 77)
        say("\nThe same bundle unchanged. Its model has holes, but its signature is right:")
        self._install(second, 69)
        facts = self._stoker.updates.facts()
        if facts["Current"] != 1:
            raise EngineFailed(f"cannot show a return: set {facts['Current']} is current")
        self._screen.fact("in use", "set 1, as before the last two; it served all the time")
        self._need(self._screen.run(["stokerctl", "update", "history", "--limit", "4"], 20), 0)

    def _changed(self, bundle: Path) -> Path:
        bad = self._operator.home / "bundle-changed"
        shutil.copytree(bundle, bad)
        path = bad / "manifests" / f"{NAME}.json"
        envelope = json.loads(path.read_bytes())
        payload = bytearray(base64.b64decode(envelope["payload"]))
        payload[len(payload) // 2] ^= 1  # of what was signed, not of what lies around it
        envelope["payload"] = base64.b64encode(payload).decode()
        path.write_text(json.dumps(envelope, separators=(",", ":")))
        return bad

    def _install(self, bundle: Path, status: int) -> None:
        command = ["stokerctl", "update", "install", str(bundle)]
        self._need(self._screen.run(command, 60, may_fail=True), status)

    def _need(self, status: int, wanted: int) -> None:
        if status != wanted:
            raise EngineFailed(f"cannot show the update: status {status} instead of {wanted}")
