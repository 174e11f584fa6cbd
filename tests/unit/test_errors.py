"""The error tree: stable codes, and records that carry what a caller can use."""

from __future__ import annotations

import re

import pytest

from stoker import errors
from stoker.errors import Busy, InternalError, StokerError


def test_every_code_is_kebab_case_and_its_own() -> None:
    codes = [cls.code for cls in errors.all_errors()]
    assert len(codes) == len(set(codes))
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", code) for code in codes)


def test_no_class_of_the_tree_is_missing_from_the_list() -> None:
    def below(cls: type[StokerError]) -> set[type[StokerError]]:
        found = set(cls.__subclasses__())
        return found.union(*(below(sub) for sub in found)) if found else found

    ours = {cls for cls in below(StokerError) if cls.__module__ == errors.__name__}
    assert ours == set(errors.all_errors())


@pytest.mark.parametrize("cls", errors.all_errors())
def test_a_code_leads_back_to_its_class(cls: type[StokerError]) -> None:
    assert errors.by_code(cls.code) is cls


def test_an_unknown_code_is_a_fault_of_ours() -> None:
    assert errors.by_code("from-the-future") is InternalError


def test_a_record_holds_what_is_there_and_nothing_empty() -> None:
    assert InternalError("x").record() == {"code": "internal", "message": "x"}
    full = Busy("cannot accept job: full", hint="later", details={"retry_after_ms": 40}).record()
    assert full == {
        "code": "busy",
        "message": "cannot accept job: full",
        "hint": "later",
        "retryable": True,
        "details": {"retry_after_ms": 40},
    }


def test_whoever_is_told_busy_is_told_when_to_come_back() -> None:
    assert Busy("cannot open a stream: too many").details == {"retry_after_ms": 1000}
    found = errors.by_code("busy")("x", details={"retry_after_ms": 7, "more": 1})
    assert found.details == {"retry_after_ms": 7, "more": 1}
