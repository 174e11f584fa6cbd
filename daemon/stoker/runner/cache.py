"""Gives jobs their sequences: empty ones, or ones that hold the beginning of their tokens.

Carries out what ``prefixes`` decides on the engine, and moves conversations between the
cells and the saved states. A job's trouble with the cache is never more than a slow prefill.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from stoker.events.prompt import Message
from stoker.events.runner import Load
from stoker.runner.engine import Engine, Facts
from stoker.runner.jobs import Job
from stoker.runner.prefixes import Entry, Match, Prefixes, common
from stoker.runner.state_format import Facts as StateFacts
from stoker.runner.state_format import Head
from stoker.runner.states import Run, StateStore, in_thread

MIN_SAVED_TOKENS: Final = 32  # fewer are evaluated sooner than written
MIN_RESTORE_GAIN: Final = 32  # tokens that a file must spare beyond what the cells do
_log = logging.getLogger(__name__)


class SequenceCache:
    """``scratch`` None = nothing is saved to disk; ``run`` runs what writes to it."""

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
        self.forget_all()

    def forget_all(self) -> None:
        """The engine's sequences are gone; what is on disk stays."""
        self._facts: Facts | None = None
        self._prefixes = Prefixes(entries=0, cells=0)
        self._free: list[int] = []
        self._unsaved: dict[int, float] = {}  # idle conversations, and since when

    def begin(self, request: Load, facts: Facts, public: list[list[int]]) -> None:
        """A context is there, all its sequences empty."""
        self.forget_all()
        self._facts = facts
        most = facts.sequences - facts.slots if facts.caches else 0
        self._prefixes = Prefixes(entries=most, cells=facts.cells, public=public)
        self._free = list(range(facts.sequences - 1, -1, -1))
        self._idle_s = request.state_idle_ms / 1000.0
        self._states = self._store(request, facts) if most else None

    def claim(self, job: Job, running: Iterable[Job]) -> tuple[int, int]:
        """A sequence for the job and how many of its tokens it holds already.

        There is always one: slots and kept prefixes together are as many as sequences.
        """
        wanted = _entry(job, -1, len(job.tokens))
        others = [_entry(other, other.seq, other.evaluated) for other in running]
        match = self._prefixes.match(wanted, others)
        head = self._saved(wanted, match.length if match else 0)
        found = self._restored(wanted, head, others) if head else None
        if found is None:
            if head:  # room was made for it, perhaps of what had matched
                match = self._prefixes.match(wanted, others)
            found = self._reused(match) if match else (self._free.pop(), 0)
        if wanted.scope:
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

    def settle(self, until_s: float) -> None:
        """The end is near: save what is not saved yet, the latest first, as far as time goes."""
        if self._states is None:
            return
        self._states.finish()
        for entry in reversed(list(self._prefixes)):
            if self._clock() >= until_s:
                return
            if entry.seq in self._unsaved:
                self._save(entry)
                self._states.finish()

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
        if self._states is None or not wanted.scope or not wanted.keep:
            return None
        head = self._states.find(wanted.scope, wanted.keep, wanted.variant)
        if head is None or self._spares(wanted, head) < held + MIN_RESTORE_GAIN:
            return None
        return head

    def _restored(self, wanted: Entry, head: Head, running: list[Entry]) -> tuple[int, int] | None:
        states, facts = self._states, self._facts
        payload = states.read(head) if states else None
        if states is None or facts is None or payload is None:
            return None
        used = sum(len(entry.tokens) for entry in running) + len(head.tokens)
        self._let_go(self._prefixes.shrink(max(facts.cells - used, 0)))
        seq, length = self._free.pop(), self._spares(wanted, head)
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


def _entry(job: Job, seq: int, length: int) -> Entry:
    request = job.request
    variant = ",".join(f"{name}*{scale:g}" for name, scale in job.adapters)
    # adapters come from files that a fingerprint of the model does not tell apart
    keep = request.keep if request.scope and not variant else ""
    tokens = job.tokens if length == len(job.tokens) else job.tokens[:length]
    scope = request.scope if job.shareable else ""
    return Entry(seq, list(tokens), scope, variant, keep)
