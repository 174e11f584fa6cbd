"""The higher version of the field test differs in what an upgrade must carry over."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from tests.system.vm.packages import MODELS, NEXT_COMMENT, NEXT_MODEL, Packages, _change
from tests.system.vm.report import VmError

FILES = {
    "etc/stoker/stoker.toml": "# keys\n",
    "etc/default/stoker": "#STOKER_CPUS=auto\n",
    "usr/lib/stoker/stoker/__init__.py": '__version__ = "1.2.3"\n',
    "usr/share/doc/stoker/copyright": "ours\n",
}


def _unpacked(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "DEBIAN").mkdir()
    listed = [name for name in files if not name.startswith("etc/")]
    (root / "DEBIAN/md5sums").write_text("".join(f"{'0' * 32}  {name}\n" for name in listed))
    return root


def test_conffiles_and_code_are_others_and_the_sums_are_right(tmp_path: Path) -> None:
    work = _unpacked(tmp_path, FILES)
    _change(work, Packages("1.2.3", (), (), frozenset()), tmp_path / "small")
    for name in ("etc/stoker/stoker.toml", "etc/default/stoker"):
        assert (work / name).read_text() == f"{FILES[name]}\n{NEXT_COMMENT}\n"
    code = work / "usr/lib/stoker/stoker/__init__.py"
    assert code.read_text() == '__version__ = "1.2.3+next"\n'
    for row in (work / "DEBIAN/md5sums").read_text().splitlines():
        digest, name = row.split(maxsplit=1)
        assert digest == hashlib.md5((work / name).read_bytes()).hexdigest()


def test_the_next_version_of_a_models_package_has_another_file_and_names_it(tmp_path: Path) -> None:
    models, named = "usr/share/stoker/models", "usr/share/stoker/stoker.d/50-big.toml"
    files = {f"{models}/Big.gguf": "big", named: 'path = "/usr/share/stoker/models/Big.gguf"\n'}
    work = _unpacked(tmp_path / "work", files)
    small = tmp_path / "small"
    small.write_text("small")
    _change(work, Packages("1.2.3", (), (), frozenset()), small)
    assert [path.name for path in (work / models).iterdir()] == [NEXT_MODEL]
    assert (work / named).read_text() == f'path = "{MODELS}/{NEXT_MODEL}"\n'
    assert f"{models}/{NEXT_MODEL}" in (work / "DEBIAN/md5sums").read_text()


def test_code_that_does_not_say_its_version_is_refused(tmp_path: Path) -> None:
    work = _unpacked(tmp_path, {**FILES, "usr/lib/stoker/stoker/__init__.py": "pass\n"})
    with pytest.raises(VmError, match="another version"):
        _change(work, Packages("1.2.3", (), (), frozenset()), tmp_path / "small")
