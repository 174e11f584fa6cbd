"""What of a conversation goes to the model, and what of it is kept.

Pure: turns and numbers in, messages or verdicts out. Nothing is left out in silence:
every plan says how many answered turns did not fit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from stoker.events.prompt import Message
from stoker.events.sessions import DONE, FAILED, PARTIAL, Session, Settings, Turn

BYTES_PER_TOKEN: Final = 3  # text has 3..4.5 bytes a token in common vocabularies; low is safe
MESSAGE_TOKENS: Final = 8  # what a chat template puts around a message
SESSION_BYTES: Final = 512  # of a session in the file, beside its text
TURN_BYTES: Final = 256
TITLE_CHARACTERS: Final = 60
ANSWERED: Final = (DONE, PARTIAL)
EXPORT_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Window:
    """How much of a conversation goes along; 0 tokens or bytes = no such bound."""

    turns: int
    tokens: int = 0
    text_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """The messages of the next turn."""

    messages: tuple[Message, ...]
    sent_turns: int
    omitted_turns: int
    tokens: int  # estimated, of all messages
    first_turn: int = 0  # number of the oldest turn among them; 0 = none


def plan(
    settings: Settings, history: Sequence[Turn], answered: int, question: str, window: Window
) -> Plan:
    """System message, as many of the newest turns as fit, the question.

    ``history`` holds the newest answered turns, oldest first; ``answered`` is how many
    the session ever had. System message and question always go: whether they alone fit
    the model is the runner's to say. A turn that does not fit ends the window, since a
    conversation with a hole in it misleads the model.
    """
    head = (Message("system", settings.system),) if settings.system else ()
    tail = Message("user", question)
    fixed = (*head, tail)
    tokens = sum(estimate(message.content) for message in fixed)
    size = sum(_size(message.content) for message in fixed)
    sent: list[Turn] = []
    for turn in reversed(history[-window.turns :] if window.turns else ()):
        tokens_then = tokens + turn_tokens(turn)
        size_then = size + _size(turn.question) + _size(turn.answer)
        if (window.tokens and tokens_then > window.tokens) or (
            window.text_bytes and size_then > window.text_bytes
        ):
            break
        tokens, size = tokens_then, size_then
        sent.append(turn)
    middle = tuple(message for turn in reversed(sent) for message in _messages(turn))
    first = sent[-1].number if sent else 0
    return Plan((*head, *middle, tail), len(sent), answered - len(sent), tokens, first)


def budget(window_tokens: int, context_tokens: int, answer_tokens: int) -> int:
    """Tokens the messages may have: the smaller of the wish and what the model leaves.

    ``context_tokens`` 0 = unknown or not to be looked at. At least 1, which sends the
    question alone.
    """
    room = max(1, context_tokens - answer_tokens) if context_tokens else 0
    return min(filter(None, (window_tokens, room)), default=0)


def estimate(text: str) -> int:
    """Tokens of one message, rather too many than too few for text in words."""
    return MESSAGE_TOKENS + -(-_size(text) // BYTES_PER_TOKEN)


def turn_tokens(turn: Turn) -> int:
    """The count of the answer is exact when the runner gave one (it may hold reasoning)."""
    answer = estimate(turn.answer)
    if turn.completion_tokens:
        answer = min(answer, turn.completion_tokens + MESSAGE_TOKENS)
    return estimate(turn.question) + answer


def ended(
    turn: Turn,
    answer: str,
    *,
    finish_reason: str,
    error_code: str,
    truncated: bool,
    tokens: tuple[int, int],
    now_s: float,
) -> Turn:
    """The record of a turn whose job is over; ``tokens`` of prompt and completion."""
    state = DONE if not error_code else PARTIAL if answer else FAILED
    return Turn(
        number=turn.number,
        question=turn.question,
        answer=sound(answer),
        state=state,
        finish_reason=finish_reason,
        error_code=error_code,
        truncated=truncated,
        prompt_tokens=tokens[0],
        completion_tokens=tokens[1],
        omitted_turns=turn.omitted_turns,
        asked_s=turn.asked_s,
        ended_s=now_s,
    )


def turn_bytes(question: str, answer: str) -> int:
    """What a turn counts for the limits of size."""
    return TURN_BYTES + _size(question) + _size(answer)


def session_bytes(settings: Settings) -> int:
    """What a session without turns counts."""
    return SESSION_BYTES + _size(settings.title) + _size(settings.system) + _size(settings.model)


def to_trim(sizes: Sequence[int], fixed_bytes: int, limit_bytes: int) -> int:
    """How many of the oldest turns (``sizes``, oldest first) must go; the newest stays."""
    total = fixed_bytes + sum(sizes)
    for count, size in enumerate(sizes):
        if total <= limit_bytes or count == len(sizes) - 1:
            return count
        total -= size
    return 0


def title_of(question: str) -> str:
    """The first line of a question, shortened to a title."""
    line = " ".join(next(iter(question.strip().splitlines()), "").split())
    if len(line) <= TITLE_CHARACTERS:
        return line
    return line[: TITLE_CHARACTERS - 1].rstrip() + "…"


def sound(text: str) -> str:
    """Text that files and the bus can carry: no lone surrogate, no NUL (both U+FFFD)."""
    if not text.isascii():
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.replace("\0", "\ufffd")


def export(session: Session, turns: Iterable[Turn]) -> str:
    """The whole conversation as one JSON object."""
    settings = asdict(session.settings)
    return json.dumps(
        {
            "format": "stoker-session",
            "version": EXPORT_VERSION,
            "id": session.id,
            **settings,
            "created_s": session.created_s,
            "used_s": session.used_s,
            "trimmed_turns": session.trimmed_turns,
            "summary": session.summary,
            "summary_upto": session.summary_upto,
            "turns": [asdict(turn) for turn in turns],
        },
        ensure_ascii=False,
        indent=1,
    )


def _messages(turn: Turn) -> tuple[Message, Message]:
    return Message("user", turn.question), Message("assistant", turn.answer)


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
