"""The prefix cache as a machine: whatever comes, nothing crosses scopes or passes its bounds."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from stoker.runner.prefixes import MIN_REUSE, Entry, Prefixes, common

TOKENS = st.lists(st.integers(0, 2), max_size=24)
SCOPES = st.sampled_from(["", "alice", "bob"])
KEEPS = st.sampled_from(["", "talk", "other"])
VARIANTS = st.sampled_from(["", "lora*1"])
PUBLIC = [[0, 1, 2, 0, 1, 2]]


@settings(deadline=None)
@given(TOKENS, TOKENS, st.integers(-1, 30))
def test_common_is_the_longest_prefix_both_have(
    one: list[int], other: list[int], most: int
) -> None:
    length = common(one, other, most)
    assert 0 <= length <= max(most, 0)
    assert one[:length] == other[:length]
    longer = length + 1
    assert longer > min(most, len(one), len(other)) or one[:longer] != other[:longer]


@given(st.integers(0, 900), st.integers(0, 900), st.booleans())
@settings(max_examples=50, deadline=None)
def test_common_of_long_lists_is_exact(length: int, more: int, same: bool) -> None:
    one = list(range(length)) + [-1] * more
    other = list(range(length)) + [-1 if same else -2] * more
    assert common(one, other, 10_000) == length + (more if same else 0)


class Machine(RuleBasedStateMachine):
    """The model: a list of entries, least recently used first, as the rules say it."""

    @initialize(entries=st.integers(0, 4), cells=st.integers(0, 60), shared=st.booleans())
    def begin(self, entries: int, cells: int, shared: bool) -> None:
        self.most, self.room = entries, cells
        self.public = PUBLIC if shared else []
        self.prefixes = Prefixes(entries=entries, cells=cells, public=self.public)
        self.model: list[Entry] = []
        self.seq = 0

    @rule(tokens=TOKENS, scope=SCOPES, variant=VARIANTS, keep=KEEPS)
    def add(self, tokens: list[int], scope: str, variant: str, keep: str) -> None:
        self.seq += 1
        entry = Entry(self.seq, tokens, scope, variant, keep)
        before = [*self.model, entry]
        gone = self.prefixes.add(entry)
        assert len({item.seq for item in gone}) == len(gone)
        assert all(item in before for item in gone)
        self.model = [item for item in before if item not in gone]
        if keep and scope and entry in self.model:
            whose = (scope, variant, keep)
            assert [e for e in self.model if (e.scope, e.variant, e.keep) == whose] == [entry]

    @rule(tokens=TOKENS, scope=SCOPES, variant=VARIANTS, keep=KEEPS, running=st.lists(TOKENS))
    def ask(
        self, tokens: list[int], scope: str, variant: str, keep: str, running: list[list[int]]
    ) -> None:
        others = [Entry(1000 + n, held, "bob", "") for n, held in enumerate(running)]
        match = self.prefixes.match(Entry(-1, tokens, scope, variant, keep), others)
        if match is None:
            for entry in [*self.model, *others]:
                if entry.scope == scope != "" and entry.variant == variant:
                    assert common(tokens, entry.tokens, len(tokens) - 1) < MIN_REUSE
            return
        assert scope, "without a scope nothing is reused"
        (source,) = [e for e in [*self.model, *others] if e.seq == match.seq]
        assert match.length <= len(tokens) - 1
        assert source.tokens[: match.length] == tokens[: match.length]
        assert source.variant == variant
        if source.scope != scope:
            assert not match.take
            assert any(tokens[: match.length] == p[: match.length] and match.length <= len(p)
                       for p in self.public)  # fmt: skip
        if match.take:
            assert source in self.model, "the sequence of a running job is its own"
            assert source.keep in ("", keep)
            self.prefixes.take(source.seq)
            self.model.remove(source)
        elif source in self.model:
            self.model.remove(source)
            self.model.append(source)

    @rule()
    def evict(self) -> None:
        gone = self.prefixes.evict()
        assert gone == (self.model.pop(0) if self.model else None)

    @rule(scope=SCOPES, keep=KEEPS)
    def forget(self, scope: str, keep: str) -> None:
        gone = self.prefixes.forget(scope, keep)
        assert all(item.scope == scope and keep in ("", item.keep) for item in gone)
        self.model = [item for item in self.model if item not in gone]
        assert not [e for e in self.model if e.scope == scope and keep in ("", e.keep)]

    @rule(cells=st.integers(0, 40))
    def shrink(self, cells: int) -> None:
        for gone in self.prefixes.shrink(cells):
            assert gone == self.model.pop(0), "the least recently used goes first"
        assert self.prefixes.cells <= cells

    @invariant()
    def bounds_hold(self) -> None:
        if not hasattr(self, "prefixes"):
            return
        assert list(self.prefixes) == self.model
        assert len(self.prefixes) <= self.most
        assert self.prefixes.cells == sum(len(item.tokens) for item in self.model) <= self.room


TestPrefixes = Machine.TestCase
TestPrefixes.settings = settings(max_examples=60, deadline=None, stateful_step_count=25)
