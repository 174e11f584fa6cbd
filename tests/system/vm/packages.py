"""The packages under test, a second version made from them, and the disk that carries both.

The disk is a flat apt repository beside the harness's files, so that apt in the guest, which has
no network, installs as a person would.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.system.vm.report import VmError

NEXT_SUFFIX = "+next"
NEXT_MODEL = "Next.gguf"
MODELS = "/usr/share/stoker/models"
NEXT_COMMENT = "# A comment that the next version brings."
SMALL_MODEL = "updates/field.gguf"  # of the harness's files
_SPARE_BYTES = 24 << 20


@dataclass(frozen=True, slots=True)
class Packages:
    """``files``: one .deb each, of one version; ``names`` = their package names."""

    version: str
    names: tuple[str, ...]
    files: tuple[Path, ...]
    depends: frozenset[str]  # what must come from Debian

    @property
    def next_version(self) -> str:
        return self.version + NEXT_SUFFIX


def field_of(deb: Path, name: str) -> str:
    asked = subprocess.run(
        ["dpkg-deb", "-f", deb, name], check=True, capture_output=True, text=True
    )
    return asked.stdout.strip()


def find(folder: Path, architecture: str = "amd64") -> Packages:
    """The newest version in ``folder``, for that kind of processor."""
    found: dict[str, dict[str, Path]] = {}
    for deb in sorted(folder.glob("*.deb"), key=lambda path: path.stat().st_mtime):
        if field_of(deb, "Architecture") in {"all", architecture} and "-dbgsym_" not in deb.name:
            found.setdefault(field_of(deb, "Version"), {})[field_of(deb, "Package")] = deb
    versions = [version for version, debs in found.items() if "stoker" in debs]
    if not versions:
        raise VmError(f"cannot find the stoker package in {folder}: run make deb")
    debs = found[versions[-1]]
    ours = frozenset(debs)
    depends = frozenset(name for deb in debs.values() for name in _depends(deb)) - ours
    return Packages(
        versions[-1], tuple(sorted(debs)), tuple(debs[n] for n in sorted(debs)), depends
    )


def _depends(deb: Path) -> set[str]:
    """Names that must be there; of alternatives the first, as apt would choose."""
    names: set[str] = set()
    for kind in ("Depends", "Pre-Depends"):
        for clause in field_of(deb, kind).split(","):
            match = re.match(r"\s*([a-z0-9][a-z0-9+.-]*)", clause)
            if match:
                names.add(match[1])
    return names


def carry(packages: Packages, harness: Mapping[str, Path], cache: Path) -> Path:
    """The disk image with both versions and the harness's files; cached by content."""
    digest = hashlib.sha256(" ".join(harness).encode())
    for part in (*packages.files, *harness.values(), Path(__file__)):
        digest.update(part.name.encode() + hashlib.sha256(part.read_bytes()).digest())
    disk = cache / "vm" / f"media-{digest.hexdigest()[:16]}.img"
    if disk.is_file():
        disk.touch()
        return disk
    disk.parent.mkdir(parents=True, exist_ok=True)
    for old in sorted(disk.parent.glob("media-*.img"), key=lambda path: path.stat().st_mtime)[:-3]:
        old.unlink()
    with tempfile.TemporaryDirectory(prefix="media.", dir=disk.parent) as made:
        root = Path(made) / "root"
        debs = root / "debs"
        later = root / "models"
        debs.mkdir(parents=True)
        later.mkdir()
        for deb in packages.files:
            shutil.copy(deb, debs)
            # Models keep their own pace: apt sees no higher version of one.
            model = field_of(deb, "Package").startswith("stoker-model")
            _bump(deb, later if model else debs, Path(made), packages, harness[SMALL_MODEL])
        for name, part in harness.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(part, root / name)
        (debs / "Packages").write_text("\n".join(_entry(deb) for deb in sorted(debs.iterdir())))
        _pack(root, disk)
    return disk


def _bump(deb: Path, debs: Path, made: Path, packages: Packages, model: Path) -> None:
    """The same package with a higher version, and a conffile that differs from the old one's, or
    this model in the place of the old one, under another name.
    """
    name = field_of(deb, "Package")
    work = made / f"bump-{name}"
    subprocess.run(["dpkg-deb", "-R", deb, work], check=True)
    control = work / "DEBIAN/control"
    text = control.read_text().replace(f"Version: {packages.version}", "Version: @next@")
    text = text.replace(f"(= {packages.version})", f"(= {packages.next_version})")
    control.write_text(text.replace("@next@", packages.next_version))
    _change(work, packages, model)
    target = debs / f"{name}_{packages.next_version}_{field_of(deb, 'Architecture')}.deb"
    subprocess.run(
        ["dpkg-deb", "-b", "-Zgzip", "-z1", "--root-owner-group", work, target],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    shutil.rmtree(work)


def _change(work: Path, packages: Packages, model: Path) -> None:
    """Really another version: a conffile that people edit, one that they do not, code, a model."""
    for name in ("etc/stoker/stoker.toml", "etc/default/stoker"):
        conffile = work / name
        if conffile.is_file():
            conffile.write_text(conffile.read_text() + f"\n{NEXT_COMMENT}\n")
    for old in (work / MODELS[1:]).glob("*.gguf"):
        for named in (work / "usr/share/stoker/stoker.d").iterdir():
            named.write_text(named.read_text().replace(old.name, NEXT_MODEL))
        old.unlink()
        shutil.copy(model, work / MODELS[1:] / NEXT_MODEL)
    code = work / "usr/lib/stoker/stoker/__init__.py"
    if code.is_file():
        text = code.read_text()
        changed = text.replace(f'"{packages.version}"', f'"{packages.next_version}"')
        if changed == text:
            raise VmError(f"cannot make another version: {code} does not say the version")
        code.write_text(changed)
    sums = work / "DEBIAN/md5sums"
    rows = [
        str(path.relative_to(work))
        for path in sorted(work.rglob("*"))
        if path.is_file()
        and not path.is_symlink()
        and path.parts[len(work.parts)] not in {"DEBIAN", "etc"}
    ]
    sums.write_text(
        "".join(f"{hashlib.md5((work / row).read_bytes()).hexdigest()}  {row}\n" for row in rows)
    )


def _entry(deb: Path) -> str:
    control = subprocess.run(["dpkg-deb", "-f", deb], check=True, capture_output=True, text=True)
    data = deb.read_bytes()
    return (
        f"{control.stdout.rstrip()}\nFilename: ./{deb.name}\nSize: {len(data)}\n"
        f"SHA256: {hashlib.sha256(data).hexdigest()}\n"
    )


def _pack(root: Path, disk: Path) -> None:
    size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    blocks = (size + size // 16 + _SPARE_BYTES) // 4096
    made = disk.with_suffix(".new")
    made.unlink(missing_ok=True)
    subprocess.run(
        ["mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0", "-d", root, made,
         str(blocks)],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    made.rename(disk)
