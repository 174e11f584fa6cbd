"""The inference loop turned by hand: a fake runner, a fake clock, real pipes."""

from __future__ import annotations

import itertools
import json
import os
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from tests.fakes.runner import FakeLauncher, FakeRunner
from tests.fakes.system import FakeClock, FakeMemory, MemoryStateFile

from stoker.config.schema import Config, InferenceConfig, ModelConfig, RunnerConfig
from stoker.core import runner_life as life
from stoker.drivers.pipe_sink import PipeSinks
from stoker.drivers.poller import EpollPoller
from stoker.events.inference import Ask, Delivery, Owner
from stoker.ports.doors import InferenceListener, JobView
from stoker.services.inference import InferenceService
from stoker.services.inference_loop import InferenceLoop
from stoker.units import Bytes, Seconds

ALICE = Owner(":1.1", 1000)
BOB = Owner(":1.2", 1001)


class AllFilesThere:
    def size_bytes(self, path: str) -> int:
        return 1


def config(*models: str, **inference: Any) -> Config:
    small = InferenceConfig(queue_limit=2, stream_buffer_bytes=Bytes(1000))
    return Config(
        models=tuple(ModelConfig(name, f"/models/{name}.gguf") for name in models or ("tiny",)),
        runner=RunnerConfig(slots=2),
        inference=replace(small, **inference),
    )


class Rig:
    def __init__(self, settings: Config | None = None, device: FakeMemory | None = None) -> None:
        settings = settings or config()
        self.clock, self.launcher, self.kept = FakeClock(100.0), FakeLauncher(), MemoryStateFile()
        ids = itertools.count(1)
        self.loop = InferenceLoop(
            settings,
            launcher=self.launcher,
            poller=EpollPoller(),
            sinks=PipeSinks(),
            files=AllFilesThere(),
            clock=self.clock,
            memory=self.kept,
            threads=2,
            new_id=lambda: f"job{next(ids)}",
            device=device,
        )
        self.service = InferenceService(self.loop, ask_timeout_s=Seconds(60))
        self.heard: list[tuple[str, str]] = []
        self.service.listen(
            InferenceListener(
                job_started=lambda view: self.heard.append(("started", view.id)),
                job_finished=lambda view: self.heard.append(("finished", view.id)),
                job_forgotten=lambda job: self.heard.append(("forgotten", job)),
            )
        )

    @property
    def runner(self) -> FakeRunner:
        return self.launcher.last

    def turn(self, times: int = 3) -> None:
        for _ in range(times):
            self.loop.turn(Seconds(0))

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.turn()

    def start(self) -> None:
        """Until a model is ready; the thread is not used, the test turns the loop."""
        self.loop.link.step(life.Start(self.loop.now_s()))
        self.make_ready()

    def make_ready(self) -> None:
        self.turn()
        self.runner.greet()
        self.turn()
        self.runner.become_ready()
        self.turn()

    def ask(self, text: str = "hi", owner: Owner = ALICE, **more: Any) -> Asked:
        reader, writer = os.pipe2(os.O_CLOEXEC)
        future = self.service.submit(Ask(prompt=text), Delivery(**more), owner, writer)
        self.turn()
        return Asked(reader, future)


class Asked:
    """One caller's end of a job."""

    def __init__(self, reader: int, future: Future[JobView]) -> None:
        self.reader, self.future = reader, future
        os.set_blocking(reader, False)

    @property
    def id(self) -> str:
        return self.future.result(0).id

    def read(self) -> bytes | None:
        """What is there; b"" at end of file, None when nothing waits."""
        try:
            return os.read(self.reader, 1 << 20)
        except BlockingIOError:
            return None

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.read() or b"").splitlines()]

    def close(self) -> None:
        os.close(self.reader)
