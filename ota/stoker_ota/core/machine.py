"""How an update moves: one table, pure. Whatever happens, the device runs old or new.

``step`` takes the journal and an event and gives the next journal and what to do. The
journal is written before its actions are carried out, and every action may be carried
out again: after a power cut ``Restarted`` finds the row that says how to go on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from stoker_ota.values.deployment import (
    MAX_ATTEMPTS,
    MAX_DELTA_FAILURES,
    MAX_MEMORY_FAILURES,
    MAX_MOVES,
    MAX_REMEMBERED,
    Journal,
    Phase,
)
from stoker_ota.values.moves import Do, Event, What

Result = tuple[Journal, tuple[Do, ...]]
Move = Callable[[Journal, Event], Result]


def step(journal: Journal, event: Event) -> Result:
    """The next journal and what to do; an event that means nothing here changes nothing."""
    move = TABLE.get((journal.phase, event.what))
    if move is None:
        return journal, ()
    after, todo = move(journal, event)
    if after.phase in (journal.phase, Phase.IDLE):
        return after, todo
    after = replace(after, moves=after.moves + 1)
    if after.moves > MAX_MOVES and after.phase in _BEFORE_ACTIVATION:
        return _fail(after, Event(What.ERROR, code="internal", reason="it goes round in circles"))
    return after, todo


def serving(journal: Journal, current: int) -> int:
    """The generation to use after a start: the one that was committed (0 = the package's),
    or one that passed its tests and waits for a confirmation. ``current``: what the link says.
    """
    unproven = journal.phase in (Phase.ACTIVATING, Phase.TESTING) and not journal.healthy
    if unproven or journal.phase is Phase.ROLLING_BACK:
        return journal.previous
    return current


def _take(journal: Journal, event: Event) -> Result:
    offer = event.offer
    if offer is None or (offer.manifest in journal.failed and not offer.forced):
        return journal, (Do.REFUSE,)
    fresh = Journal(Phase.OFFERED, offer, previous=journal.previous, failed=journal.failed)
    return fresh, (Do.EVALUATE,)


def _take_newer(journal: Journal, event: Event) -> Result:
    """A newer version of what waits takes its place; the same one again is no news."""
    old, new = journal.offer, event.offer
    if new is None or (old is not None and old.manifest == new.manifest and not new.forced):
        return journal, ()
    after, todo = _take(journal, event)
    return (after, (Do.CLEAN, *todo)) if after is not journal else (after, todo)


def _go(phase: Phase, *todo: Do) -> Move:
    def move(journal: Journal, _event: Event) -> Result:
        return replace(journal, phase=phase, code="", reason=""), todo

    return move


def _wait(phase: Phase, *todo: Do) -> Move:
    def move(journal: Journal, event: Event) -> Result:
        return replace(journal, phase=phase, code=event.code, reason=event.reason), todo

    return move


def _again(*todo: Do) -> Move:
    return lambda journal, _event: (journal, todo)


def _fail(journal: Journal, event: Event) -> Result:
    """Nothing was activated. The manifest is remembered, so that it is not tried for ever."""
    failed = _with(journal.failed, journal.offer.manifest if journal.offer is not None else "")
    code, reason = event.code, event.reason
    if journal.whole and journal.phase is Phase.FETCHING and journal.code:
        code, reason = journal.code, f"{journal.reason}; and then: {reason}"  # the first cause
    after = replace(_undone(journal), phase=Phase.FAILED, code=code, reason=reason, failed=failed)
    return after, (Do.REPORT, Do.CLEAN)


def _with(failed: tuple[str, ...], manifest: str) -> tuple[str, ...]:
    kept = tuple(item for item in failed if item != manifest)
    return (*kept, manifest)[-MAX_REMEMBERED:] if manifest else failed


def _undone(journal: Journal) -> Journal:
    """The set before is current again, or still: then what was before it is ``previous``."""
    if journal.phase in (Phase.STAGED, Phase.ROLLING_BACK):
        return replace(journal, previous=journal.earlier, earlier=0)
    return journal


def _broken(journal: Journal, event: Event) -> Result:
    """Twice, then the whole artifacts if the manifest allows them."""
    count = journal.delta_failures + 1
    again = replace(
        journal, phase=Phase.FETCHING, delta_failures=count, code=event.code, reason=event.reason
    )
    if count < MAX_DELTA_FAILURES:
        return again, (Do.CLEAN, Do.FETCH)
    if journal.offer is not None and journal.offer.allow_full and not journal.whole:
        return replace(again, whole=True), (Do.CLEAN, Do.FETCH)
    return _fail(journal, event)


def _staged(journal: Journal, event: Event) -> Result:
    after = replace(
        journal, phase=Phase.STAGED, generation=event.generation, previous=event.previous,
        earlier=event.earlier, code="", reason="",
    )  # fmt: skip
    return after, (Do.EVALUATE,)


def _activate(journal: Journal, event: Event) -> Result:
    if journal.attempts >= MAX_ATTEMPTS:
        return _fail(journal, replace(event, code="unhealthy", reason="tried too often"))
    after = replace(
        journal, phase=Phase.ACTIVATING, attempts=journal.attempts + 1, code="", reason=""
    )
    return after, (Do.ACTIVATE,)


def _short(journal: Journal, event: Event) -> Result:
    """Tried again, but not for ever: then it is the update that needs too much."""
    count = journal.memory_failures + 1
    if count >= MAX_MEMORY_FAILURES:
        return _fail(journal, event)
    after = replace(journal, memory_failures=count, code=event.code, reason=event.reason)
    return after, (Do.WAIT,)


def _go_back(journal: Journal, event: Event) -> Result:
    """What an administrator leaves must not come back by itself with the next look."""
    after, todo = _return(journal, event)
    return replace(after, failed=_with(after.failed, event.manifest)), todo


def _return(journal: Journal, event: Event) -> Result:
    code = event.code or ("requested" if event.what is What.GO_BACK else "unhealthy")
    after = replace(journal, phase=Phase.ROLLING_BACK, code=code, reason=event.reason)
    return after, (Do.ROLL_BACK,)


def _healthy(journal: Journal, _event: Event) -> Result:
    if journal.offer is not None and journal.offer.confirm:
        return replace(journal, healthy=True), (Do.REPORT,)
    return replace(journal, phase=Phase.COMMITTED), (Do.COMMIT,)


def _confirm(journal: Journal, _event: Event) -> Result:
    if not journal.healthy:
        return journal, ()
    return replace(journal, phase=Phase.COMMITTED), (Do.COMMIT,)


def _returned(journal: Journal, event: Event) -> Result:
    """``event`` has a reason where the set that was returned to is not well either."""
    reason = "; ".join(text for text in (journal.reason, event.reason) if text)
    return _fail(journal, Event(What.ERROR, code=event.code or journal.code, reason=reason))


def _rest(journal: Journal, _event: Event) -> Result:
    """Nothing under way: only what failed is remembered."""
    return Journal(previous=journal.previous, failed=journal.failed), ()


def _committed(journal: Journal, _event: Event) -> Result:
    done = journal.offer.manifest if journal.offer is not None else ""
    failed = tuple(item for item in journal.failed if item != done)
    return Journal(previous=journal.previous, failed=failed), (Do.CLEAN, Do.REPORT)


def _cancel(journal: Journal, event: Event) -> Result:
    """Nothing was activated, and nothing is held against the manifest."""
    after = replace(
        _undone(journal), phase=Phase.FAILED, code=event.code or "cancelled", reason=event.reason
    )
    return after, (Do.REPORT, Do.CLEAN)


def _after_activating(journal: Journal, event: Event) -> Result:
    """The cut came around the one rename that activates: the link says on which side."""
    if event.generation == journal.generation:
        return replace(journal, phase=Phase.TESTING), (Do.TEST,)
    return replace(journal, phase=Phase.STAGED), (Do.EVALUATE,)


def _after_testing(journal: Journal, event: Event) -> Result:
    if journal.healthy:
        return journal, (Do.REPORT,)
    if journal.attempts >= MAX_ATTEMPTS:
        return _return(journal, replace(event, reason="the device stopped while it was tested"))
    return replace(journal, attempts=journal.attempts + 1), (Do.TEST,)


_EVALUATE, _PREFLIGHT = _again(Do.EVALUATE), _go(Phase.PREFLIGHT, Do.PREFLIGHT)
_NO_SPACE = _wait(Phase.WAIT_SPACE, Do.CLEAN, Do.REPORT)
_BEFORE_ACTIVATION: Final = (
    Phase.OFFERED, Phase.WAIT_WINDOW, Phase.PREFLIGHT, Phase.WAIT_SPACE, Phase.FETCHING,
    Phase.APPLYING, Phase.VERIFYING, Phase.STAGED,
)  # fmt: skip

_WAITING: Final[Mapping[What, Move]] = {
    What.ALLOWED: _PREFLIGHT,
    What.NOT_YET: _wait(Phase.WAIT_WINDOW, Do.WAIT),
    What.OFFERED: _take_newer,
    What.CANCELLED: _cancel,
    What.ERROR: _fail,
    What.RESTARTED: _EVALUATE,
}
"""Nothing is fetched yet: the draw and inhibitors say when."""

_ROWS: Final[Mapping[Phase, Mapping[What, Move]]] = {
    Phase.IDLE: {
        What.OFFERED: _take,
        What.GO_BACK: _go_back,
        What.RESTARTED: _again(Do.CLEAN),
    },
    Phase.OFFERED: _WAITING,
    Phase.WAIT_WINDOW: _WAITING,
    Phase.PREFLIGHT: {
        What.DONE: _go(Phase.FETCHING, Do.FETCH),
        What.NO_SPACE: _NO_SPACE,
        What.NO_MEMORY: _wait(Phase.PREFLIGHT, Do.WAIT),
        What.RETRY: _wait(Phase.PREFLIGHT, Do.WAIT),
        What.ERROR: _fail,
        What.CANCELLED: _cancel,
        What.RESTARTED: _again(Do.PREFLIGHT),
    },
    Phase.WAIT_SPACE: {
        What.SPACE_FREED: _PREFLIGHT,
        What.OFFERED: _take_newer,
        What.CANCELLED: _cancel,
        What.RESTARTED: _PREFLIGHT,
    },
    Phase.FETCHING: {
        What.DONE: _go(Phase.APPLYING, Do.APPLY),
        What.RETRY: _wait(Phase.FETCHING, Do.WAIT),
        What.NO_MEMORY: _short,
        What.BROKEN: _broken,
        What.NO_SPACE: _NO_SPACE,
        What.ERROR: _fail,
        What.CANCELLED: _cancel,
        What.RESTARTED: _again(Do.FETCH),
    },
    Phase.APPLYING: {
        What.DONE: _go(Phase.VERIFYING, Do.VERIFY),
        What.BROKEN: _broken,
        What.NO_SPACE: _NO_SPACE,
        What.NO_MEMORY: _short,
        What.RETRY: _wait(Phase.APPLYING, Do.WAIT),
        What.ERROR: _fail,
        What.CANCELLED: _cancel,
        What.RESTARTED: _again(Do.APPLY),
    },
    Phase.VERIFYING: {
        What.DONE: _staged,
        What.BROKEN: _broken,
        What.NO_SPACE: _NO_SPACE,
        What.RETRY: _wait(Phase.VERIFYING, Do.WAIT),
        What.ERROR: _fail,
        What.CANCELLED: _cancel,
        What.RESTARTED: _again(Do.VERIFY),
    },
    Phase.STAGED: {
        What.ALLOWED: _activate,
        What.NOT_YET: _wait(Phase.STAGED, Do.WAIT),
        What.CANCELLED: _cancel,
        What.ERROR: _fail,
        What.RESTARTED: _EVALUATE,
    },
    Phase.ACTIVATING: {
        What.DONE: _go(Phase.TESTING, Do.TEST),
        What.ERROR: _return,
        What.NO_SPACE: _return,
        What.RETRY: _return,
        What.RESTARTED: _after_activating,
    },
    Phase.TESTING: {
        What.HEALTHY: _healthy,
        What.CONFIRMED: _confirm,
        What.UNHEALTHY: _return,
        What.ERROR: _return,
        What.CANCELLED: _return,
        What.RESTARTED: _after_testing,
    },
    Phase.COMMITTED: {
        What.DONE: _committed,
        What.RETRY: _again(Do.WAIT),
        What.NO_SPACE: _again(Do.WAIT),
        What.ERROR: _again(Do.WAIT),
        What.RESTARTED: _again(Do.COMMIT),
    },
    Phase.ROLLING_BACK: {
        What.DONE: _returned,
        What.RETRY: _again(Do.WAIT),
        What.NO_SPACE: _again(Do.WAIT),
        What.ERROR: _again(Do.WAIT),
        What.RESTARTED: _again(Do.ROLL_BACK),
    },
    Phase.FAILED: {
        What.DONE: _rest,
        What.OFFERED: _take,
        What.RESTARTED: _again(Do.CLEAN),
    },
}

TABLE: Final[Mapping[tuple[Phase, What], Move]] = {
    (phase, what): move for phase, row in _ROWS.items() for what, move in row.items()
}
"""Every move there is; docs/ota.md's diagram is made from it."""

REPEATS: Final[Mapping[Phase, Do]] = {
    Phase.OFFERED: Do.EVALUATE, Phase.WAIT_WINDOW: Do.EVALUATE, Phase.PREFLIGHT: Do.PREFLIGHT,
    Phase.FETCHING: Do.FETCH, Phase.APPLYING: Do.APPLY, Phase.VERIFYING: Do.VERIFY,
    Phase.STAGED: Do.EVALUATE, Phase.COMMITTED: Do.COMMIT, Phase.ROLLING_BACK: Do.ROLL_BACK,
}  # fmt: skip
"""What ``WAIT`` leads back to when its time is over."""
