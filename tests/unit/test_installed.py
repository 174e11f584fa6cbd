"""What an installed set means after a start: its files, its policy, and what makes it unusable."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from stoker.config.schema import AdapterConfig, Config, ModelConfig
from stoker.core.installed_set import InstalledSet, served
from stoker.errors import ConfigInvalid
from stoker.installed import Installed
from stoker_ota.core import archive
from stoker_ota.drivers.disk import RealDisk
from stoker_ota.services.store import Store
from stoker_ota.values.deployment import Journal, Member


class Device:
    """A state directory with one committed set of the given artifacts."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.model = home / "configured.gguf"
        self.model.write_bytes(b"the configured model")
        plain = Config(models=(ModelConfig("chat", str(self.model)),), default_model="chat")
        self.config = replace(plain, daemon=replace(plain.daemon, state_dir=str(home / "state")))
        self.read: list[Path | None] = []
        self.contradicts = False
        root = home / "state/ota"
        root.mkdir(parents=True)
        self.store, self.disk = Store(RealDisk(root)), RealDisk(root)

    def commit(self, **files: tuple[str, bytes, str]) -> None:
        """By name: kind, content, and of an adapter its base."""
        members = []
        self.disk.make_folder("staging/x")
        for name, (kind, data, base) in files.items():
            digest = hashlib.sha256(data).hexdigest()
            self.disk.write(f"staging/x/{name}", data)
            self.store.adopt(f"staging/x/{name}", digest)
            members.append(Member(kind, name, "1", digest, base=base))
        number = self.store.make_generation(b"{}", members)
        self.store.activate(number, previous=0)
        self.store.save_journal(Journal())

    def installed(self) -> Installed:
        return Installed(self.config, self._read)

    def _read(self, policy: Path | None) -> Config:
        self.read.append(policy)
        if policy is not None and self.contradicts:
            raise ConfigInvalid("cannot read configuration: they contradict each other")
        level = policy.read_text() if policy is not None else "info"
        return replace(self.config, daemon=replace(self.config.daemon, log_level=level))


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return Device(tmp_path)


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _tar() -> bytes:
    return archive.header("libllama.so", 4) + b"code" + archive.padding(4) + archive.END


def test_every_kind_is_found_under_its_content(device: Device) -> None:
    base = _sha(b"v2")
    device.commit(
        chat=("model", b"v2", ""), terse=("adapter", b"lora", base),
        engine=("runtime", _tar(), ""), site=("policy", b"debug", ""),
    )  # fmt: skip
    made = device.installed()
    assert Path(made.now.models["chat"]).read_bytes() == b"v2"
    (adapter,) = made.now.adapters
    assert (adapter.model, Path(adapter.path).read_bytes()) == ("chat", b"lora")
    assert (Path(made.now.libraries) / "libllama.so").read_bytes() == b"code"
    assert made.config.daemon.log_level == "debug"
    whole = made.served()
    assert whole.runner.libraries == made.now.libraries
    assert whole.adapters == (adapter,)


def test_an_adapter_alone_belongs_to_the_configured_model_of_its_hash(device: Device) -> None:
    device.commit(terse=("adapter", b"lora", _sha(b"the configured model")))
    assert [item.model for item in device.installed().now.adapters] == ["chat"]


def test_when_another_model_is_configured_since_the_package_s_own_set_serves(
    device: Device, caplog: pytest.LogCaptureFixture
) -> None:
    device.commit(terse=("adapter", b"lora", _sha(b"the configured model")))
    device.model.write_bytes(b"another model")
    assert device.installed().now == InstalledSet()
    assert "was made for is not here" in caplog.text


@pytest.mark.parametrize("gone", ["generations/1/engine.d/libllama.so", "policy", "adapter"])
def test_a_set_of_which_a_part_is_gone_does_not_serve(device: Device, gone: str) -> None:
    base = _sha(b"the configured model")
    device.commit(
        terse=("adapter", b"lora", base), engine=("runtime", _tar(), ""), site=("policy", b"x", "")
    )
    content = {"policy": b"x", "adapter": b"lora"}.get(gone)
    path = device.store.object_path(_sha(content)) if content else gone
    (device.home / "state/ota" / path).unlink()
    made = device.installed()
    assert made.now == InstalledSet()
    assert made.config == device.config


def test_a_policy_that_the_owner_s_files_contradict_is_left_out(
    device: Device, caplog: pytest.LogCaptureFixture
) -> None:
    device.commit(site=("policy", b"debug", ""))
    device.contradicts = True
    made = device.installed()
    assert made.config == device.config
    assert "not in use" in caplog.text
    assert made.now.generation == 1


def test_files_are_read_again_only_for_another_policy_or_a_reload(device: Device) -> None:
    made = device.installed()
    assert made.read(InstalledSet(2, {"chat": "/v2"})) is made.config
    assert device.read == []
    made.read(made.now)
    policy = device.home / "p"
    policy.write_text("warning")
    assert made.read(InstalledSet(2, policy=str(policy))).daemon.log_level == "warning"
    assert device.read == [None, policy]


def test_a_set_s_adapters_go_before_configured_ones_of_their_name() -> None:
    mine, theirs = AdapterConfig("a", "/mine", "m"), AdapterConfig("a", "/set", "m")
    other = AdapterConfig("b", "/b", "m")
    config = Config(models=(ModelConfig("m", "/m"),), adapters=(mine, other))
    assert served(config, InstalledSet(1, {}, (theirs,))).adapters == (theirs, other)
