"""Futures handed on: the same outcome for another, or with another value; one that failed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from stoker.errors import StokerError

_T = TypeVar("_T")
_U = TypeVar("_U")


def pass_on(done: Future[_T], to: Future[_T]) -> None:
    """``done`` has ended: so does ``to``, in the same way."""
    error = done.exception()
    if error is not None:
        to.set_exception(error)
    else:
        to.set_result(done.result())


def then(done: Future[_T], convert: Callable[[_T], _U]) -> Future[_U]:
    """Its value as somebody else wants it, its error as it is."""
    out: Future[_U] = Future()

    def ended(answer: Future[_T]) -> None:
        error = answer.exception()
        if error is not None:
            out.set_exception(error)
        else:
            out.set_result(convert(answer.result()))

    done.add_done_callback(ended)
    return out


def failed(error: StokerError) -> Future[_T]:
    """One that has this error already."""
    future: Future[_T] = Future()
    future.set_exception(error)
    return future
