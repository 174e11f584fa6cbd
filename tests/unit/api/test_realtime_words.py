"""What the runner says of its threads counts where the kernel does not let us look."""

from __future__ import annotations

from stoker.api.realtime import told
from stoker.events.realtime import Placed, RtView

HIDDEN = RtView("partition", "", "2-3", notes=("the threads are another user's: unseen",))
SEEN = RtView("none", "why", "", pinning="free", scheduling="other", notes=("a note",))


def test_an_unseen_process_is_described_by_its_own_words() -> None:
    view = told(HIDDEN, Placed("one-to-one", "fifo:5", ""))
    assert (view.pinning, view.scheduling) == ("one-to-one", "fifo:5")
    assert len(view.notes) == 1
    assert "as the runner says" in view.notes[0]


def test_what_the_kernel_shows_wins_and_a_refusal_is_told() -> None:
    why = "not real-time: thread 7: Operation not permitted"
    view = told(SEEN, Placed("one-to-one", "fifo:5", why))
    assert (view.pinning, view.scheduling) == ("free", "other")
    assert view.notes == ("a note", why)


def test_without_a_model_nothing_changes() -> None:
    assert told(HIDDEN, Placed()) == HIDDEN


def test_masks_of_an_unseen_process_are_a_level_too() -> None:
    nothing = RtView("none", "no cpuset", "", notes=HIDDEN.notes)
    view = told(nothing, Placed("set", "other", "", "4,5,6,7", -10))
    assert (view.level, view.cpus, view.nice) == ("affinity", "4,5,6,7", -10)
    assert view.reason == "no cpuset"
    assert told(nothing, Placed("free", "other")).level == "none"
    assert told(HIDDEN, Placed("set", "other", "", "2,3")).level == "partition"
