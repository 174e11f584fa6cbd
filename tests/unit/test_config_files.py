"""Configuration on disk: which files count, in which order, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stoker.drivers import config_files
from stoker.drivers.config_files import MAX_DROP_INS, MAX_FILE_BYTES, load, read
from stoker.errors import ConfigInvalid


@pytest.fixture
def main(tmp_path: Path) -> Path:
    (tmp_path / "stoker.d").mkdir()
    path = tmp_path / "stoker.toml"
    path.write_text("[runner]\nslots = 2\n")
    return path


def _drop(main: Path, name: str, text: str) -> None:
    (main.with_suffix(".d") / name).write_text(text)


def _refused(path: Path) -> str:
    with pytest.raises(ConfigInvalid) as caught:
        load(path)
    return caught.value.message


def test_drop_ins_follow_the_main_file_by_name(main: Path) -> None:
    _drop(main, "20-b.toml", "[runner]\nslots = 4\n")
    _drop(main, "10-a.toml", "[runner]\nslots = 3\nthreads = 1\n")
    config = load(main)
    assert (config.runner.slots, config.runner.threads) == (4, 1)
    assert [Path(name).name for name, _ in read(main)] == [
        "stoker.toml",
        "10-a.toml",
        "20-b.toml",
    ]


@pytest.mark.parametrize("name", [".hidden.toml", "x.toml~", "x.toml.dpkg-old", "README"])
def test_what_editors_and_package_managers_leave_does_not_count(main: Path, name: str) -> None:
    _drop(main, name, "this is no TOML")
    assert load(main).runner.slots == 2


def test_a_missing_usual_file_means_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_files, "DEFAULT_PATH", tmp_path / "stoker.toml")
    assert load().runner.slots == 4
    (tmp_path / "stoker.d").mkdir()
    (tmp_path / "stoker.d" / "a.toml").write_text("[runner]\nslots = 9\n")
    assert load().runner.slots == 9


def test_a_file_that_somebody_named_must_be_there(tmp_path: Path) -> None:
    assert _refused(tmp_path / "gone.toml").endswith("gone.toml: no such file")


def test_a_syntax_error_names_the_file_and_the_line(main: Path) -> None:
    _drop(main, "bad.toml", "[runner]\nslots = \n")
    message = _refused(main)
    assert "stoker.d/bad.toml" in message
    assert "line 2" in message


def test_bytes_that_are_no_utf8_are_named_by_line(main: Path) -> None:
    main.write_bytes(b"# fine\n# \xff\n")
    assert "not UTF-8 (at line 2)" in _refused(main)


def test_a_huge_file_is_refused(main: Path) -> None:
    main.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    assert "larger than" in _refused(main)


def test_a_fifo_in_the_place_of_a_file_does_not_hang(main: Path) -> None:
    os.mkfifo(main.with_suffix(".d") / "x.toml")
    assert "not a regular file" in _refused(main)


def test_a_folder_in_the_place_of_a_file_is_refused(main: Path) -> None:
    (main.with_suffix(".d") / "x.toml").mkdir()
    assert "not a regular file" in _refused(main)


def test_too_many_drop_ins_are_refused(main: Path) -> None:
    for number in range(MAX_DROP_INS + 1):
        _drop(main, f"{number:03}.toml", "")
    assert f"more than {MAX_DROP_INS} files" in _refused(main)


def test_deep_nesting_is_an_error_and_no_crash(main: Path) -> None:
    main.write_text("a = " + "[" * 20_000 + "]" * 20_000)
    assert "cannot read configuration" in _refused(main)


def test_an_integer_of_thousands_of_digits_is_an_error_and_no_crash(main: Path) -> None:
    main.write_text("[runner]\nslots = " + "9" * 5000)
    assert "cannot read configuration" in _refused(main)


def test_a_wrong_value_names_the_drop_in_by_its_full_path(main: Path) -> None:
    _drop(main, "x.toml", "[runner]\nslots = 'four'\n")
    assert f"{main.with_suffix('.d') / 'x.toml'}: runner.slots: expected a whole" in _refused(main)


def test_what_packages_bring_comes_first_and_gives_way(
    main: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vendor = tmp_path / "vendor"
    vendor.mkdir()
    (vendor / "50-tiny.toml").write_text(
        '[models]\ndefault = "tiny"\n[models.tiny]\npath = "/m/tiny.gguf"\n'
        "[runner]\nslots = 1\nthreads = 3\n"
    )
    monkeypatch.setattr(config_files, "VENDOR_PATH", vendor)
    monkeypatch.setattr(config_files, "DEFAULT_PATH", main)
    config = load()
    assert (config.default_model, config.runner.slots, config.runner.threads) == ("tiny", 2, 3)
    _drop(main, "own.toml", '[models]\ndefault = "own"\n[models.own]\npath = "/m/own.gguf"\n')
    config = load()
    assert config.default_model == "own"
    assert [model.name for model in config.models] == ["own", "tiny"]


def test_a_file_that_was_named_stands_alone(
    main: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vendor").mkdir()
    (tmp_path / "vendor/x.toml").write_text('[models.tiny]\npath = "/m/tiny.gguf"\n')
    monkeypatch.setattr(config_files, "VENDOR_PATH", tmp_path / "vendor")
    assert load(main).models == ()


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    file = tmp_path / "policy"
    file.write_text("[inference]\nmax_tokens = 7\n[quotas]\nqueued_jobs = 3\n")
    return file


def test_a_policy_counts_before_the_owner_s_files_key_by_key(main: Path, policy: Path) -> None:
    _drop(main, "10-a.toml", "[quotas]\nqueued_jobs = 5\n")
    config = load(main, policy)
    assert (config.inference.max_tokens, config.quotas.queued_jobs) == (7, 5)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[daemon]\nstate_dir = '/x'", "daemon.state_dir"),
        ("[updates]\ntrust = '/x'", "updates.trust"),
        ("[device]\nlabels = {ring = 'canary'}", "device.labels.ring"),
        ("[models.chat]\npath = '/x'", "models.chat.path"),
        ("[runner]\nlibraries = '/x'", "runner.libraries"),
        ("[thermal]\nactuate = false", "thermal.actuate"),
        ("[thermal]\nsysfs_root = '/x'", "thermal.sysfs_root"),
        ("thermal = {}", "thermal"),
        ("[thermal]\nwall_cx = 1", "thermal.wall_cx"),
        ("quotas_extra = 1", "quotas_extra"),
    ],
)
def test_a_policy_may_not_set_what_is_the_device_s(
    main: Path, policy: Path, text: str, key: str
) -> None:
    policy.write_text(text)
    with pytest.raises(ConfigInvalid, match="a policy may not set it") as caught:
        load(main, policy)
    assert caught.value.details["path"] == key


def test_a_policy_that_is_gone_or_out_of_range_is_named(main: Path, policy: Path) -> None:
    policy.write_text("[thermal]\nwall_c = 300.0\n")
    with pytest.raises(ConfigInvalid, match=f"{policy}: thermal.wall_c"):
        load(main, policy)
    policy.unlink()
    with pytest.raises(ConfigInvalid, match="no such file"):
        load(main, policy)
