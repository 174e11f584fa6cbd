"""Settings that the fleet may set: those that a reload takes over, kept beside the agent's state.

The device's own files win over them. A set is tried first, by this process only, and kept when
the configuration takes it: one that is refused, or cut off by the power, changes nothing.
Paths, users, sensors and the fleet's own access are not among them, on purpose.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final

from stoker.config.changes import LIVE
from stoker.errors import Busy, InvalidRequest, StokerError
from stoker.ports.system import StateFile

_log = logging.getLogger(__name__)
_NEVER: Final = ("device.", "access.", "users.", "groups.")
ALLOWED: Final = tuple(key for key in LIVE if not key.startswith(_NEVER))
"""What a reload takes over, but for who the device is and who may do what on it."""
MAX_VALUES: Final = 64
_VALUES, _MODEL, _TRIAL = "values", "model", "trial"
_RUN: Final = uuid.uuid4().hex  # the next process does not know this one's trial
_PLAIN: Final = (str, int, float, bool)


class PolicyKeeper:
    """``reload`` reads the whole configuration anew; it may be called from any thread."""

    def __init__(self, file: StateFile, reload: Callable[[], Future[tuple[str, ...]]]) -> None:
        self._file, self._reload = file, reload
        self._lock = threading.Lock()
        self._free = threading.Semaphore()  # one is tried at a time

    def set(self, values: Mapping[str, object]) -> Future[Sequence[str]]:
        """Replaces the whole policy. Brings the keys that need a restart. InvalidRequest; Busy
        while another one is tried.
        """
        values = flat(values)
        check(values)
        if not self._free.acquire(blocking=False):
            raise Busy("cannot set policy: another one is being tried")
        try:
            self._change({_TRIAL: {_RUN: values}})
        except BaseException:
            self._free.release()
            raise
        done: Future[Sequence[str]] = Future()

        def told(read_again: Future[tuple[str, ...]]) -> None:
            try:
                later = read_again.result()
                self._change({_VALUES: values}, drop=_TRIAL)
            except Exception as error:
                with contextlib.suppress(StokerError):
                    self._change({}, drop=_TRIAL)
                self._free.release()
                done.set_exception(error)
            else:
                self._free.release()
                done.set_result(later)

        self._reload().add_done_callback(told)
        return done

    def keep_model(self, name: str) -> None:
        """A restart serves it too."""
        self._change({_MODEL: name})

    def _change(self, fresh: Mapping[str, object], drop: str = "") -> None:
        """A reload ends in another thread than commands do."""
        with self._lock:
            kept = {**self._file.load(), **fresh}
            kept.pop(drop, None)
            self._file.save(kept)


def flat(values: Mapping[str, object], path: str = "") -> dict[str, object]:
    """Tables become full names: {"a": {"b": 1}} and {"a.b": 1} are the same."""
    found: dict[str, object] = {}
    for key, value in values.items():
        here = f"{path}.{key}" if path else key
        found |= flat(value, here) if isinstance(value, Mapping) else {here: value}
    return found


def check(values: Mapping[str, object]) -> None:
    """Names only: what a value may be is the configuration's to say."""
    if len(values) > MAX_VALUES:
        raise InvalidRequest(f"cannot set policy: more than {MAX_VALUES} values")
    for key, value in values.items():
        if not any(key == word or (word[-1] == "." and key.startswith(word)) for word in ALLOWED):
            raise InvalidRequest(
                f"cannot set policy: {key[:80]} is not the fleet's to set",
                hint="docs/fleet.md lists what is",
            )
        if not isinstance(value, _PLAIN):
            raise InvalidRequest(f"cannot set policy: {key[:80]} is no plain value")


def tables(file: StateFile) -> tuple[dict[str, object], dict[str, object]]:
    """(before the files, after them): what was set, and the model that was activated."""
    kept = file.load()
    values, model, trial = kept.get(_VALUES), kept.get(_MODEL), kept.get(_TRIAL)
    if isinstance(trial, Mapping) and _RUN in trial:
        values = trial[_RUN]
    before = as_tables(values) if isinstance(values, Mapping) else {}
    return before, {"models": {"default": model}} if isinstance(model, str) else {}


def as_tables(values: Mapping[str, object]) -> dict[str, object]:
    """As a configuration file would have them: ``a.b`` = 1 becomes {"a": {"b": 1}}."""
    out: dict[str, object] = {}
    for key, value in values.items():
        section, _, name = key.partition(".")
        table = out.setdefault(section, {})
        if isinstance(table, dict):
            table[name] = value
    return out
