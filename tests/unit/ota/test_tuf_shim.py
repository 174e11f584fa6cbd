"""The rule engine judges TUF metadata too: a small shim feeds it, the verdicts are its own."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from tests.unit.ota.tuf_shim import Client, Key, Repository

from stoker_ota.core.clock import Now
from stoker_ota.errors import BadSignature, Freeze, MixAndMatch, Rollback

NOW = Now(datetime(2026, 1, 1, tzinfo=UTC), trusted=True)
FILES = {"chat.gguf": b"weights"}


@pytest.fixture
def repo() -> Repository:
    return Repository(
        {"root": [Key(1), Key(2), Key(3)], "timestamp": [Key(4)], "snapshot": [Key(5)],
         "targets": [Key(6)]}, {"root": 2},
    )  # fmt: skip


def first(repo: Repository, now: Now = NOW) -> Client:
    """The root that comes with the client is trusted as it is (5.2)."""
    return Client(json.loads(repo.root(1))["signed"], now)


def refreshed(client: Client, online: tuple[bytes, bytes, bytes]) -> Client:
    timestamp, snapshot, targets = online
    return client.timestamp(timestamp).snapshot(snapshot).targets(targets)


def test_a_chain_of_roots_then_timestamp_snapshot_targets_and_the_file(repo: Repository) -> None:
    client, chain = first(repo), []
    for version in (2, 3, 4):  # every step hands one key on
        before = repo.keys["root"]
        repo.keys["root"] = [*before[1:], Key(10 + version)]
        chain.append(repo.root(version, *before))
    client = refreshed(client.walk(chain), repo.online(1, FILES))
    assert client.root["version"] == 4
    client.file("chat.gguf", FILES["chat.gguf"])
    assert refreshed(client, repo.online(2, FILES)).floors.document("targets") == 2


def test_a_root_below_either_threshold_is_no_root(repo: Repository) -> None:
    client, old = first(repo), repo.keys["root"]
    one = repo.root(2, by=old[:1])
    twice = repo.root(2, by=[old[0], old[0]])
    repo.keys["root"] = [Key(20), Key(21)]
    by_old_alone, by_new_alone = repo.root(2, by=old), repo.root(2)
    for data in (one, twice, by_old_alone, by_new_alone):
        with pytest.raises(BadSignature) as caught:
            client.walk([data])
        assert caught.value.details["need"] == 2
    assert client.walk([repo.root(2, *old)]).root["version"] == 2


def test_one_key_under_two_names_is_one_signer(repo: Repository) -> None:
    client, signer = first(repo), repo.keys["root"][0]
    client.root["keys"]["alias"] = signer.value
    client.root["roles"]["root"]["keyids"].append("alias")
    data = json.loads(repo.root(2, by=[signer]))
    data["signatures"].append({**data["signatures"][0], "keyid": "alias"})
    with pytest.raises(BadSignature):
        client.walk([json.dumps(data).encode()])


@pytest.mark.parametrize("role", ["timestamp", "snapshot", "targets"])
def test_metadata_of_a_stranger_is_refused(repo: Repository, role: str) -> None:
    client = first(repo)
    repo.keys[role] = [Key(99)]
    with pytest.raises(BadSignature, match=f"cannot accept {role}: 0 of 1"):
        refreshed(client, repo.online(1, FILES))


def test_roots_are_walked_one_by_one_and_never_back(repo: Repository) -> None:
    client = first(repo)
    with pytest.raises(Rollback, match="root 3: 2 comes after 1"):
        client.walk([repo.root(3)])
    second = repo.root(2)
    with pytest.raises(Rollback):
        client.walk([second]).walk([second])


@pytest.mark.parametrize("role", ["root", "timestamp", "snapshot", "targets"])
def test_what_has_expired_is_a_freeze_once_it_is_the_last(repo: Repository, role: str) -> None:
    client = first(repo)
    repo.expires[role] = "2025-12-31T00:00:00Z"
    with pytest.raises(Freeze, match=f"cannot use {role}: it expired on 2025-12-31") as caught:
        refreshed(client.walk([repo.root(2)]), repo.online(1, FILES))
    assert caught.value.code == "freeze"


def test_an_expired_root_on_the_way_to_a_good_one_is_walked_through(repo: Repository) -> None:
    client = first(repo)
    repo.expires["root"] = "2025-12-31T00:00:00Z"
    expired = repo.root(2)
    repo.expires.clear()
    assert client.walk([expired, repo.root(3)]).root["version"] == 3


def test_the_same_metadata_for_ever_is_a_freeze_when_its_time_is_over(repo: Repository) -> None:
    kept = repo.online(1, FILES)
    client = refreshed(first(repo), kept)
    later = Client(client.root, Now(NOW.moment + timedelta(days=365), trusted=True), client.floors)
    with pytest.raises(Freeze):
        later.timestamp(kept[0])


def test_older_metadata_is_a_rollback_at_every_level(repo: Repository) -> None:
    old = repo.online(1, FILES)
    client = refreshed(first(repo), repo.online(2, FILES))
    with pytest.raises(Rollback, match="timestamp 1: this device has accepted 2"):
        client.timestamp(old[0])

    def lower(meta: dict[str, dict[str, object]]) -> None:
        meta["targets.json"]["version"] = 1

    def gone(meta: dict[str, dict[str, object]]) -> None:
        del meta["targets.json"]

    for change, said in ((lower, "snapshot's targets.json 1"), (gone, "no longer listed")):
        timestamp, snapshot, _ = repo.online(3, FILES, change)
        with pytest.raises(Rollback, match=said):
            client.timestamp(timestamp).snapshot(snapshot)


def test_parts_of_two_publications_do_not_mix(repo: Repository) -> None:
    one, two = repo.online(1, FILES), repo.online(1, {"chat.gguf": b"others"})
    client = first(repo).timestamp(one[0])
    with pytest.raises(MixAndMatch, match=r"snapshot\.json: timestamp lists other bytes"):
        client.snapshot(two[1])
    with pytest.raises(MixAndMatch, match=r"targets\.json: snapshot lists other bytes"):
        client.snapshot(one[1]).targets(two[2])
    client = client.snapshot(one[1]).targets(one[2])
    with pytest.raises(MixAndMatch, match="targets lists other bytes"):
        client.file("chat.gguf", b"others")
    with pytest.raises(MixAndMatch, match="targets does not list it"):
        client.file("other.gguf", FILES["chat.gguf"])


def test_a_snapshot_that_gives_targets_another_version_is_refused(repo: Repository) -> None:
    def other(meta: dict[str, dict[str, object]]) -> None:
        meta["targets.json"]["version"] = 7

    with pytest.raises(MixAndMatch, match="it says version 1, snapshot says 7"):
        refreshed(first(repo), repo.online(1, FILES, other))


def test_a_thief_s_fast_forward_ends_with_the_keys_that_were_stolen(repo: Repository) -> None:
    client = refreshed(first(repo), repo.online((1 << 53) - 1, FILES))
    with pytest.raises(Rollback):
        refreshed(client, repo.online(2, FILES))
    with pytest.raises(Rollback):  # another root, the same hands: nothing is forgotten
        refreshed(client.walk([repo.root(2)]), repo.online(2, FILES))
    repo.keys["timestamp"], repo.keys["snapshot"] = [Key(30)], [Key(31)]
    client = refreshed(client.walk([repo.root(2)]), repo.online(2, FILES))
    assert client.floors.document("timestamp") == 2
