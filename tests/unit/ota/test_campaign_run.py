"""A campaign's run: what it publishes, whom it believes, and what it does when others act too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console as Screen
from tests.unit.ota.campaign_world import PLAN, TOPICS, World, all_reached, ended, joined

from stoker_ota.cli import campaign_screen
from stoker_ota.cli.console import Console
from stoker_ota.core import (
    campaign,
    campaign_count,
    campaign_share,
    fleet_versions,
)
from stoker_ota.core.campaign import Counts, State
from stoker_ota.core.campaign_count import Seen
from stoker_ota.drivers.campaign_ledger import SqliteLedger
from stoker_ota.errors import BadDocument, InvalidRequest, Unavailable


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with closing(SqliteLedger(tmp_path / "campaigns.db")) as ledger:
        yield World(ledger)


def test_steps_follow_successes_and_their_soak(world: World) -> None:
    made = world.run()
    made.begin()
    joined(made)
    assert made.turn() == ""
    assert world.document("blue").sections["campaign"]["percent"] == 50
    all_reached(made)
    assert made.turn() == ""  # met; now it soaks
    world.now += timedelta(seconds=9)
    assert made.turn() == ""
    world.now += timedelta(seconds=1)
    assert made.turn() == "step 2 of 2: 100 %"
    assert world.document("blue").sections["campaign"]["percent"] == 100
    assert world.document("green").version == 2
    assert made.turn() == ""
    all_reached(made)
    made.turn()
    world.now += timedelta(seconds=10)
    assert made.turn() == "succeeded: 40 of 40 succeeded, 0 failed"
    assert world.document("blue").sections["campaign"]["paused"] is False  # for late ones


def test_what_else_a_group_should_be_stays(world: World) -> None:
    world.put("blue", 5, {"policy": {"inference.max_tokens": 9}})
    made = world.run()
    made.begin()
    found = world.document("blue")
    assert found.version == 6
    assert found.sections["policy"] == {"inference.max_tokens": 9}
    assert found.sections["update"] == {"deployment": "chat", "version": 7, "retry": "c-1"}


def test_what_nobody_has_signed_is_not_taken_over(world: World) -> None:
    world.kept[TOPICS.group("blue", "desired")] = b"forged" + b"{}"
    with pytest.raises(BadDocument, match="not of this fleet"):
        world.run().begin()
    assert world.sent == 0


def test_versions_go_on_after_those_that_devices_have(world: World) -> None:
    made = world.run()
    joined(made, desired={"g:blue": 17})
    joined(made, 1, desired={"g:blue": fleet_versions.MOST_AHEAD + 1})  # nobody may use them all up
    made.begin()
    assert world.document("blue").version == 18


def test_a_start_that_was_cut_off_is_ended_by_the_next_look(world: World) -> None:
    world.put("green", 3, {"policy": {"a": 1}})
    world.now += timedelta(seconds=5)
    world.fails_after = 1
    with pytest.raises(Unavailable):
        world.run().begin()
    world.fails_after = 99
    made = world.run(*world.section("blue"))
    made.settle()
    assert world.section("green")[1] == State()
    assert world.document("green").sections["policy"] == {"a": 1}


def test_a_lost_ledger_changes_nothing(world: World, tmp_path: Path) -> None:
    made = world.run()
    made.begin()
    names = joined(made)
    ended(made, names[0], "failed")
    made.order("pause")
    with closing(SqliteLedger(tmp_path / "other.db")) as other:
        again = replace(world, ledger=other).run(*world.section("blue"))
        assert again.plan == made.plan
        assert again.state == made.state
        assert again.taken_over == ""


def test_a_pause_by_another_hand_counts(world: World, tmp_path: Path) -> None:
    first = world.run()
    first.begin()
    with closing(SqliteLedger(tmp_path / "other.db")) as other:
        replace(world, ledger=other).run(*world.section("blue")).order("pause")
    world.tell(first)
    assert first.turn() == "paused by another hand"
    assert first.state.phase == campaign.PAUSED


@pytest.mark.parametrize("word", ["pause", "abort"])
def test_of_two_that_move_at_once_the_careful_one_wins(
    world: World, tmp_path: Path, word: str
) -> None:
    first = world.run()
    first.begin()
    with closing(SqliteLedger(tmp_path / "other.db")) as other:
        second = replace(world, ledger=other, kept=dict(world.kept))
        hand = second.run(*second.section("blue"))
        joined(first)
        all_reached(first)
        first.turn()
        world.now += timedelta(seconds=10)
        assert first.turn().startswith("step 2")
        hand.order(word)
        assert second.document("blue").version == world.document("blue").version
        world.kept |= second.kept  # it came last
    world.tell(first)
    first.turn()
    assert first.state.phase == {"pause": campaign.PAUSED, "abort": campaign.ABORTED}[word]
    for group in PLAN.groups:
        assert world.document(group).version == 3
        assert world.section(group)[1] == first.state
    before = world.sent
    world.tell(first)
    first.settle()
    assert world.sent == before


def test_what_somebody_publishes_instead_is_left_alone(world: World) -> None:
    made = world.run()
    made.begin()
    world.now += timedelta(seconds=5)
    world.put("blue", 9, {"policy": {"a": 1}})
    world.tell(made)
    assert made.taken_over == "blue"
    with pytest.raises(InvalidRequest, match="version 9 of g:blue follows something else"):
        made.turn()
    assert world.document("blue").version == 9


def test_an_old_campaign_that_is_looked_at_does_not_come_back(world: World) -> None:
    old = world.run()
    old.begin()
    old.order("abort")
    world.now += timedelta(seconds=5)
    world.run(replace(PLAN, id="c-2")).begin()
    sent = world.sent
    again = world.run(PLAN, old.state)
    again.settle()
    assert world.sent == sent
    with pytest.raises(InvalidRequest, match="blue is in c-2, which is running"):
        world.run(replace(PLAN, id="c-3")).begin()


def test_a_broker_that_was_set_back_gets_the_newest_again(world: World) -> None:
    made = world.run()
    made.begin()
    old = dict(world.kept)
    made.order("pause")
    world.kept = old
    world.tell(made)
    made.settle()
    assert world.section("blue")[1].phase == campaign.PAUSED
    assert world.document("blue").version == 3


def test_a_reached_device_that_stays_away_has_failed_until_it_is_back(world: World) -> None:
    made = world.run()
    name = next(n for n in joined(made) if campaign_share.reached("c-1", 50, n))
    topic = TOPICS.device(name, "status")
    made.hear(topic, b'{"online": true, "session": 4}')
    made.hear(topic, b'{"online": false, "session": 3}')  # a late will
    assert made.devices[name].away_s == 0
    made.hear(topic, b'{"online": false, "session": 4}')
    assert made.counts().failed == 0
    world.now += timedelta(seconds=PLAN.lost_s)
    assert made.standings()[name][0] == campaign_count.LOST
    assert made.counts().failed == 1
    made.hear(topic, b'{"online": true, "session": 1}')  # made anew
    assert made.counts() == Counts(40, made.counts().reached, 0, 0)


def test_retained_states_tell_ends_too_and_nonsense_tells_nothing(world: World) -> None:
    made = world.run()
    digest = campaign_share.wish(PLAN.update)
    done = [{"id": f"desired-4-{digest}", "state": "failed", "code": "chunk-hash"}]
    joined(made, 1, results=done)
    assert made.devices["dev-0"].code == "chunk-hash"
    before = dict(made.devices)
    for payload in (b"", b"\xff", b"[]", b'{"groups": 4}', b'{"results": [{}]}', b"[" * 50):
        for leaf in ("state", "status", "result"):
            made.hear(TOPICS.device("dev-0", leaf), payload)
    ended(made, "dev-0", "running", 99)
    assert made.devices["dev-0"].state == before["dev-0"].state


def test_the_ledger_keeps_what_it_was_told(world: World, tmp_path: Path) -> None:
    seen = Seen(("blue",), 3, 12.5, "failed", 4, "chunk-hash", "damaged")
    world.ledger.keep_devices("c-1", {"dev-1": seen})
    state = State(campaign.WAITING, 1, 4, 99.5)
    world.ledger.keep(PLAN, state, 1.0, "started")
    world.ledger.keep_document("g:blue", 3, b"three")
    world.ledger.keep_document("g:blue", 2, b"two")
    with closing(SqliteLedger(tmp_path / "campaigns.db")) as again:
        assert again.devices("c-1") == {"dev-1": seen}
        assert again.campaigns() == [(PLAN, state)]
        assert again.story("c-1") == [(1.0, "started")]
        assert again.document("g:blue") == b"three"


def test_a_damaged_ledger_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "campaigns.db"
    path.write_bytes(b"no database" * 1000)
    with closing(SqliteLedger(path)) as ledger:
        assert ledger.campaigns() == []
    assert (tmp_path / "campaigns.db.damaged").exists()


def test_a_terminal_sees_steps_and_the_devices_to_look_at(world: World) -> None:
    made = world.run()
    made.begin()
    name = next(n for n in joined(made) if campaign_share.reached("c-1", 50, n))
    ended(made, name, "failed")
    screen = Screen(width=100, file=StringIO(), record=True)
    screen.print(campaign_screen._drawn(made, ["started"]))
    told = screen.export_text()
    assert "step 1 of 2 (50 %)" in told
    assert [row.split()[:2] for row in told.splitlines() if row.startswith("dev-")] == [
        [name, "failed"]
    ]
    assert "started" in told


def test_a_pipe_gets_each_change_once(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    made = world.run()
    made.begin()
    name = next(n for n in joined(made) if campaign_share.reached("c-1", 50, n))
    lines = campaign_screen.Lines(Console())
    lines.show(made, "")
    assert "0 of" in capsys.readouterr().out
    lines.show(made, "")
    assert capsys.readouterr().out == ""
    ended(made, name, "failed")
    lines.show(made, "")
    first, second = capsys.readouterr().out.splitlines()
    assert first.split() == [name, "failed"]
    assert "1 failed" in second
