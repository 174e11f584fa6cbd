"""The agent as the gateway sees it (``gateway.doors.Agent``), in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from stoker_client.errors import StokerClientError
from stoker_client.records import Record, parse
from stoker_client.requests import Pairs

DONE = {"done": {"finish_reason": "stop", "usage": {"prompt_tokens": 3, "completion_tokens": 2}}}
Line = dict[str, Any]


class FakeStream:
    """Gives each batch of ``batches`` in turn; an error among them is raised. Then silence."""

    def __init__(self, batches: Sequence[Sequence[Line] | StokerClientError]) -> None:
        self._batches = list(batches)
        self.closed = False

    async def batch(self, patience_s: float | None = None) -> list[Record]:
        await asyncio.sleep(0)
        if not self._batches:
            await asyncio.wait_for(asyncio.Event().wait(), None)
        found = self._batches.pop(0)
        if isinstance(found, StokerClientError):
            raise found
        return [parse(json.dumps(line).encode()) for line in found]

    def close(self) -> None:
        self.closed = True


class FakeAgent:
    """Answers each job with ``batches``; remembers what it was asked."""

    def __init__(self) -> None:
        self.batches: list[Sequence[Line] | StokerClientError] = [
            [{"t": "Hello"}, {"t": " you"}],
            [DONE],
        ]
        self.refusal: StokerClientError | None = None
        self.asked: list[tuple[Pairs, Pairs]] = []
        self.embedded: list[tuple[list[str], Pairs]] = []
        self.streams: list[FakeStream] = []
        self.state = "ready"
        self.model = "tiny"  # "" while none is loaded

    async def stream(self, request: Pairs, options: Pairs) -> FakeStream:
        self.asked.append((request, options))
        if self.refusal is not None:
            raise self.refusal
        self.streams.append(FakeStream(self.batches))
        return self.streams[-1]

    async def embed(self, texts: Sequence[str], options: Pairs) -> tuple[list[list[float]], int]:
        self.embedded.append((list(texts), options))
        if self.refusal is not None:
            raise self.refusal
        return [[0.5, -0.25, float(len(text))] for text in texts], len(texts)

    async def models(self) -> list[dict[str, Any]]:
        return [
            {"name": "tiny", "state": "ready", "description": "small", "aliases": ["small"]},
            {"name": "broken", "state": "set-aside"},
            {"name": "wanted", "state": "loading", "default": True},
        ]

    async def properties(self) -> dict[str, Any]:
        return {"State": self.state, "Model": self.model, "QueueDepth": 0, "ActiveJobs": 0}
