"""What the process that applies a delta may say, and what is made of its end."""

from __future__ import annotations

import signal

import pytest

from stoker_ota.core import apply_talk
from stoker_ota.core.apply_talk import Ending, Job, Said, Step
from stoker_ota.errors import (
    BadDelta,
    BadDocument,
    InternalError,
    NoMemory,
    OtaError,
    ResultHash,
    Unavailable,
    all_errors,
)

JOB = Job(b"i" * 32, 4096)


def test_a_job_comes_back_and_a_wrong_one_is_refused() -> None:
    assert apply_talk.parse_job(apply_talk.job_line(JOB)) == JOB
    assert len(apply_talk.job_line(Job(b"i" * 32, 1 << 62))) < apply_talk.MAX_JOB_BYTES
    for line in (b"", b"[]", b"{}", b'{"index_sha256": "zz", "size": 1}',
                 b'{"index_sha256": "00", "size": -1}'):  # fmt: skip
        with pytest.raises(BadDocument):
            apply_talk.parse_job(line)


def test_steps_come_back_from_any_pieces() -> None:
    line = apply_talk.step_line(Step("apply", 3, 9)) * 3
    for size in (1, 7, len(line)):
        said = Said()
        heard = [
            step for at in range(0, len(line), size) for step in said.hear(line[at : at + size])
        ]
        assert heard == [Step("apply", 3, 9)] * 3
        assert not said.over


@pytest.mark.parametrize(
    "line",
    [
        b'{"phase": "formatting your disk", "done": 1, "total": 2}',
        b'{"phase": "apply", "done": 3, "total": 2}',
        b'{"phase": "apply", "done": -1, "total": 2}',
        b'{"applied": 1.0}',
        b'{"applied": "true"}',
        b"[]",
    ],
)
def test_what_it_should_not_say_is_not_heard(line: bytes) -> None:
    said = Said()
    assert said.hear(line + b"\n") == []
    assert not said.over


def test_the_first_last_word_counts() -> None:
    said = Said()
    said.hear(apply_talk.error_line(ResultHash("cannot apply: hash")) + apply_talk.applied_line())
    with pytest.raises(ResultHash):
        apply_talk.judge(said, Ending())


@pytest.mark.parametrize("cls", all_errors(), ids=lambda cls: cls.code)
def test_only_errors_that_applying_has_keep_their_class(cls: type[OtaError]) -> None:
    """A process that was taken over must not say "cancelled", or "unhealthy", in our name."""
    said = Said()
    said.hear(apply_talk.error_line(cls("cannot apply: x" * 100)))
    assert said.error is not None
    allowed = {"bad-delta", "chunk-hash", "result-hash", "source-mismatch", "file-unreadable",
               "no-space", "storage-failed", "no-memory"}  # fmt: skip
    assert type(said.error) is (cls if cls.code in allowed else InternalError)
    assert len(said.error.message) <= 300


@pytest.mark.parametrize(
    ("how", "error"),
    [
        (Ending(out_of_memory=True, signum=signal.SIGSEGV), NoMemory),
        (Ending(signum=signal.SIGKILL), NoMemory),
        (Ending(signum=signal.SIGTERM), Unavailable),
        (Ending(signum=signal.SIGTERM, too_long=True), InternalError),
        (Ending(signum=signal.SIGSEGV), BadDelta),
        (Ending(status=1), InternalError),
        (Ending(), InternalError),
    ],
)
def test_an_end_without_a_word_says_what_it_can(how: Ending, error: type[OtaError]) -> None:
    with pytest.raises(error):
        apply_talk.judge(Said(), how)


def test_more_than_an_honest_process_says_is_too_much() -> None:
    said = Said()
    said.hear(apply_talk.applied_line())
    for _ in range(apply_talk.MAX_SAID_BYTES // 65536 - 1):
        said.hear(b"\n" * 65536)
    with pytest.raises(BadDelta, match="too much"):
        said.hear(b"\n" * 65536)
    with pytest.raises(BadDelta, match="too much"):
        Said().hear(b"a" * (apply_talk.MAX_LINE_BYTES + 1))
