"""Gives jobs their sequences: empty ones, or ones that hold the beginning of their tokens.

Carries out what ``prefixes`` decides on the engine, and moves conversations between the
cells and the saved states. A job's trouble with the cache is never more than a slow prefill.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stoker.events.prompt import Message
from stoker.events.runner import Load
from stoker.runner.engine import Engine, Facts
from stoker.runner.jobs import Job
from stoker.runner.prefixes import Entry, Match, Prefixes, common
from stoker.runner.state_format import Facts as StateFacts
from stoker.runner.state_format import Head
from stoker.runner.states import Fetch, Run, StateStore, in_thread

MIN_SAVED_TOKENS: Final = 32  # fewer are evaluated sooner than written
MIN_RESTORE_GAIN: Final = 32  # tokens that a file must spare beyond what the cells do
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Sought:
    """What a job could begin with; ``head``: the saved state that spares clearly more."""

    wanted: Entry
    others: list[Entry]  # what the running jobs hold
    match: Match | None
    head: Head | None


class SequenceCache:
    """``scratch`` None = nothing is saved to disk; ``run`` runs what writes and reads there."""

    def __init__(
        self,
        engine: Engine,
        clock: Callable[[], float],
        scratch: Path | None = None,
        run: Run = in_thread,
    ) -> None:
        self._engine, self._clock, self._scratch, self._run = engine, clock, scratch, run
        self._states: StateStore | None = None
        kinds = ("hits", "misses", "reused_tokens", "evictions", "evicted_unsaved")
        self._counts = dict.fromkeys(kinds, 0)
        self._idle_s = 0.0
        self._fetch: tuple[str, Fetch] | None = None  # for which job
        self.forget_all()

    def forget_all(self) -> None:
        """The engine's sequences are gone; what is on disk stays."""
        self._facts: Facts | None = None
        self._prefixes = Prefixes(entries=0, cells=0)
        self._free: list[int] = []
        self._unsaved: dict[int, float] = {}  # idle conversations, and since when
        self._stop_fetching()

    def begin(self, request: Load, facts: Facts, public: list[list[int]]) -> None:
        """A context is there, all its sequences empty."""
        self.forget_all()
        self._facts = facts
        most = facts.sequences - facts.slots if facts.caches else 0
        self._prefixes = Prefixes(entries=most, cells=facts.cells, public=public)
        self._free = list(range(facts.sequences - 1, -1, -1))
        self._idle_s = request.state_idle_ms / 1000.0
        self._states = self._store(request, facts) if most else None

    def ready(self, job: Job, running: Iterable[Job]) -> bool:
        """Whether the job may ``claim`` now: what is saved of it is read first, in a thread.

        One at a time, so that memory stays bounded; jobs that need none do not wait for it.
        """
        if self._fetch is not None and self._fetch[0] == job.id:
            return self._fetch[1].done
        if self._states is None or not self._find(_entry(job, -1, 0)):
            return True  # which most are: nothing is compared for them
        head = self._seek(job, running).head
        if head is None:
            return True
        if self._fetch is not None:
            return False
        fetch = self._states.fetch(head)
        self._fetch = job.id, fetch
        return fetch.done

    def dismiss(self, job: Job) -> None:
        """The job ended before it had a sequence."""
        if self._fetch is not None and self._fetch[0] == job.id:
            self._stop_fetching()

    def claim(self, job: Job, running: Iterable[Job]) -> tuple[int, int]:
        """A sequence for the job and how many of its tokens it holds already.

        There is always one: slots and kept prefixes together are as many as sequences.
        """
        sought = self._seek(job, running)
        fetch = self._fetched(job, sought.head)
        found = self._restored(sought, fetch) if fetch else None
        if found is None:
            match = sought.match
            if fetch:  # room was made for it, perhaps of what had matched
                match = self._prefixes.match(sought.wanted, sought.others)
            found = self._reused(match) if match else (self._free.pop(), 0)
        if sought.wanted.scope:
            self._counts["hits" if found[1] else "misses"] += 1
            self._counts["reused_tokens"] += found[1]
        return found

    def give_back(self, job: Job, *, sound: bool) -> None:
        """The job is over; ``sound`` = what its sequence holds may be used again."""
        seq = job.seq
        length = min(self._engine.length(seq), len(job.tokens)) if sound else 0
        if not length or not job.shareable or not job.request.scope or not self._keeping:
            self._empty(seq)
            return
        entry = _entry(job, seq, length)
        if entry.keep and length >= MIN_SAVED_TOKENS:
            self._unsaved[seq] = self._clock()
        self._let_go(self._prefixes.add(entry))

    def make_room(self) -> bool:
        """Let the least recently used prefix go; False when there is none."""
        entry = self._prefixes.evict()
        if entry is not None:
            self._let_go([entry])
        return entry is not None

    def rest(self) -> bool:
        """Nothing else to do: save one conversation that was idle long enough."""
        if self._states is None or self._states.busy or not self._unsaved:
            return False
        until_s = self._clock() - self._idle_s
        for entry in self._prefixes:
            if self._unsaved.get(entry.seq, until_s + 1.0) <= until_s:
                self._save(entry)
                return True
        return False

    def close(self, until_s: float) -> None:
        """The end of the process: what is being written then may take its time."""
        self.settle(until_s)
        if self._states is not None:
            self._states.finish()

    def settle(self, until_s: float, cells: int = 0) -> None:
        """The context goes: save what is not saved yet, the latest first, as far as time goes.

        ``cells`` of the next context: a smaller one is made when memory is short, which is no
        time for copies. 0 = not known.
        """
        if self._states is None or (self._facts and 0 < cells < self._facts.cells):
            return
        self._states.finish(until_s - self._clock())
        for entry in reversed(list(self._prefixes)):
            if self._clock() >= until_s or self._states.busy:
                return
            if entry.seq in self._unsaved:
                self._save(entry)
                self._states.finish(until_s - self._clock())

    def forget(self, scope: str, keep: str = "") -> int:
        """Drop what is kept of a scope or of one conversation; how many things went."""
        entries = self._prefixes.forget(scope, keep)
        for entry in entries:
            self._empty(entry.seq)
        return len(entries) + (self._states.forget(scope, keep) if self._states else 0)

    def owners(self) -> list[tuple[str, str]]:
        """(scope, conversation) of every saved state."""
        return self._states.owners() if self._states else []

    def counters(self) -> Mapping[str, object]:
        states = self._states
        cells = self._prefixes.cells
        return {
            "caches": self._keeping,
            "entries": len(self._prefixes),
            "cells": cells,
            **self._counts,
            "saved": states.files if states else 0,
            "saves": states.written if states else 0,
            "restores": states.restored if states else 0,
            "states_dropped": states.dropped if states else 0,
        }

    @property
    def _keeping(self) -> bool:
        facts = self._facts
        return facts is not None and facts.caches and facts.sequences > facts.slots

    def _seek(self, job: Job, running: Iterable[Job]) -> _Sought:
        wanted, others = _entry(job, -1, len(job.tokens)), _entries(running)
        match = self._prefixes.match(wanted, others)
        return _Sought(wanted, others, match, self._saved(wanted, match.length if match else 0))

    def _reused(self, match: Match) -> tuple[int, int]:
        if match.take:
            seq = self._prefixes.take(match.seq).seq
            self._unsaved.pop(seq, None)
            if self._engine.truncate(seq, match.length):
                return seq, match.length
            self._engine.clear(seq)
            return seq, 0
        seq = self._free.pop()
        return seq, match.length if self._engine.copy(match.seq, seq, match.length) else 0

    def _saved(self, wanted: Entry, held: int) -> Head | None:
        """A saved state, when it spares clearly more than the cells do."""
        head = self._find(wanted)
        if head is None or self._facts is None or len(head.tokens) > self._facts.cells:
            return None  # too long for the context there is now
        if self._spares(wanted, head) < held + MIN_RESTORE_GAIN:
            return None
        return head

    def _find(self, wanted: Entry) -> Head | None:
        if self._states is None or not wanted.scope or not wanted.keep:
            return None
        return self._states.find(wanted.scope, wanted.keep, wanted.variant)

    def _fetched(self, job: Job, head: Head | None) -> Fetch | None:
        """What was read for the job, unless a newer state or the cells are better by now."""
        if self._fetch is None or self._fetch[0] != job.id:
            return None
        _, fetch = self._fetch
        self._fetch = None
        return fetch if fetch.head is head else None

    def _stop_fetching(self) -> None:
        if self._fetch is not None:
            self._fetch[1].stop()
            self._fetch = None

    def _restored(self, sought: _Sought, fetch: Fetch) -> tuple[int, int] | None:
        states, facts, head = self._states, self._facts, fetch.head
        payload = states.take(fetch) if states else None
        if states is None or facts is None or payload is None:
            return None
        used = sum(len(entry.tokens) for entry in sought.others) + len(head.tokens)
        self._let_go(self._prefixes.shrink(max(facts.cells - used, 0)))
        seq, length = self._free.pop(), self._spares(sought.wanted, head)
        took = self._engine.restore(seq, payload)
        whole = took and self._engine.length(seq) == len(head.tokens)
        if whole and self._engine.truncate(seq, length):
            states.proven(head)
            return seq, length
        states.drop(head, "the engine does not take it")
        self._empty(seq)
        return None

    @staticmethod
    def _spares(wanted: Entry, head: Head) -> int:
        return common(wanted.tokens, head.tokens, len(wanted.tokens) - 1)

    def _let_go(self, entries: list[Entry]) -> None:
        for entry in entries:
            self._counts["evictions"] += 1
            if entry.seq in self._unsaved and self._states:
                if self._states.busy:  # nobody's words wait for a disk
                    self._counts["evicted_unsaved"] += 1
                else:
                    self._save(entry)
            self._empty(entry.seq)

    def _save(self, entry: Entry) -> None:
        self._unsaved.pop(entry.seq, None)
        facts = self._facts
        if facts is None or self._states is None:
            return
        if facts.kv_bytes * len(entry.tokens) > self._states.limit_bytes * facts.cells:
            return  # too large to be kept: not worth a copy in memory
        payload = self._engine.save(entry.seq)
        if payload is not None:
            whose = StateFacts(
                facts.fingerprint, facts.state_kind, entry.scope, entry.keep, entry.variant
            )
            self._states.write(whose, list(entry.tokens), payload)

    def _empty(self, seq: int) -> None:
        self._unsaved.pop(seq, None)
        self._engine.clear(seq)
        self._free.append(seq)

    def _store(self, request: Load, facts: Facts) -> StateStore | None:
        if self._scratch is None or request.state_bytes <= 0 or not facts.fingerprint:
            return None
        store = StateStore(
            self._scratch,
            limit_bytes=request.state_bytes,
            fingerprint=facts.fingerprint,
            kind=facts.state_kind,
            run=self._run,
        )
        try:
            store.open()
        except OSError as error:
            _log.warning("cannot save states: %s", error)
            return None
        return store


def public(engine: Engine, prompts: Sequence[str]) -> list[list[int]]:
    """Tokens of system prompts as far as they do not depend on what is asked."""
    out = []
    for prompt in prompts:
        asked = [
            engine.encode(engine.render((Message("system", prompt), Message("user", question))))
            for question in ("a", "1")
        ]
        length = common(asked[0], asked[1], len(asked[0]))
        out.append(asked[0][:length])
    return out


def _entries(jobs: Iterable[Job]) -> list[Entry]:
    return [_entry(job, job.seq, job.evaluated) for job in jobs]


def _entry(job: Job, seq: int, length: int) -> Entry:
    request = job.request
    variant = ",".join(f"{name}*{scale:g}" for name, scale in job.adapters)
    # adapters come from files that a fingerprint of the model does not tell apart
    keep = request.keep if request.scope and not variant else ""
    tokens = job.tokens if length == len(job.tokens) else job.tokens[:length]
    scope = request.scope if job.shareable else ""
    return Entry(seq, list(tokens), scope, variant, keep)
