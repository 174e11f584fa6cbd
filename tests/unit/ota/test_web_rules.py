"""What a web server says, and what follows: ranges, redirects, waits, validators."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker_ota.core import web_rules
from stoker_ota.errors import InvalidRequest, OtaError, Unavailable

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    ["ftp://a/b", "http://a/b", "https:///x", "https://a:b@c/", "https://a/ b", "https://[::1/",
     "https://a:99999/", "file:///etc/passwd", "https://a/" + "x" * 5000, "", "https://a/\nb"],
)  # fmt: skip
def test_addresses_that_are_not_asked(text: str) -> None:
    with pytest.raises(InvalidRequest):
        web_rules.address(text, plain=False)


def test_addresses_that_are_asked() -> None:
    assert web_rules.address("https://a.example/x?y=1", plain=False)
    assert web_rules.address("http://localhost:8080/x", plain=True)


def test_a_redirect_may_be_relative_and_may_not_leave_tls() -> None:
    base = "https://a.example/x/y"
    assert web_rules.redirected(base, "../z", plain=False) == "https://a.example/z"
    assert web_rules.redirected(base, "//b.example/z", plain=False) == "https://b.example/z"
    nowhere = ("//@]", "//[", "https://[::1")  # found by fuzzing: urljoin raises
    for bad in ("http://a.example/", "javascript:x", "https://u:p@b.example/", *nowhere):
        with pytest.raises(InvalidRequest):
            web_rules.redirected(base, bad, plain=False)
    assert web_rules.same_host(base, "https://a.example/other")
    assert not web_rules.same_host(base, "https://a.example:444/other")


def test_names_below_and_beside_keep_a_query() -> None:
    base = "https://a/u?token=1"
    assert web_rules.below(base, "blobs/x") == "https://a/u/blobs/x?token=1"
    assert web_rules.below("https://a/u/", "x") == "https://a/u/x"
    assert web_rules.beside("https://a/f?t=1", ".chunks") == "https://a/f.chunks?t=1"


def test_a_part_is_the_one_that_was_asked_for() -> None:
    assert web_rules.check_range("bytes 10-19/100", 10, 100) == 10
    for header in ("", "bytes 10-19/*", "bytes 11-19/100", "bytes 10-100/100", "bytes 10-9/100",
                   "bytes 10-19/101", "items 10-19/100"):  # fmt: skip
        with pytest.raises(Unavailable):
            web_rules.check_range(header, 10, 100)


@given(st.text(max_size=60), st.integers(0, 100), st.integers(0, 100))
def test_any_header_is_a_length_or_a_reason(text: str, first: int, total: int) -> None:
    with contextlib.suppress(OtaError):
        assert 0 < web_rules.check_range(text, first, total) <= total
    wait = web_rules.retry_after_s(text, NOW)
    assert wait is None or wait >= 0


def test_a_length_is_a_number_or_none_was_told() -> None:
    assert web_rules.told_length(" 120\x1f") == 120  # found by fuzzing: int strips less
    for header in ("", "²", "-1", "1e3", "9" * 5000):  # "²" is a digit, but no number
        assert web_rules.told_length(header) == -1


def test_waits_are_seconds_or_a_date() -> None:
    assert web_rules.retry_after_s("120", NOW) == 120
    assert web_rules.retry_after_s("Thu, 01 Jan 2026 00:01:00 GMT", NOW) == 60
    assert web_rules.retry_after_s("Wed, 31 Dec 2025 00:00:00 GMT", NOW) == 0
    assert web_rules.retry_after_s("soon", NOW) is None
    huge = "Thu, 01 Jan 99999999999999999999 00:00:00 GMT"  # found by fuzzing
    assert web_rules.retry_after_s(huge, NOW) is None
    assert web_rules.retry_after_s(None, NOW) is None


def test_only_a_strong_tag_or_a_date_marks_a_version() -> None:
    assert web_rules.validator('"abc"', None) == '"abc"'
    assert web_rules.validator('W/"abc"', "Thu, 01 Jan 2026 00:00:00 GMT") == ""
    date = "Thu, 01 Jan 2026 00:00:00 GMT"
    assert web_rules.validator(None, date) == date
    assert web_rules.validator('"a"\r\nX: y"', None) == ""
