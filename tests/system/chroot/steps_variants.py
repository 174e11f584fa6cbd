"""Step: which build of llama.cpp a processor gets. Of this machine's own architecture one process
is enough, run by qemu-user; answers come from the real processor.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from tests.system.chroot.site import Site
from tests.system.vm.report import expect
from tests.system.vm.table import Step

_QEMU: Final = Path("/usr/bin/qemu-x86_64-static")
# What qemu can play; it has no AVX-512, so the variants above haswell are not tried.
PROCESSORS: Final = {
    "qemu64": "x64",
    "Nehalem": "sse42",
    "SandyBridge": "sandybridge",
    "Haswell": "haswell",
    "max": "haswell",
}
_LOAD: Final = """\
import sys
from pathlib import Path
sys.path.insert(0, "/usr/lib/stoker")
from stoker.runner import backends
print(backends.load(Path("/usr/lib/stoker/llama_cpp/lib")))
"""


def variants(site: Site) -> str:
    shutil.copy(_QEMU, site.room.root / "qemu")
    try:
        for cpu, wanted in PROCESSORS.items():
            command = ["/qemu", "-cpu", cpu, "/usr/bin/python3", "-I", "-c", _LOAD]
            found = site.room.run(command, user="nobody", timeout_s=180).must()
            expect(found.text == wanted, f"a {cpu} gets {found.text}, not {wanted}")
    finally:
        (site.room.root / "qemu").unlink()
    return ", ".join(f"{cpu} {variant}" for cpu, variant in PROCESSORS.items())


VARIANTS: Step[Site] = Step(
    "variants", "each processor gets the build that fits it", variants, ("install",)
)
