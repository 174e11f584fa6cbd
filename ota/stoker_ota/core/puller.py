"""Pulls content-addressed blobs by exact subscriptions in a small window. Pure.

``step`` is told what happened and when, and says what to do. A blob is kept only with the
right hash; one that does not come, is denied or is wrong again and again is given to the next
source. The window grows with what arrives and halves when things come late.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from stoker_ota.core import pace
from stoker_ota.values.pulling import Action, Do, Event, Flight, Pull, What

MAX_TRIES: Final = 2
MAX_ABSENT: Final = 16
"""Blobs in a row that are not there: the source has not what we want."""
MAX_DROPS: Final = 8
MAX_FIRST_DROPS: Final = 3
"""Before it was connected once: nobody may be there at all."""
QUIET_S: Final = 20.0
"""Without one good blob although some were asked for: the source is left."""
LEAST_WINDOW: Final = 2
FIRST_WINDOW: Final = 4
LEAST_LIMIT_S: Final = 2.0
MOST_LIMIT_S: Final = 60.0
LATE_HALVES: Final = 3
GROW_EVERY: Final = 20
FIRST_DELAY_S: Final = 1.0
MOST_DELAY_S: Final = 60.0
_Step = tuple[Pull, tuple[Action, ...]]


def begin(wanted: Iterable[str], *, window: int, rate: int, blob_bytes: int, now_s: float) -> _Step:
    """``window`` subscriptions at most; ``rate`` bytes a second, 0 = no limit."""
    bucket = pace.begin(rate, now_s, least_burst=blob_bytes)
    pull = Pull(tuple(dict.fromkeys(wanted)), bucket, blob_bytes, window, min(FIRST_WINDOW, window))
    if not pull.wanted:
        return replace(pull, over=True), (Action(Do.END),)
    return pull, (Action(Do.CONNECT),)


def step(pull: Pull, event: Event, now_s: float) -> _Step:
    """What happened leads to what is to be done; after END nothing does any more."""
    if pull.over:
        return pull, ()
    match event.what:
        case What.CONNECTED:
            return _go_on(replace(pull, connected=True, greeted=True, heard_s=now_s), (), now_s)
        case What.DENIED:
            return _denied(pull, event, now_s)
        case What.MESSAGE:
            return _message(pull, event, now_s)
        case What.DISCONNECTED:
            return _dropped(pull, event)
        case What.REFUSED:
            return _end(pull, event.reason)
        case What.TICK:
            return _tick(pull, now_s)


def due_s(pull: Pull, now_s: float) -> float:
    """Until the next TICK has something to do, at most a second."""
    if not pull.connected:
        return 1.0
    times = [flight.since_s + _limit_s(pull, flight) - now_s for flight in pull.flying]
    if len(pull.flying) < pull.window and (pull.again or pull.position < len(pull.wanted)):
        times.append(pace.wait_s(pull.pace, now_s))
    return min(1.0, max(0.0, min(times, default=1.0)))


def _message(pull: Pull, event: Event, now_s: float) -> _Step:
    flight = next((item for item in pull.flying if item.blob == event.blob), None)
    beyond = event.size - (pull.blob_bytes if flight is not None else 0)
    pull = replace(pull, pace=pace.take(pull.pace, beyond, now_s))
    if not event.good:
        if flight is None:
            return pull, ()
        pull, todo = _given_back(pull, flight, "other bytes than its name says")
        return _go_on(pull, todo, now_s)
    if flight is None:
        return _came_late(pull, event.blob, now_s)
    rtt = now_s - flight.since_s
    row = pull.row + 1
    grown = pull.window < pull.most and row >= (GROW_EVERY if pull.steady else 1)
    after = replace(
        pull,
        flying=_without(pull.flying, event.blob),
        rtt_s=rtt if pull.rtt_s == 0 else 0.875 * pull.rtt_s + 0.125 * rtt,
        window=pull.window + 1 if grown else pull.window,
        row=0 if grown else row,
        heard_s=now_s,
        late=0,
        absent=0,
        drops=0,
    )
    todo = (Action(Do.KEEP, event.blob), Action(Do.UNSUBSCRIBE, event.blob))
    return _go_on(after, todo, now_s)


def _came_late(pull: Pull, blob: str, now_s: float) -> _Step:
    """Its time was over, but nobody has fetched it yet: good is good."""
    flight = next((item for item in pull.again if item.blob == blob), None)
    if flight is None:
        return pull, ()  # a second copy, or what nobody asked for
    again = _without(pull.again, blob)
    rtt = max(pull.rtt_s, now_s - flight.since_s)
    after = replace(pull, again=again, heard_s=now_s, rtt_s=rtt, late=0, absent=0, drops=0)
    return _go_on(after, (Action(Do.KEEP, blob),), now_s)


def _denied(pull: Pull, event: Event, now_s: float) -> _Step:
    flight = next((item for item in pull.flying if item.blob == event.blob), None)
    if flight is None:
        return pull, ()
    after = replace(pull, flying=_without(pull.flying, event.blob), absent=pull.absent + 1)
    lost = Action(Do.LOST, event.blob, reason=event.reason or "the broker denies it")
    return _go_on(after, (lost,), now_s)


def _tick(pull: Pull, now_s: float) -> _Step:
    todo: tuple[Action, ...] = ()
    if not pull.flying and pull.connected:
        pull = replace(pull, heard_s=now_s)  # nobody was asked: the rate holds us back
    elif pull.connected and now_s - pull.heard_s > QUIET_S:
        return _end(pull, f"nothing came for {QUIET_S:.0f} s")
    for flight in pull.flying:
        limit_s = _limit_s(pull, flight)
        if now_s - flight.since_s < limit_s:
            continue
        late = pull.late + 1
        pull = replace(pull, late=late, steady=True, row=0)
        if late % LATE_HALVES == 0 and limit_s > LEAST_LIMIT_S:  # slow, and not only absent
            pull = replace(pull, window=max(min(LEAST_WINDOW, pull.most), pull.window // 2))
        pull, more = _given_back(pull, flight, "nothing is retained there")
        todo += more
    return _go_on(pull, todo, now_s)


def _given_back(pull: Pull, flight: Flight, reason: str) -> _Step:
    """Once more, or never more."""
    off = Action(Do.UNSUBSCRIBE, flight.blob)
    pull = replace(pull, flying=_without(pull.flying, flight.blob))
    if flight.tries + 1 < MAX_TRIES:
        once_more = replace(flight, tries=flight.tries + 1)
        return replace(pull, again=(*pull.again, once_more)), (off,)
    pull = replace(pull, absent=pull.absent + 1)
    return pull, (off, Action(Do.LOST, flight.blob, reason=reason))


def _dropped(pull: Pull, event: Event) -> _Step:
    """What flew is asked for again; a connection that never brings anything is given up."""
    drops = pull.drops + 1
    again = pull.flying + pull.again
    pull = replace(pull, connected=False, flying=(), again=again, drops=drops)
    if drops >= (MAX_DROPS if pull.greeted else MAX_FIRST_DROPS):
        return _end(pull, event.reason or "the connection breaks off")
    delay = min(MOST_DELAY_S, FIRST_DELAY_S * 2.0 ** (drops - 1))
    return pull, (Action(Do.CONNECT, delay_s=delay),)


def _go_on(pull: Pull, todo: tuple[Action, ...], now_s: float) -> _Step:
    """Fill the window, or see that all is done."""
    if pull.absent >= MAX_ABSENT:
        return _end(pull, f"{pull.absent} blobs in a row are not there", todo)
    subscribed: list[Action] = []
    while pull.connected and len(pull.flying) < pull.window:
        if pace.wait_s(pull.pace, now_s) > 0:
            break
        if pull.again:
            blob, tries = pull.again[0].blob, pull.again[0].tries
            pull = replace(pull, again=pull.again[1:])
        elif pull.position < len(pull.wanted):
            blob, tries = pull.wanted[pull.position], 0
            pull = replace(pull, position=pull.position + 1)
        else:
            break
        bucket = pace.take(pull.pace, pull.blob_bytes, now_s)
        pull = replace(pull, flying=(*pull.flying, Flight(blob, now_s, tries)), pace=bucket)
        subscribed.append(Action(Do.SUBSCRIBE, blob))
    if not pull.flying and not pull.again and pull.position == len(pull.wanted):
        return _end(pull, "", todo)
    return pull, (*todo, *subscribed)


def _limit_s(pull: Pull, flight: Flight) -> float:
    """How long a blob may take: by what others took, and longer the second time."""
    if pull.rtt_s == 0:
        return MOST_LIMIT_S  # nothing has come yet: QUIET_S decides
    return float(min(MOST_LIMIT_S, max(LEAST_LIMIT_S, 4 * pull.rtt_s) * 2**flight.tries))


def _end(pull: Pull, reason: str, todo: tuple[Action, ...] = ()) -> _Step:
    return replace(pull, over=True, flying=()), (*todo, Action(Do.END, reason=reason))


def _without(flying: tuple[Flight, ...], blob: str) -> tuple[Flight, ...]:
    return tuple(item for item in flying if item.blob != blob)
