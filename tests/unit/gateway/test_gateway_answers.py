"""Records become chunks and whole answers in the form that strict clients want."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stoker.gateway.answers import Choice, Chunks, Head, whole
from stoker_client.records import Record, parse

HEAD = Head("chatcmpl-1", 1700000000, "tiny")
USAGE = {"prompt_tokens": 5, "completion_tokens": 3, "cached_tokens": 2}
DONE = {"done": {"finish_reason": "stop-string", "usage": USAGE, "timings": {"ttft_ms": 4}}}
TOOL = {"tool": {"id": "call_a", "name": "sum", "arguments": '{"a":1}'}}
LP = {"token": "Hi", "logprob": -0.5, "top_logprobs": [{"token": "Ho", "logprob": -1.0}]}


def records(*lines: Any) -> list[Record]:
    return [parse(json.dumps(line).encode()) for line in lines]


def streamed(*batches: list[Record], head: Head = HEAD, **more: Any) -> list[dict[str, Any]]:
    chunks = Chunks(head, [Choice(0)], **more)
    found = list(chunks.first())
    for batch in batches:
        found += chunks.of(0, batch)
    return found + list(chunks.last())


def test_every_chunk_is_complete() -> None:
    found = streamed(records({"t": "a"}), records({"t": "b"}, DONE), include_usage=True)
    for chunk in found:
        assert chunk["id"] == "chatcmpl-1"
        assert chunk["object"] == "chat.completion.chunk"
        assert (chunk["created"], chunk["model"]) == (1700000000, "tiny")
        for choice in chunk["choices"]:
            assert set(choice) == {"index", "delta", "finish_reason", "logprobs"}
    assert found[0]["choices"][0]["delta"]["role"] == "assistant"
    assert [c["choices"][0]["finish_reason"] for c in found[:-1]] == [None, None, None, "stop"]
    assert found[-1]["choices"] == []
    assert found[-1]["usage"]["total_tokens"] == 8
    assert found[-1]["timings"] == {"ttft_ms": 4}
    assert all(chunk["usage"] is None for chunk in found[:-1])


def test_usage_is_told_only_to_whom_asked() -> None:
    assert all("usage" not in chunk for chunk in streamed(records({"t": "a"}, DONE)))


def test_what_came_together_is_sent_together() -> None:
    found = streamed(records({"r": "h"}, {"r": "m"}, {"t": "a"}, {"t": "b"}))
    deltas = [chunk["choices"][0]["delta"] for chunk in found[1:]]
    assert deltas == [{"reasoning_content": "hm"}, {"content": "ab"}]


def test_tool_calls_are_numbered_and_end_as_such() -> None:
    found = streamed(records(TOOL, TOOL, DONE))
    calls = [c["choices"][0]["delta"]["tool_calls"][0] for c in found[1:3]]
    assert [call["index"] for call in calls] == [0, 1]
    assert calls[0]["function"] == {"name": "sum", "arguments": '{"a":1}'}
    assert calls[0]["type"] == "function"
    assert found[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_a_whole_answer_has_all_of_it() -> None:
    choice = Choice(0)
    choice.take(records({"r": "hm"}, {"t": "Hi", "lp": [LP]}, TOOL, DONE))
    found = whole(HEAD, [choice], 1)
    message = found["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("Hi", "hm")
    assert message["tool_calls"][0]["id"] == "call_a"
    assert found["choices"][0]["logprobs"]["content"] == [LP]
    assert found["usage"]["prompt_tokens_details"] == {"cached_tokens": 2}


def test_logprobs_are_read_in_both_forms_that_the_record_may_have() -> None:
    for form in ([LP], {"content": [LP]}):
        found = streamed(records({"lp": form}, {"t": "Hi"}))
        assert found[1]["choices"][0]["logprobs"] == {"content": [LP]}


def test_what_was_left_out_of_the_request_is_told() -> None:
    done = {"done": {**DONE["done"], "omitted_messages": 2, "shifted_tokens": 0}}
    choice = Choice(0)
    choice.take(records({"t": "a"}, done))
    assert whole(HEAD, [choice], 1)["truncation"] == {"omitted_messages": 2}
    assert streamed(records(done))[-1]["truncation"] == {"omitted_messages": 2}


def test_likelihoods_go_with_their_text() -> None:
    (_first, second) = streamed(records({"t": "H"}, {"lp": [LP]}, {"t": "i"}, {"lp": [LP]}))
    assert second["choices"][0]["delta"] == {"content": "Hi"}
    assert second["choices"][0]["logprobs"] == {"content": [LP, LP]}


def test_only_tool_calls_have_no_content() -> None:
    choice = Choice(0)
    choice.take(records(TOOL, DONE))
    assert whole(HEAD, [choice], 1)["choices"][0]["message"]["content"] is None


def test_completions_have_their_own_form() -> None:
    head = Head("cmpl-1", 1, "tiny", chat=False)
    found = streamed(records({"t": "Hi", "lp": [LP]}, DONE), head=head, echo=["> "])
    assert {chunk["object"] for chunk in found} == {"text_completion"}
    assert [chunk["choices"][0]["text"] for chunk in found] == ["> ", "Hi", ""]
    legacy = found[1]["choices"][0]["logprobs"]
    assert legacy["tokens"] == ["Hi"]
    assert legacy["top_logprobs"] == [{"Ho": -1.0}]


def test_offsets_of_tokens_point_into_the_text_that_holds_the_prompt_too() -> None:
    choice = Choice(0)
    choice.take(records({"t": "HiHi", "lp": [LP, LP]}, DONE))
    (found,) = whole(Head("cmpl-1", 1, "tiny", chat=False), [choice], 1, ["> "])["choices"]
    assert found["text"] == "> HiHi"
    assert found["logprobs"]["text_offset"] == [2, 4]


def test_a_prompt_counts_once_however_many_choices_it_has() -> None:
    choices = [Choice(index) for index in range(4)]
    for choice in choices:
        choice.take(records({"t": "a"}, DONE))
    usage = whole(HEAD, choices, 2)["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (10, 12)


@given(st.lists(st.lists(st.text()), max_size=5))
def test_no_character_is_lost_however_records_are_batched(batches: list[list[str]]) -> None:
    found = streamed(*[records(*({"t": text} for text in batch)) for batch in batches])
    said = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in found)
    assert said == "".join("".join(batch) for batch in batches)
