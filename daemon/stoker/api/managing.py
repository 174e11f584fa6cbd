"""Deeds of administrators: ``act`` runs once the authority has let the caller in."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from stoker.errors import NotAuthorized
from stoker.events.inference import Owner
from stoker.ports.system import Authority


def as_manager(
    authority: Authority, owner: Owner, deed: str, act: Callable[[], Future[Any]],
    refused: Callable[[], None] = lambda: None,
) -> Future[Any]:  # fmt: skip
    """What ``act`` brings; ``refused`` runs instead of it, to give back what came with the call."""
    outcome: Future[Any] = Future()

    def decided(answer: Future[bool]) -> None:
        try:
            if not answer.result():
                raise NotAuthorized(
                    f"cannot {deed}: user {owner.uid} may not manage",
                    hint="be root or a member of group stoker-admin",
                )
        except Exception as error:
            refused()
            outcome.set_exception(error)
            return
        try:
            act().add_done_callback(lambda done: hand_on(done, outcome))
        except Exception as error:
            outcome.set_exception(error)

    authority.admit(owner).add_done_callback(decided)
    return outcome


def hand_on(done: Future[Any], outcome: Future[Any]) -> None:
    try:
        outcome.set_result(done.result())
    except BaseException as error:  # cancelled: told to the caller as an error
        outcome.set_exception(error)
