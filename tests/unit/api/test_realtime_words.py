"""What the runner says of its threads counts where the kernel does not let us look."""

from __future__ import annotations

from stoker.api.realtime import told
from stoker.events.realtime import RtView

HIDDEN = RtView("partition", "", "2-3", notes=("the threads are another user's: unseen",))
SEEN = RtView("none", "why", "", pinning="free", scheduling="other", notes=("a note",))


def test_an_unseen_process_is_described_by_its_own_words() -> None:
    view = told(HIDDEN, ("one-to-one", "fifo:5", ""))
    assert (view.pinning, view.scheduling) == ("one-to-one", "fifo:5")
    assert len(view.notes) == 1
    assert "as the runner says" in view.notes[0]


def test_what_the_kernel_shows_wins_and_a_refusal_is_told() -> None:
    view = told(SEEN, ("one-to-one", "fifo:5", "thread 7: Operation not permitted"))
    assert (view.pinning, view.scheduling) == ("free", "other")
    assert view.notes == ("a note", "not real-time: thread 7: Operation not permitted")


def test_without_a_model_nothing_changes() -> None:
    assert told(HIDDEN, ("", "", "")) == HIDDEN
