"""``Stoker``: the agent of this device as one object.

Every method is one D-Bus call and raises StokerClientError; streams are in stream.py.
It holds no conversation: pass earlier messages again, or let the agent keep a ``session``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final, Unpack

from stoker_client import history, requests
from stoker_client.bus import AGENT_PATH, Bus, plain
from stoker_client.errors import StokerClientError
from stoker_client.fleet import Fleet
from stoker_client.history import Past
from stoker_client.requests import Messages, Options, Settings
from stoker_client.session import Session, open_path
from stoker_client.stream import Stream
from stoker_client.updates import Updates

AGENT: Final = "org.stoker.Agent1"
INFERENCE: Final = "org.stoker.Inference1"
REALTIME: Final = "org.stoker.RealTime1"
THERMAL: Final = "org.stoker.Thermal1"


class Stoker:
    """A connection to the agent, made at the first call.

    ``address``: ``system``, ``session`` or a D-Bus address; by default the environment's
    STOKER_BUS_ADDRESS, else the system bus.
    """

    def __init__(self, address: str | None = None) -> None:
        self._bus = Bus(address)

    @property
    def address(self) -> str:
        return self._bus.address

    def ask(self, question: str | Messages, **options: Unpack[Options]) -> str:
        """The whole answer, without the model's reasoning."""
        with self.stream(question, **options) as stream:
            return "".join(record.text for record in stream if record.kind == "text")

    def stream(self, question: str | Messages, **options: Unpack[Options]) -> Stream:
        """The answer as it is made. ``question``: a text, or messages with role and content.

        Requests of 64 KiB and more go as a sealed memory file, not through the bus.
        """
        request, delivery = requests.build(question, options)
        job, descriptor = self._bus.open_stream(
            AGENT_PATH, INFERENCE, "CreateJob", request, delivery
        )
        return Stream(self._bus, job, descriptor)

    def result(self, job: str) -> dict[str, Any]:
        """What is kept of an ended job (``Stream.job``), for a minute; the keys of
        Job1.GetResult. ``busy`` while it runs."""
        return self._bus.read_result(job)

    def session(self, key: str | None = None, **settings: Unpack[Settings]) -> Session:
        """A conversation that the agent keeps: a new one, or the one with this id.

        ``settings`` (title, system, model, window_turns, …) are a new one's, or change
        those of an old one.
        """
        pairs = requests.build_settings(settings)
        if key is None:
            path = self._bus.call_dict(AGENT_PATH, INFERENCE, "CreateSession", pairs, "(o)")
            return Session(self._bus, str(path))
        found = Session(self._bus, open_path(self._bus, key))
        if settings:
            found.configure(**settings)
        return found

    def sessions(self) -> list[dict[str, Any]]:
        """Kept conversations, newest use first; keys are in org.stoker.Inference1.xml."""
        return [dict(item) for item in self._bus.call(INFERENCE, "ListSessions")]

    def status(self) -> dict[str, Any]:
        """One screen of facts; the keys are in org.stoker.Agent1.xml."""
        return dict(self._bus.call(AGENT, "Status"))

    def history(self, start: float, end: float, span_s: float = 60.0) -> Past:
        """The device's past in columns of ``span_s``; times are seconds since 1970."""
        return history.read(self._bus, start, end, span_s)

    def models(self) -> list[dict[str, Any]]:
        return [dict(item) for item in self._bus.call(INFERENCE, "ListModels")]

    def tokenize(self, text: str) -> list[int]:
        """Token ids in the vocabulary of the loaded model."""
        return list(self._bus.call(INFERENCE, "Tokenize", requests.text(text, "the text")))

    def score(self, text: str, timeout_s: float = 300.0) -> tuple[float, int]:
        """(nats of all tokens after the first, how many these are): exp(nats / tokens) is the
        text's perplexity. The text must fit the model's context."""
        checked = requests.text(text, "the text")
        nats, tokens = self._bus.call(INFERENCE, "Score", checked, {}, timeout_s=timeout_s)
        return float(nats), int(tokens)

    def queue(self) -> list[tuple[int, str, int, int]]:
        """(user ID, class, running, waiting) jobs, the busiest first. Other users' stand together
        under ID 4294967295 unless you are an administrator."""
        return [tuple(line) for line in self._bus.call(INFERENCE, "ListQueue")]

    def count_tokens(self, text: str) -> int:
        return int(self._bus.call(INFERENCE, "CountTokens", requests.text(text, "the text")))

    def embed(self, texts: Sequence[str], timeout_s: float = 300.0) -> list[list[float]]:
        """One vector of length 1 for each of 1..64 texts, made by the loaded model."""
        checked = [requests.text(text, "a text") for text in texts]
        vectors, _tokens = self._bus.call(INFERENCE, "Embed", checked, {}, timeout_s=timeout_s)
        return [list(vector) for vector in vectors]

    def thermal(self) -> dict[str, Any]:
        """Heat as the control loop sees it.

        Keys of Thermal1.Details, and temperature_c (None while unknown), wall_c,
        headroom (0..1), cap_khz (0 = none), state.
        """
        found = dict(self._bus.call(THERMAL, "Details"))
        now = self._bus.properties(THERMAL)
        temperature = float(now.get("Temperature", math.nan))
        found.update(
            temperature_c=None if math.isnan(temperature) else temperature,
            wall_c=float(now.get("Wall", math.nan)),
            headroom=float(now.get("Headroom", 1.0)),
            cap_khz=int(now.get("Cap", 0)),
            state=str(now.get("State", "")),
        )
        return found

    def discover_heat(self, timeout_s: float = 60.0) -> list[dict[str, Any]]:
        """All that this board shows of heat, read or refused; see Thermal1.Discover."""
        return [dict(found) for found in self._bus.call(THERMAL, "Discover", timeout_s=timeout_s)]

    def calibrate(self, *, fresh: bool = False) -> None:
        """Begin to measure the operating points of the loaded model, or go on; follow
        ``calibration``. It ends when this object leaves the bus. Needs rights."""
        self._bus.call_dict(AGENT_PATH, THERMAL, "Calibrate", {"fresh": ("b", fresh)})

    def cancel_calibration(self, timeout_s: float = 60.0) -> None:
        """Returns when every clock is the heat loop's again. Needs rights."""
        self._bus.call(THERMAL, "CancelCalibration", timeout_s=timeout_s)

    def calibration(self) -> tuple[str, float, str]:
        """(state, progress 0..1, reason); see Thermal1.Calibration."""
        now = self._bus.properties(THERMAL)
        progress = float(now.get("CalibrationProgress", 0.0))
        return str(now.get("Calibration", "")), progress, str(now.get("CalibrationReason", ""))

    def operating_points(self) -> dict[str, Any]:
        """What was measured of the loaded model; the keys are in org.stoker.Thermal1.xml."""
        return dict(self._bus.call(THERMAL, "OperatingPoints"))

    def realtime(self) -> dict[str, Any]:
        """Where and how the model's process runs: the properties of RealTime1, in lower case."""
        found = self._bus.properties(REALTIME)
        return plain({key: found[key] for key in sorted(found)})

    def load_state(self) -> tuple[str, float]:
        """(state of the inference service, progress 0..1 of a running load)."""
        now = self._bus.properties(INFERENCE)
        return str(now.get("State", "")), float(now.get("LoadProgress", 0.0))

    def wait_ready(
        self,
        timeout_s: float = 120.0,
        on_progress: Callable[[str, float], None] | None = None,
    ) -> None:
        """Wait until the model can answer; ``on_progress`` gets state and progress 0..1."""
        end = time.monotonic() + timeout_s
        while True:
            state, progress = self.load_state()
            if on_progress is not None:
                on_progress(state, progress)
            if state in ("ready", "asleep"):  # a request wakes a model that sleeps
                return
            if state == "no-model":
                raise StokerClientError(
                    "model-unavailable",
                    "cannot use the model: there is none that works",
                    hint="stokerctl models says why",
                )
            if time.monotonic() >= end:
                raise StokerClientError(
                    "deadline-exceeded",
                    f"cannot use the model: still {state} after {timeout_s:.0f} s",
                    hint="stokerctl status says what it is waiting for",
                )
            time.sleep(0.05)

    def reload(self) -> list[str]:
        """Read the configuration again; returns the keys that need a restart. Needs rights."""
        return list(self._bus.call(AGENT, "Reload"))

    def restart_runner(self) -> None:
        """Stop the process with the model and start it again. Needs rights."""
        self._bus.call(AGENT, "RestartRunner", timeout_s=120.0)

    def use_model(self, name: str, timeout_s: float = 900.0) -> dict[str, Any]:
        """Make this model (or alias) the one that serves; the keys of Agent1.SelectModel.

        Returns when it does. Raises model-unavailable when it cannot be used; then the old
        one serves as before. Needs rights.
        """
        return dict(self._bus.call(AGENT, "SelectModel", name, timeout_s=timeout_s))

    @property
    def fleet(self) -> Fleet:
        """The connection to a fleet's broker."""
        return Fleet(self._bus)

    @property
    def updates(self) -> Updates:
        """Signed updates of what this device serves."""
        return Updates(self._bus)

    def close(self) -> None:
        """Leave the bus; running jobs of this object end."""
        self._bus.close()

    def __enter__(self) -> Stoker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
