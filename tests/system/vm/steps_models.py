"""Steps: another version of the model's package, and a device without that package.

From here on a small model serves, in both machines: an emulated processor loads the package's in
half a minute, this one in seconds. It is the one that bundles.py's begin with: random words.
"""

from __future__ import annotations

import json
from typing import Final

from tests.system.vm.bundles import NAME
from tests.system.vm.field import USER, Field
from tests.system.vm.packages import MODELS, NEXT_MODEL
from tests.system.vm.report import expect
from tests.system.vm.steps_service import edit, settle
from tests.system.vm.table import Step

MEDIA: Final = "/media/stoker/updates"
FILE: Final = f"/var/lib/stoker/models/{NAME}.gguf"
_DROP_IN: Final = "/etc/stoker/stoker.d/50-own-model.toml"
_SETTINGS: Final = f"""\
[models]
default = "{NAME}"
[models.{NAME}]
path = "{FILE}"
context_tokens = 512
"""


def model_upgrade(field: Field) -> str:
    """dpkg tells stoker (a trigger): the next answer is the new file's, and the old one is gone."""
    guest, packages = field.guest, field.packages
    (name,) = (name for name in packages.names if name.startswith("stoker-model"))
    daemon, before = field.daemon_pid(), _path(field)
    deb = f"/media/stoker/models/{name}_{packages.next_version}_all.deb"
    # Not by apt, which would upgrade what else comes of the same source along with it.
    done = guest.run(["dpkg", "-i", deb], timeout_s=400).must()
    version = guest.text(["dpkg-query", "-W", "-f", "${Version}", name])
    expect(version == packages.next_version, f"the version is {version}")
    expect(field.daemon_pid() not in {0, daemon}, "nobody told stokerd of another model")
    seconds = field.ready()
    field.answers()
    after = _path(field)
    expect(after == f"{MODELS}/{NEXT_MODEL}", f"{after} serves")
    guest.run(["test", "-e", before]).must_fail("the old file is gone")
    maps = guest.text(f"grep -c 'gguf (deleted)' /proc/{field.runner_pid()}/maps || true")
    expect(int(maps) == 0, "the runner holds a file that is gone")
    return f"{version} in {done.seconds:.0f} s, ready after {seconds:.0f} s; {before} is gone"


def _path(field: Field) -> str:
    """Of the model that serves."""
    told = json.loads(field.guest.text(["stokerctl", "--json", "models"], user=USER))
    (path,) = (model["path"] for model in told if model["state"] == "ready")
    return str(path)


def put(field: Field) -> None:
    """For the next start."""
    field.guest.run(["install", "-m", "644", f"{MEDIA}/{NAME}.gguf", FILE]).must()
    field.write_setting(_DROP_IN, _SETTINGS)


def small(field: Field) -> str:
    """Without what is recommended: no model comes along, and the service waits for one."""
    installed = settle(field, "--no-install-recommends")
    edit(field)
    put(field)
    field.restart()
    return f"{installed}; with a model ready after {_serves(field):.0f} s"


def _serves(field: Field) -> float:
    seconds = field.ready()
    field.answers()
    model = field.status()["model"]
    expect(model == NAME, f"{model} serves, not {NAME}")
    return seconds


STEPS: tuple[Step[Field], ...] = (
    Step("model-upgrade", "another version of the model's package is served at once", model_upgrade,
         ("configure",)),
)  # fmt: skip
SMALL: Step[Field] = Step(
    "small", "installed without a model; one of one's own serves", small, ("no-network",), "second"
)
