"""Every message between stokerd and the runner survives the trip, and nothing else does."""

from __future__ import annotations

import dataclasses
import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.core import frames
from stoker.errors import InvalidRequest
from stoker.events import runner

REQUESTS = typing.get_args(runner.Request)
EVENTS = typing.get_args(runner.Event)
SAMPLES: dict[str, st.SearchStrategy[object]] = {
    "str": st.text(max_size=20),
    "int": st.integers(-(1 << 63), (1 << 64) - 1),
    "float": st.floats(-1e9, 1e9),
    "bool": st.booleans(),
    "tuple[str, ...]": st.lists(st.text(max_size=5), max_size=3).map(tuple),
    "tuple[int, int] | None": st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9)),
    "Mapping[str, object]": st.dictionaries(st.text(max_size=5), st.integers(), max_size=3),
    "Mapping[str, object] | None": st.none() | st.dictionaries(st.text(max_size=5), st.integers()),
}


def sample(cls: type) -> st.SearchStrategy[object]:
    fields = {field.name: of_kind(str(field.type)) for field in dataclasses.fields(cls)}
    return st.builds(cls, **fields)


def of_kind(kind: str) -> st.SearchStrategy[object]:
    if kind in SAMPLES:
        return SAMPLES[kind]
    inner = kind.removeprefix("tuple[").removesuffix(", ...]")
    one = sample(getattr(runner, inner))
    return one if inner == kind else st.lists(one, max_size=3).map(tuple)


@pytest.mark.parametrize("cls", [*REQUESTS, *EVENTS])
@given(data=st.data())
def test_every_message_survives_the_trip(cls: type, data: st.DataObject) -> None:
    message = typing.cast("runner.Request", data.draw(sample(cls)))
    parse = runner.parse_request if cls in REQUESTS else runner.parse_event
    (body,) = frames.FrameDecoder().feed(frames.encode(runner.to_body(message)))
    assert parse(body) == message


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"k": "nonsense"},
        {"k": "cancel"},
        {"k": "cancel", "job": 7},
        {"k": "cancel", "job": "a", "more": 1},
        {"k": "generate", "job": "a", "messages": [{"role": "user"}]},
        {"k": "generate", "job": "a", "sampling": {"temperature": "hot"}},
        {"k": "threads", "id": "a", "threads": True, "threads_batch": 1},
        {"k": "load", "id": "a", "model": "m", "path": "p", "slots": 1 << 70},
    ],
)
def test_what_does_not_fit_is_refused_with_its_path(body: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        runner.parse_request(body)
    assert "path" in caught.value.details


@pytest.mark.parametrize("pair", [[1], [1, 2, 3], "12", [1, "2"], [True, False]])
def test_a_progress_that_is_no_pair_is_refused(pair: object) -> None:
    body = {"k": "deltas", "items": [{"job": "a", "p": pair}]}
    with pytest.raises(InvalidRequest):
        runner.parse_event(body)


@pytest.mark.parametrize(
    "items", [[{"job": "a", "t": 1}], [{"job": 7, "t": "x"}], [{"t": "x", "r": "y"}], ["x"], {}]
)
def test_texts_that_are_none_are_refused(items: object) -> None:
    with pytest.raises(InvalidRequest):
        runner.parse_event({"k": "deltas", "items": items})


def test_more_deltas_than_a_frame_may_have_are_refused() -> None:
    one = {"job": "a", "t": "x"}
    assert len(runner.parse_event({"k": "deltas", "items": [one] * 4096}).items) == 4096  # type: ignore[union-attr]
    with pytest.raises(InvalidRequest):
        runner.parse_event({"k": "deltas", "items": [one] * 4097})


def test_fields_at_their_default_cost_no_bytes() -> None:
    one = runner.Deltas((runner.Delta("j", t="x"),))
    assert runner.to_body(one) == {"k": "deltas", "items": [{"job": "j", "t": "x"}]}
