"""The words of the supervisor: phases, events, actions and its state, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from stoker.config.schema import RestartConfig, RunnerConfig
from stoker.events.inference import RunnerExit
from stoker.units import Seconds

NOBODY_ASKS: Final = "nobody asks"  # the order of a runner that goes to sleep


class Phase(StrEnum):
    STOPPED = "stopped"  # no runner, none wanted
    BACKOFF = "backoff"  # no runner until ``wake_s``
    SPAWNING = "spawning"  # process started, Hello awaited
    LOADING = "loading"  # Load sent
    READY = "ready"
    CLOSING = "closing"  # link closed, exit awaited
    TERMINATING = "terminating"  # SIGTERM sent
    KILLING = "killing"  # SIGKILL sent
    NO_MODEL = "no-model"  # nothing that may be loaded until ``wake_s``
    ASLEEP = "asleep"  # no runner until somebody asks


# Events. Each carries the time it happened.
@dataclass(frozen=True, slots=True)
class Start:
    now_s: Seconds


@dataclass(frozen=True, slots=True)
class Stop:
    now_s: Seconds


@dataclass(frozen=True, slots=True)
class Restart:
    """An administrator asks: the runner is replaced, set-aside models get a new chance."""

    now_s: Seconds


@dataclass(frozen=True, slots=True)
class Sleep:
    """Nobody has asked for long: unload."""

    now_s: Seconds


@dataclass(frozen=True, slots=True)
class Wake:
    """Somebody asks."""

    now_s: Seconds


@dataclass(frozen=True, slots=True)
class Greeted:
    now_s: Seconds


@dataclass(frozen=True, slots=True)
class SignOfLife:
    """Any event of the runner: load progress, a beat, a delta."""

    now_s: Seconds


@dataclass(frozen=True, slots=True)
class LoadDone:
    now_s: Seconds


@dataclass(frozen=True, slots=True)
class LoadFailed:
    now_s: Seconds
    reason: str
    code: str = ""  # of ``stoker.errors``
    hint: str = ""


@dataclass(frozen=True, slots=True)
class LinkLost:
    """End of file or a broken frame, while the process may still be there."""

    now_s: Seconds
    reason: str


@dataclass(frozen=True, slots=True)
class Exited:
    now_s: Seconds
    exit: RunnerExit


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    now_s: Seconds
    reason: str


@dataclass(frozen=True, slots=True)
class Tick:
    now_s: Seconds


@dataclass(frozen=True, slots=True)
class Proven:
    """The loaded model finished a job: from now on it is the last good one."""

    now_s: Seconds


Event = (
    Start | Stop | Restart | Greeted | SignOfLife | LoadDone | LoadFailed | LinkLost | Exited
    | LaunchFailed | Tick | Proven | Sleep | Wake
)  # fmt: skip


# Actions, in the order they are to be carried out.
@dataclass(frozen=True, slots=True)
class Spawn:
    pass


@dataclass(frozen=True, slots=True)
class LoadModel:
    model: str


@dataclass(frozen=True, slots=True)
class CloseLink:
    pass


@dataclass(frozen=True, slots=True)
class Signal:
    signum: int


@dataclass(frozen=True, slots=True)
class RunnerGone:
    """Jobs that ran there are lost; ``ordered`` says that we told it to go,
    ``out_of_memory`` that the kernel ended it for want of memory.
    """

    reason: str
    ordered: bool
    out_of_memory: bool = False


@dataclass(frozen=True, slots=True)
class RememberGood:
    model: str


@dataclass(frozen=True, slots=True)
class Log:
    level: str
    text: str


Action = Spawn | LoadModel | CloseLink | Signal | RunnerGone | RememberGood | Log


@dataclass(frozen=True, slots=True)
class SetAside:
    """A model that is not used until ``until_s``, and why."""

    reason: str
    until_s: Seconds
    code: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class State:
    runner: RunnerConfig
    restart: RestartConfig
    models: tuple[str, ...]  # wanted first
    last_good: str = ""
    phase: Phase = Phase.STOPPED
    wanted: bool = False  # between Start and Stop
    model: str = ""  # being loaded or loaded
    since_s: Seconds = Seconds(0.0)  # start of the phase
    seen_s: Seconds = Seconds(0.0)  # last sign of life, or start of the phase
    wake_s: Seconds = Seconds(0.0)  # end of BACKOFF or NO_MODEL
    failures: int = 0  # in a row, for the backoff
    restarts: int = 0  # ever, for people
    reason: str = ""  # why we are not ready
    order: str = ""  # why we told the runner to go; "" = it goes by itself
    hung: str = ""  # why we kill it though nobody ordered it to go
    steady: bool = False  # it had been ready for long before it went
    asleep: bool = False  # it was told to go until somebody asks
    greeted: bool = False  # this runner said Hello: the model may be to blame from here on
    crashes: Mapping[str, tuple[Seconds, ...]] = field(default_factory=dict)
    aside: Mapping[str, SetAside] = field(default_factory=dict)
