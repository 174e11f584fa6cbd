"""What a fleet may set, and that a set which the configuration refuses changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.system import MemoryStateFile

from stoker.config.parse import parse
from stoker.errors import Busy, ConfigInvalid, InvalidRequest
from stoker.services import fleet_policy
from stoker.services.fleet_policy import PolicyKeeper


class Rig:
    """``reload`` reads as the agent does."""

    def __init__(self) -> None:
        self.file = MemoryStateFile()
        self.keeper = PolicyKeeper(self.file, self.reload)

    def reload(self) -> Future[tuple[str, ...]]:
        done: Future[tuple[str, ...]] = Future()
        try:
            self.config()
            done.set_result(("x.y",))
        except ConfigInvalid as error:
            done.set_exception(error)
        return done

    def config(self) -> int:
        before, after = fleet_policy.tables(self.file)
        files = {"inference": {"queue_limit": 9}}
        assert set(after) <= {"models"}
        found = parse([("fleet", before), ("file", files)])
        assert found.inference.queue_limit == 9  # the device's own word
        return found.inference.max_tokens


def test_a_policy_counts_before_the_devices_own_files_and_is_replaced_as_a_whole() -> None:
    rig = Rig()
    done = rig.keeper.set({"inference.max_tokens": 7, "inference.queue_limit": 3})
    assert done.result(0) == ("x.y",)
    assert rig.config() == 7
    rig.keeper.set({"inference": {"max_tokens": 8}}).result(0)
    assert rig.config() == 8
    rig.keeper.set({}).result(0)
    assert rig.config() == 512


def test_a_wrong_value_changes_nothing() -> None:
    rig = Rig()
    rig.keeper.set({"inference.max_tokens": 7}).result(0)
    with pytest.raises(ConfigInvalid):
        rig.keeper.set({"inference.max_tokens": 0}).result(0)
    assert rig.config() == 7


@pytest.mark.parametrize(
    "key",
    ["updates.trust", "fleet.broker", "device.id", "device.labels", "access.admin_group",
     "users.joe.tokens_per_minute", "groups.x.queued_jobs", "models.default", "runner.engine",
     "daemon.state_dir", "thermal.sysfs_root", "inference", "", "."],
)  # fmt: skip
def test_who_may_what_and_where_things_are_is_not_the_fleets_to_set(key: str) -> None:
    rig = Rig()
    with pytest.raises(InvalidRequest):
        rig.keeper.set({key: 1})
    assert rig.file.load() == {}


def test_an_activated_model_outlives_a_policy_and_wins() -> None:
    rig = Rig()
    rig.keeper.keep_model("small")
    rig.keeper.set({"inference.max_tokens": 7}).result(0)
    assert fleet_policy.tables(rig.file)[1] == {"models": {"default": "small"}}


KEYS = st.sampled_from(["inference.max_tokens", "sampling.top_p", "quotas.queued_jobs"])


@given(st.dictionaries(KEYS, st.integers(1, 9)))
def test_tables_and_full_names_are_the_same(values: dict[str, object]) -> None:
    assert fleet_policy.flat(fleet_policy.as_tables(values)) == values


class LateRig(Rig):
    """``reload`` happens when the main loop comes to it; ``reboot`` is another process."""

    def __init__(self) -> None:
        self.later: list[Callable[[], None]] = []
        super().__init__()

    def reload(self) -> Future[tuple[str, ...]]:
        done: Future[tuple[str, ...]] = Future()

        def run() -> None:
            try:
                self.config()
                done.set_result(())
            except ConfigInvalid as error:
                done.set_exception(error)

        self.later.append(run)
        return done

    def run(self) -> None:
        while self.later:
            self.later.pop(0)()


def test_a_power_cut_before_a_bad_policy_was_read_leaves_the_good_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = LateRig()
    rig.keeper.set({"inference.max_tokens": 7})
    rig.run()
    rig.keeper.set({"inference.max_tokens": -1})
    rig.later.clear()
    monkeypatch.setattr(fleet_policy, "_RUN", "another process")
    rig.keeper = PolicyKeeper(rig.file, rig.reload)
    assert rig.config() == 7  # what the start reads
    again = rig.keeper.set({"inference.max_tokens": -1})
    rig.run()
    with pytest.raises(ConfigInvalid):
        again.result(0)
    assert rig.config() == 7


def test_a_refused_policy_does_not_bring_back_what_was_before_another_change() -> None:
    rig = LateRig()
    refused = rig.keeper.set({"inference.max_tokens": -1})
    rig.keeper.keep_model("small")
    rig.run()
    with pytest.raises(ConfigInvalid):
        refused.result(0)
    assert fleet_policy.tables(rig.file) == ({}, {"models": {"default": "small"}})


def test_only_one_policy_is_tried_at_a_time() -> None:
    rig = LateRig()
    good = rig.keeper.set({"inference.max_tokens": 7})
    with pytest.raises(Busy):
        rig.keeper.set({"inference.max_tokens": -1})
    rig.run()
    assert good.result(0) == ()
    assert rig.config() == 7
    rig.keeper.set({"inference.max_tokens": 8})
    rig.run()
    assert rig.config() == 8
