"""Requests in memory files: what was sealed comes back, and no content raises anything untyped."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.api.handover import read_request, sealed
from stoker.errors import InvalidRequest, RequestTooLarge
from stoker_client import handover as client
from stoker_client.requests import Pairs

LIMIT = 100_000
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | text,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(text, inner, max_size=5),
    max_leaves=30,
)


def read(content: bytes) -> dict[str, object]:
    fd = sealed(content)
    try:
        return read_request(fd, LIMIT)
    finally:
        os.close(fd)


@given(st.dictionaries(text, values, max_size=8), st.booleans())
def test_any_object_comes_back_as_it_was(request: dict[str, object], ascii_only: bool) -> None:
    infinite = json.dumps(request, ensure_ascii=ascii_only)
    if "Infinity" not in infinite:
        assert read(infinite.encode()) == request


@given(st.binary(max_size=400) | st.text(max_size=200).map(lambda t: t.encode(errors="replace")))
@settings(max_examples=300)
def test_any_bytes_are_read_or_refused_by_type(content: bytes) -> None:
    with contextlib.suppress(InvalidRequest, RequestTooLarge):
        assert isinstance(read(content), dict)


def test_only_who_sent_no_sealed_memory_file_is_told_how_to_make_one() -> None:
    with pytest.raises(InvalidRequest, match="a number has 5000 digits") as wrong:
        read(b'{"seed": %s}' % (b"9" * 5000))
    assert wrong.value.hint == ""
    with Path(os.devnull).open("rb") as file, pytest.raises(InvalidRequest) as wrong:
        read_request(file.fileno(), LIMIT)
    assert "memfd_create" in wrong.value.hint


@given(st.text('[]{},:"\\ 01eE+-.ntfalsr\n', max_size=300))
@settings(max_examples=300)
def test_almost_json_is_what_python_says_of_it(content: str) -> None:
    """The count before the parser refuses nothing small, and nothing is read otherwise."""
    wanted: object = None
    with contextlib.suppress(ValueError):
        wanted = json.loads(content)
    with contextlib.suppress(InvalidRequest):  # no object, or a key comes twice
        assert read(content.encode()) == wanted


@given(text, st.lists(st.fixed_dictionaries({"role": text, "content": text}), max_size=4))
def test_what_the_client_seals_is_what_the_agent_reads(
    prompt: str, messages: list[dict[str, str]]
) -> None:
    pairs: Pairs = {"prompt": ("s", prompt), "messages": ("aa{ss}", messages), "seed": ("x", 7)}
    fd = client.sealed(pairs)
    try:
        found = read_request(fd, LIMIT)
    finally:
        os.close(fd)
    assert found == {"prompt": prompt, "messages": messages, "seed": 7}


@given(st.integers(0, 2 * client.BYTES), st.integers(0, 4))
def test_only_large_requests_go_as_files(size: int, turns: int) -> None:
    pairs: Pairs = {"messages": ("aa{ss}", [{"role": "", "content": "x" * size}] * turns)}
    assert client.worth_it(pairs) == (size * turns >= client.BYTES)
