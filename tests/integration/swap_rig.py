"""An inference service on real child runners, and callers whose every word is checked."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from stoker.config.schema import Config, DaemonConfig, InferenceConfig, ModelConfig, RunnerConfig
from stoker.drivers.clock import MonotonicClock
from stoker.drivers.runner_child import ChildLauncher
from stoker.errors import StokerError
from stoker.events.inference import Ask, Delivery, Owner
from stoker.events.prompt import Sampling
from stoker.services.inference import InferenceService
from stoker.units import Seconds
from stoker.wiring import build_inference


@contextlib.contextmanager
def service(
    home: Path,
    models: tuple[ModelConfig, ...],
    engine: str,
    *,
    beside: bool,
    scratch: Path | None = None,
    **swap: float,
) -> Iterator[InferenceService]:
    """``beside``: what the room for a second model is said to be; ``scratch``: where runners
    save conversations, None = nowhere."""
    base = Config(
        daemon=DaemonConfig(state_dir=str(home / "state"), runtime_dir=str(home / "run")),
        models=models,
        default_model=models[0].name,
        runner=RunnerConfig(engine=engine, slots=4, parked_slots=1),
        inference=InferenceConfig(queue_limit=100),
    )
    config = replace(base, swap=replace(base.swap, **swap))  # type: ignore[arg-type]
    extra = ("--echo-faults",) * (engine == "echo")
    extra += ("--scratch", str(scratch)) if scratch else ()
    launcher = ChildLauncher(engine, gomp_spincount=2000, extra=extra)
    made = build_inference(config, MonotonicClock(), launcher)
    made._loop.swap._room = lambda _model: beside
    made.start()
    try:
        yield made
    finally:
        made.stop(Seconds(30.0))
        assert not made._thread.is_alive()


@dataclass
class Caller:
    """Asks again and again; each answer must be the one to its own question, or a typed end."""

    service: InferenceService
    number: int
    prompts: tuple[str, ...]
    sampling: Sampling = field(default_factory=Sampling)
    raw: bool = False
    max_tokens: int = 0
    answers: list[tuple[str, str, str]] = field(default_factory=list)  # prompt, text, end
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        asked = 0
        while not self.stop.is_set():
            prompt = self.prompts[asked % len(self.prompts)]
            self.answers.append((prompt, *self.ask(prompt)))
            asked += 1

    def ask(self, prompt: str) -> tuple[str, str]:
        """(text, how it ended: "done" or the code of an error)."""
        reader, writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(writer, False)
        owner = Owner(f":1.{self.number}", 1000 + self.number)
        ask = Ask(prompt=prompt, raw=self.raw, max_tokens=self.max_tokens, sampling=self.sampling)
        try:
            self.service.submit(ask, Delivery(), owner, writer).result(30)
        except StokerError as error:
            os.close(reader)
            return "", error.code
        text, end = "", ""
        with os.fdopen(reader, "rb") as stream:
            for line in stream:
                record = json.loads(line)
                assert not end, "a word after the last one"
                text += str(record.get("t", ""))
                if "done" in record:
                    end = "done"
                if "error" in record:
                    end = str(record["error"]["code"])
        return text, end or "cut"


@contextlib.contextmanager
def calling(callers: list[Caller]) -> Iterator[None]:
    threads = [threading.Thread(target=caller.run, daemon=True) for caller in callers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for caller in callers:
            caller.stop.set()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "a caller waits for ever"
