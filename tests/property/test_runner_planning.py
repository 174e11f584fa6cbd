"""No batch the planner composes can break the engine or starve a job."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.runner.planning import Costs, Waiting, compose

_SEQS = st.lists(st.integers(0, 63), unique=True, max_size=12)


@given(_SEQS, st.lists(st.integers(1, 3000), max_size=12), st.integers(1, 600), st.integers(0, 700))
def test_batch_keeps_its_limits_and_serves_decoding_first(
    seqs: list[int], lengths: list[int], limit: int, budget: int
) -> None:
    decoding, rest = seqs[: len(seqs) // 2], seqs[len(seqs) // 2 :]
    waiting = [Waiting(seq, length) for seq, length in zip(rest, lengths, strict=False)]
    parts = compose(decoding, waiting, limit=limit, budget=budget)
    counts = [part.count for part in parts]
    assert sum(counts) <= limit
    assert all(count > 0 for count in counts)
    assert len({part.seq for part in parts}) == len(parts)
    served = decoding[:limit]
    assert [(part.seq, part.count) for part in parts[: len(served)]] == [(s, 1) for s in served]
    filled = parts[len(served) :]
    assert sum(part.count for part in filled) <= budget
    left = {item.seq: item.remaining for item in waiting}
    for part in filled:
        assert part.logits == (part.count == left[part.seq])
    room = min(limit - len(served), budget)
    assert sum(part.count for part in filled) == max(0, min(room, sum(left.values())))
    if filled:  # the oldest has its half, of the others only the last one served may be cut short
        assert filled[0].seq == waiting[0].seq
        assert filled[0].count >= min(waiting[0].remaining, -(-room // 2))
        assert all(part.count == left[part.seq] for part in filled[1:-1])


def test_a_few_words_do_not_wait_for_pages() -> None:
    parts = compose([], [Waiting(0, 3000), Waiting(1, 900), Waiting(2, 20)], limit=512, budget=400)
    assert [(part.seq, part.count, part.logits) for part in parts] == [
        (0, 200, False), (2, 20, True), (1, 180, False),
    ]  # fmt: skip


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=8), st.integers(1, 600))
def test_every_prompt_is_evaluated_once_and_ends_with_logits(
    lengths: list[int], limit: int
) -> None:
    left = dict(enumerate(lengths))
    for _ in range(sum(lengths) + 1):
        if not left:
            break
        waiting = [Waiting(seq, count) for seq, count in left.items()]
        for part in compose([], waiting, limit=limit, budget=limit):
            left[part.seq] -= part.count
            assert left[part.seq] >= 0
            if left[part.seq] == 0:
                assert part.logits
                del left[part.seq]
    assert not left


@given(
    st.floats(0, 1e5), st.integers(1, 4096), st.integers(0, 64), st.floats(1, 60_000),
    st.floats(0, 1e5),
)  # fmt: skip
def test_prefill_budget_is_always_between_one_and_the_limit(
    elapsed_ms: float, limit: int, decoding: int, target_ms: float, decode_ms: float
) -> None:
    costs = Costs()
    costs.learn(elapsed_ms=decode_ms, decoding=1, prefill_tokens=0)
    costs.learn(elapsed_ms=elapsed_ms, decoding=decoding, prefill_tokens=32)
    assert 1 <= costs.budget(decoding=decoding, target_ms=target_ms, limit=limit) <= limit


@given(st.floats(0.05, 50), st.floats(50, 500))
def test_learnt_chunk_lasts_about_the_target(ms_per_token: float, target_ms: float) -> None:
    costs = Costs()
    for _ in range(30):
        costs.learn(elapsed_ms=64 * ms_per_token, decoding=0, prefill_tokens=64)
    chunk = costs.budget(decoding=1, target_ms=target_ms, limit=8192)
    assert chunk * ms_per_token <= target_ms * 1.01 or chunk == 8
