"""Runtime, adapter and policy by signed updates on the real runner; bad ones leave no trace."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.fakes import lora_file
from tests.fakes.default_model import default_model
from tests.fakes.update_bundles import Operator, Part, ota, renamed_model
from tests.integration import update_rig as rig
from tests.integration.stokerd_rig import Stokerd, Stream, stokerd, until

from stoker import errors
from stoker.api import contract
from stoker.tour.private_bus import PrivateBus
from stoker_client import Stoker
from stoker_client.errors import StokerClientError

pytestmark = [pytest.mark.bus, pytest.mark.real, pytest.mark.timeout(300)]
TALK = "Tell me about rivers."
POLICY = "[inference]\nmax_tokens = 3\n[thermal]\nwall_c = 61.0\n"


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Operator:
    made = Operator.found(tmp_path_factory.mktemp("operator"))
    lora_file.write(made.home / "odd.gguf", 1, size=0.3)
    lora_file.write(made.home / "odder.gguf", 2, size=0.4)
    lora_file.write(made.home / "alien.gguf", 3, arch="qwen2")
    (made.home / "policy.toml").write_text(POLICY)
    (made.home / "absurd.toml").write_text(POLICY.replace("61.0", "300.0"))
    (made.home / "forbidden.toml").write_text('[daemon]\nstate_dir = "/tmp"\n')
    return made


@pytest.fixture
def daemon(
    private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str], operator: Operator
) -> Iterator[Stokerd]:
    with stokerd(private_bus, tmp_path, child_env, config=_config(operator)) as running:
        running.wait_ready()
        yield running


def _config(operator: Operator) -> str:
    return rig.config(default_model(), operator) + "[sampling]\ntemperature = 0.0\n"


def _install(daemon: Stokerd, bundle: Path) -> tuple[str, str]:
    last = rig.end(daemon, rig.install(daemon, bundle), 120)
    rig.rest(daemon)
    code, text = last["Error"]
    return str(code), str(text)


def _return(daemon: Stokerd) -> None:
    job = str(daemon.client.call(contract.UPDATE, "Rollback"))
    assert rig.end(daemon, job, 120)["State"] == "done", daemon.text()
    rig.rest(daemon)


def _say(daemon: Stokerd, **keys: Any) -> str:
    keys = keys if keys.pop("all", False) else {"max_tokens": 12, **keys}
    with Stoker(daemon.bus.address) as stoker:
        found = stoker.stream(TALK, **keys)
        return "".join(record.text for record in found if record.kind == "text")


def _engine(daemon: Stokerd) -> str:
    """The folder that the runner has llama.cpp from."""
    maps = {row.path for row in daemon.runner().memory_maps()}
    (found,) = {str(Path(path).parent) for path in maps if path.endswith("/libllama.so")}
    return found


def _libraries(folder: Path) -> Path:
    spec = importlib.util.find_spec("llama_cpp")
    assert spec is not None
    assert spec.origin is not None
    folder.mkdir()
    for file in (Path(spec.origin).parent / "lib").glob("*.so"):
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


def _runtime(operator: Operator, folder: Path, name: str) -> Part:
    ota("runtime", "pack", str(folder), "-o", f"{name}.tar", home=operator.home)
    return Part("runtime", "engine", operator.home / f"{name}.tar")


@pytest.fixture(scope="module")
def engines(operator: Operator) -> list[Path]:
    """A whole one, one whose code crashes, one that is no library."""
    bundles = []
    for number, name in enumerate(("good", "crash", "text"), 1):
        folder = _libraries(operator.home / name)
        file = folder / "libllama.so"
        data = bytearray(file.read_bytes())
        if name == "crash":
            third = len(data) // 3
            data[third : 2 * third] = bytes(third)
        if name == "text":
            data = bytearray(b"not ELF")
        file.write_bytes(data)
        part = _runtime(operator, folder, name)
        bundles.append(operator.publish(number, part, name="engine"))
    return bundles


def test_other_libraries_run_in_the_runner_alone_outlive_a_restart_and_go_back(
    daemon: Stokerd,
    engines: list[Path],
    operator: Operator,
    private_bus: PrivateBus,
    tmp_path: Path,
    child_env: dict[str, str],
) -> None:
    own, words = _engine(daemon), _say(daemon)
    _, fd = daemon.client.create_job("Tell a long story.")
    stream = Stream(fd)
    stream.until_text()
    assert _install(daemon, engines[0]) == ("", "")
    assert any("done" in record for record in stream.rest())  # through the change of the engine
    installed = _engine(daemon)
    assert installed == str(tmp_path / "state/ota/generations/1/engine.d")
    mine = {row.path for row in psutil.Process(daemon.process.pid).memory_maps()}
    assert not [path for path in mine if "/ota/" in path]
    assert _say(daemon) == words
    daemon.stop()
    with stokerd(private_bus, tmp_path, child_env, config=_config(operator)) as again:
        again.wait_ready()
        assert _engine(again) == installed
        _return(again)
        assert _engine(again) == own
        assert _say(again) == words


@pytest.mark.parametrize("bad", [1, 2])
def test_libraries_that_crash_or_are_none_never_serve(
    daemon: Stokerd, engines: list[Path], bad: int
) -> None:
    own, runner = _engine(daemon), daemon.status()["runner_pid"]
    code, text = _install(daemon, engines[bad])
    assert code == "unhealthy", text
    assert daemon.status()["runner_pid"] == runner
    assert _engine(daemon) == own
    assert _say(daemon)
    assert rig.facts(daemon)["Current"] == 0
    models = daemon.client.call(contract.INFERENCE, "ListModels")
    assert [model["state"] for model in models] == ["ready"]  # the model is not to blame


def test_an_adapter_comes_hot_for_the_configured_model_and_goes_again(
    daemon: Stokerd, operator: Operator
) -> None:
    base, runner = default_model(), daemon.status()["runner_pid"]
    odd = {"lora": {"terse": 1.0}}
    before = _say(daemon)
    one = operator.publish(1, Part("adapter", "terse", operator.home / "odd.gguf", base))
    two = operator.publish(2, Part("adapter", "terse", operator.home / "odder.gguf", base))
    assert _install(daemon, one) == ("", "")
    first = _say(daemon, **odd)
    assert first != before
    assert _say(daemon) == before
    assert _install(daemon, two) == ("", "")
    assert _say(daemon, **odd) not in (before, first)
    (model,) = daemon.client.call(contract.INFERENCE, "ListModels")
    assert model["adapters"] == ["terse"]
    _return(daemon)
    assert _say(daemon, **odd) == first
    assert daemon.status()["runner_pid"] == runner  # nothing was loaded again
    daemon.client.call(contract.AGENT, "RestartRunner")
    daemon.wait_ready()
    assert _say(daemon, **odd) == first


def test_an_adapter_of_another_model_is_refused(daemon: Stokerd, operator: Operator) -> None:
    stranger = operator.home / "policy.toml"  # any file that is no model here
    part = Part("adapter", "terse", operator.home / "odd.gguf", stranger)
    with pytest.raises(errors.Dependency, match="made for a model"):
        rig.install(daemon, operator.publish(1, part, name="other"))
    assert rig.facts(daemon)["State"] == "idle"


def test_an_adapter_that_does_not_fit_its_model_leaves_no_trace(
    daemon: Stokerd, operator: Operator
) -> None:
    runner = daemon.status()["runner_pid"]
    part = Part("adapter", "terse", operator.home / "alien.gguf", default_model())
    code, text = _install(daemon, operator.publish(1, part, name="alien"))
    assert code == "unhealthy"
    assert "adapter" in text
    assert daemon.status()["runner_pid"] == runner
    assert _say(daemon)
    with pytest.raises(StokerClientError, match="none"):
        _say(daemon, lora={"terse": 1.0})


def test_a_policy_acts_without_a_restart_and_goes_with_its_set(
    daemon: Stokerd, operator: Operator
) -> None:
    def wall() -> float:
        return float(daemon.client.get(contract.THERMAL, "Wall"))

    runner, before = daemon.status()["runner_pid"], wall()
    bundle = operator.publish(1, Part("policy", "site", operator.home / "policy.toml"), name="pol")
    assert _install(daemon, bundle) == ("", "")
    assert len(_say(daemon, all=True).split()) <= 3
    until(lambda: wall() == 61.0, "the wall of the policy")
    daemon.config_file.write_text(_config(operator) + "[inference]\nmax_tokens = 9\n")
    daemon.client.call(contract.AGENT, "Reload")
    assert len(_say(daemon, all=True).split()) > 3  # the owner's file wins
    _return(daemon)
    until(lambda: wall() == before, "the wall of before")
    assert daemon.status()["runner_pid"] == runner


@pytest.mark.parametrize(("policy", "said"), [("absurd", "300"), ("forbidden", "state_dir")])
def test_a_mixed_set_with_a_bad_policy_brings_neither_model_nor_adapter(
    daemon: Stokerd, operator: Operator, policy: str, said: str
) -> None:
    served = rig.served_path(daemon)
    code, text = _install(daemon, _mixed(operator, policy))
    assert (code, said in text) == ("unhealthy", True), text
    assert rig.served_path(daemon) == served
    with pytest.raises(StokerClientError, match="none"):
        _say(daemon, lora={"terse": 1.0})


def test_a_mixed_set_comes_and_goes_as_a_whole(daemon: Stokerd, operator: Operator) -> None:
    served, plain = rig.served_path(daemon), _say(daemon)
    assert _install(daemon, _mixed(operator, "policy")) == ("", "")
    assert rig.served_path(daemon) != served
    assert _say(daemon, lora={"terse": 1.0}) != plain
    assert len(_say(daemon, all=True).split()) <= 3
    _return(daemon)
    assert rig.served_path(daemon) == served
    assert _say(daemon) == plain
    with pytest.raises(StokerClientError, match="none"):
        _say(daemon, lora={"terse": 1.0})


def _mixed(operator: Operator, policy: str) -> Path:
    model = operator.home / f"{policy}-v2"
    if not model.exists():
        renamed_model(default_model(), model, "second")
    return operator.publish(
        1,
        Part("model", "chat", model),
        Part("adapter", "terse", operator.home / "odd.gguf", model),
        Part("policy", "site", operator.home / f"{policy}.toml"),
        name=f"mixed-{policy}",
    )
