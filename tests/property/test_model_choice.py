"""Which model a request means and when another one comes in, for any mix of jobs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.config.schema import ModelConfig
from stoker.core.model_choice import SHORTEST_STAY_S, Waiting, next_model, resolve
from stoker.units import Seconds

MODELS = (
    ModelConfig("a", "/a", aliases=("first", "one")),
    ModelConfig("b", "/b", aliases=("two",)),
    ModelConfig("c", "/c"),
)
jobs = st.lists(st.builds(Waiting, st.sampled_from(["", "a", "b", "c"])), max_size=8)


@given(name=st.sampled_from(["a", "b", "c", "first", "one", "two", "", "x", "A"]))
def test_a_name_means_one_model_or_none(name: str) -> None:
    found = resolve(name, MODELS)
    known = {n: m.name for m in MODELS for n in (m.name, *m.aliases)}
    assert found == known.get(name, "")


@given(
    policy=st.sampled_from(["never", "when-idle", "on-demand"]),
    waiting=jobs,
    running=st.integers(0, 4),
    stayed=st.floats(0, 60),
)
def test_a_model_comes_in_only_for_somebody_and_only_by_policy(
    policy: str, waiting: list[Waiting], running: int, stayed: float
) -> None:
    found = next_model(policy, "a", waiting, running=running, stayed_s=Seconds(stayed))
    others = [job.model for job in waiting if job.model not in ("", "a")]
    if not found:
        idle = not running and len(others) == len(waiting)
        waits = policy == "on-demand" and stayed >= SHORTEST_STAY_S
        assert policy == "never" or not others or not (idle or waits)
        return
    assert policy != "never"
    assert found == others[0]  # first come, first served
    if policy == "when-idle":
        assert not running
        assert len(others) == len(waiting)
