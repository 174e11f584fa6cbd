"""What goes when a conversation is longer than the context: whole turns, or tokens in the middle.

Nothing goes unless the request says so, and what went is told in ``done``. Pure.
"""

from __future__ import annotations

from stoker.events.prompt import Message
from stoker.events.runner import Generate


def droppable(request: Generate) -> int:
    """How many turns may go: a turn is a user's message and what follows it; never the last."""
    return max(len(_turns(request.messages)) - 1, 0)


def without(request: Generate, turns: int) -> tuple[Message, ...]:
    """The messages without the oldest ``turns``; system messages stay where they are."""
    dropped = {index for turn in _turns(request.messages)[:turns] for index in turn}
    return tuple(m for index, m in enumerate(request.messages) if index not in dropped)


def shift(context_tokens: int, prompt_tokens: int) -> tuple[int, int]:
    """(tokens that stay at the beginning, tokens that go after them) in a full context."""
    quarter = max(context_tokens // 4, 1)
    return min(prompt_tokens, quarter), quarter


def _turns(messages: tuple[Message, ...]) -> list[list[int]]:
    turns: list[list[int]] = []
    for index, message in enumerate(messages):
        if message.role == "system":
            continue
        if message.role == "user" or not turns:
            turns.append([])
        turns[-1].append(index)
    return turns
