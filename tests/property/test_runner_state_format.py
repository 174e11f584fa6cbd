"""Files of saved states: what was packed comes back, and no changed byte is believed."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stoker.runner import state_format as form
from stoker.runner.state_format import Facts, StateFormatError

TEXTS = st.text(max_size=40)
FACTS = st.builds(Facts, TEXTS, TEXTS, TEXTS, TEXTS, TEXTS)
TOKENS = st.lists(st.integers(0, (1 << 32) - 1), max_size=60)


def read(data: bytes) -> tuple[form.Head, bytes]:
    """As the store does it."""
    before = data[: form.head_bytes(data[: form.FIXED_BYTES])]
    head = form.parse(before, len(data))
    payload = data[head.payload_at :]
    form.check(before, memoryview(payload))
    return head, payload


@settings(deadline=None)
@given(FACTS, TOKENS, st.binary(max_size=200))
def test_what_was_packed_comes_back(facts: Facts, tokens: list[int], payload: bytes) -> None:
    data = form.pack(facts, tokens, memoryview(payload)) + payload
    head, found = read(data)
    assert (head.facts, head.tokens, found) == (facts, tokens, payload)
    assert head.file_bytes == len(data)


@settings(deadline=None)
@given(FACTS, TOKENS, st.binary(max_size=60), st.data())
def test_a_changed_byte_is_found(
    facts: Facts, tokens: list[int], payload: bytes, data: st.DataObject
) -> None:
    whole = bytearray(form.pack(facts, tokens, memoryview(payload)) + payload)
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(StateFormatError):
        read(bytes(whole))


@settings(deadline=None)
@given(FACTS, TOKENS, st.binary(max_size=60), st.data())
def test_a_cut_or_grown_file_is_found(
    facts: Facts, tokens: list[int], payload: bytes, data: st.DataObject
) -> None:
    whole = form.pack(facts, tokens, memoryview(payload)) + payload
    cut = data.draw(st.integers(0, len(whole) - 1))
    for wrong in (whole[:cut], whole + b"\0"):
        with pytest.raises(StateFormatError):
            read(wrong)


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_other_bytes_are_refused_without_harm(data: bytes) -> None:
    assume(not data.startswith(form.MAGIC))
    with pytest.raises(StateFormatError):
        read(data)
