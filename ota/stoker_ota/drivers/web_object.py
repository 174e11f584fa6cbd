"""One object at one web address: ranges of chunks, or all of it from where the part ends.

See ``ports.fetching.ObjectSource``. The digests of its chunks lie beside it in ADDRESS.chunks.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from stoker_ota.core import chunks, web_rules
from stoker_ota.drivers.web import Body, Web
from stoker_ota.errors import Unavailable
from stoker_ota.values.chunks import ChunkIndex, Chunks

RUN_CHUNKS: Final = 4096
MAX_BREAKS: Final = 4
"""Connections in a row that bring nothing new."""


class WebObject:
    def __init__(self, web: Web, address: str) -> None:
        self._web, self.name = web, address
        self._mark = ""  # of the version that the first part came from

    def index(self, wanted: Chunks, total: int) -> ChunkIndex:
        most = chunks.pages_bytes(total, wanted.size)
        data = self._web.small(web_rules.beside(self.name, chunks.SUFFIX), most)
        if data is None:
            raise Unavailable("the digests of its chunks are not there")
        return chunks.of_pages(data, wanted, total)

    def pull(self, index: ChunkIndex, numbers: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        left = dict.fromkeys(numbers)
        breaks = 0
        while left:
            before = len(left)
            for number, data in self._some(index, left):
                if number in left:
                    del left[number]
                    yield number, data
            breaks = 0 if len(left) < before else breaks + 1
            if breaks >= MAX_BREAKS:
                raise Unavailable(f"it breaks off {self._web.broken}".rstrip())
            if left and breaks:
                time.sleep(random.uniform(0, 2.0 ** (breaks - 1)))

    def _some(self, index: ChunkIndex, numbers: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """The first run of neighbours, or, where the server knows no ranges, all of them."""
        first, count = next(chunks.runs(numbers, RUN_CHUNKS))
        last = first + count - 1
        begin, end = index.offset(first), index.offset(last) + index.length(last)
        body = self._web.open(self.name, begin, end, index.total, self._mark)
        if body is None:
            raise Unavailable("it is not there")
        if self._mark and self._mark != body.mark:
            raise Unavailable("it changed while it was fetched")
        self._mark = body.mark
        if body.ranged:
            yield from _cut(body, index, first, set(range(first, first + count)))
        else:
            yield from _cut(body, index, 0, set(numbers))

    def whole(self, offset: int, size: int, mark: str) -> tuple[int, str, Iterator[bytes]]:
        part = (offset, size, size) if offset else (0, 0, 0)
        body = self._web.open(self.name, *part, mark)
        if body is None:
            raise Unavailable("it is not there")
        if body.length not in (-1, size - body.begin):
            raise Unavailable(f"it has {body.length} bytes, not {size}")
        return body.begin, body.mark, body.stream


def _cut(
    body: Body, index: ChunkIndex, number: int, wanted: set[int]
) -> Iterator[tuple[int, bytes]]:
    """Those of the body's chunks that are wanted; it begins with chunk ``number``."""
    pending = bytearray()
    last = max(wanted)
    for data in body.stream:
        pending += data
        while number <= last and len(pending) >= index.length(number):
            length = index.length(number)
            if number in wanted:
                yield number, bytes(pending[:length])
            del pending[:length]
            number += 1
        if number > last:
            return
