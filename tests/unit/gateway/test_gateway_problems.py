"""Errors of the agent as HTTP and OpenAI's clients know them."""

from __future__ import annotations

import pytest

from stoker.api import errormap
from stoker.gateway.problems import OWN, ROWS, Problem, openai_error, tell
from stoker_client.errors import RETRYABLE, StokerClientError


def test_each_code_of_the_agent_has_a_row_with_the_agents_own_status() -> None:
    theirs = {row.code: row.http_status for row in errormap.ROWS}
    assert {code: row.status for code, row in ROWS.items() if code not in OWN} == theirs
    assert set(ROWS) >= OWN
    assert not OWN & set(theirs)


def test_a_problem_carries_openais_error_too() -> None:
    error = StokerClientError("invalid-request", "cannot read it", details={"path": "request.seed"})
    told = tell(error, "abc")
    assert told.status == told.body["status"] == 400
    assert told.body["type"] == "urn:stoker:error:invalid-request"
    assert told.body["title"] == "Bad Request"
    assert told.body["detail"] == "cannot read it"
    assert told.body["instance"] == "urn:stoker:request:abc"
    assert told.body["error"] == {
        "message": "cannot read it", "type": "invalid_request_error", "param": "seed",
        "code": "invalid_request",
    }  # fmt: skip


def test_langchain_finds_the_word_that_it_looks_for() -> None:
    error = StokerClientError("context-length-exceeded", "cannot read prompt: 900 of 512")
    assert "context_length_exceeded" in openai_error(error)["message"]


@pytest.mark.parametrize(("wait_ms", "header"), [(1, "1"), (1001, "2"), (10**12, "3600")])
def test_the_time_to_wait_is_whole_seconds(wait_ms: int, header: str) -> None:
    error = StokerClientError("quota-exceeded", "no", details={"retry_after_ms": wait_ms})
    told = tell(error)
    assert (told.status, told.headers) == (429, {"retry-after": header})


@pytest.mark.parametrize("code", sorted(set(ROWS) - OWN))
def test_only_what_may_succeed_later_is_tried_again(code: str) -> None:
    told = tell(StokerClientError(code, "no"))
    would_retry = told.status >= 500 or told.status in (408, 409, 429)
    told_not_to = told.headers.get("x-should-retry") == "false"
    assert told_not_to == (would_retry and code not in RETRYABLE)


def test_an_unknown_code_is_an_internal_error_and_a_hint_is_shown() -> None:
    told = tell(StokerClientError("from-the-future", "odd", hint="update"))
    assert (told.status, told.body["type"]) == (500, "urn:stoker:error:internal")
    assert told.body["hint"] == "update"
    assert "update" in told.body["error"]["message"]


def test_who_has_no_token_is_told_how_to_come() -> None:
    assert tell(Problem("invalid-api-key", "no")).headers == {"www-authenticate": "Bearer"}
