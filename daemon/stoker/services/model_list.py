"""What the inference service shows of itself: its snapshot and its models."""

from __future__ import annotations

from collections import Counter
from typing import Final

from stoker.config.schema import Config, ModelConfig
from stoker.core import runner_life as life
from stoker.core import scheduler
from stoker.events.inference import MemoryUse, ModelInfo, TokenTotals
from stoker.events.realtime import Placed
from stoker.events.runner import Loaded
from stoker.ports.doors import OTHERS, InferenceSnapshot, QueueLine
from stoker.ports.runner import ModelFiles
from stoker.services.fit_load import FitPlan
from stoker.services.runner_bank import RunnerBank

_STATES = {
    life.Phase.STOPPED: "stopping",
    life.Phase.BACKOFF: "restarting",
    life.Phase.SPAWNING: "starting",
    life.Phase.LOADING: "loading",
    life.Phase.READY: "ready",
    life.Phase.CLOSING: "restarting",
    life.Phase.TERMINATING: "restarting",
    life.Phase.KILLING: "restarting",
    life.Phase.NO_MODEL: "no-model",
    life.Phase.ASLEEP: "asleep",
}
MAX_LINES: Final = 64
_COMING = (life.Phase.SPAWNING, life.Phase.LOADING)


def snapshot(
    bank: RunnerBank,
    queue: scheduler.State,
    stopping: bool,
    planned: FitPlan,
    level: str,
    tokens: TokenTotals,
    sampled: int,
    threads: int,
) -> InferenceSnapshot:
    """The present moment, without the runner's memory (that costs a look into /proc)."""
    link, shown, reason = bank.serving, _shown(bank.serving.state), ""
    if bank.swap.down:
        link, shown = bank.newcomer or bank.serving, "loading"
    if bank.swap.active:
        reason = f"changing the model to {bank.swap.model}"
    state, process = link.state, link.process
    ours = link.loaded if shown == "ready" else None
    return InferenceSnapshot(
        state="stopping" if stopping else shown,
        reason=reason or state.reason,
        load_progress=link.progress,
        model=state.model if shown == "ready" else "",
        engine=link.hello.engine,
        library=link.hello.library,
        queue_depth=len(queue.jobs) - len(queue.running),
        active_jobs=len(queue.running),
        decoding_jobs=len(queue.decoding),
        threads=threads,
        most_threads=link.threads,
        phase=queue.phase,
        fingerprint=ours.fingerprint if ours is not None else "",
        placement=Placed() if ours is None else _placement(ours),
        runner_pid=process.pid if process is not None else 0,
        runner_restarts=bank.serving.state.restarts,
        memory=_use(state.model, planned) if shown == "ready" else None,
        memory_level=level,
        tokens=tokens,
        sampled_tokens=sampled,
    )


def _shown(state: life.State) -> str:
    """One that goes to sleep as it was told is asleep already: whoever asks wakes it."""
    return "asleep" if state.asleep and state.order else _STATES[state.phase]


def queue_lines(queue: scheduler.State, seen_by: int | None) -> tuple[QueueLine, ...]:
    """Who waits and who runs, by user and class; the busiest first. A user (None = one who may
    see all) sees who he is, and of everybody else only how many jobs they have.
    """
    counts: Counter[tuple[int, str, bool]] = Counter()
    running = frozenset(queue.running)
    for job in queue.jobs.values():
        uid = job.uid if seen_by in (None, job.uid) else OTHERS
        counts[uid, job.job_class.word, job.id in running] += 1
    keys = sorted({(uid, word) for uid, word, _ in counts})
    lines = (QueueLine(*key, counts[*key, True], counts[*key, False]) for key in keys)
    return tuple(sorted(lines, key=lambda line: -(line.running + line.waiting))[:MAX_LINES])


def models(
    config: Config, bank: RunnerBank, files: ModelFiles, planned: FitPlan
) -> tuple[ModelInfo, ...]:
    """Every configured model and how it is; the wanted one is marked as default."""
    return tuple(
        _info(
            model,
            bank,
            files.size_bytes(model.path),
            planned,
            tuple(item.name for item in config.adapters if item.model == model.name),
        )
        for model in config.models
    )


def _placement(loaded: Loaded) -> Placed:
    return Placed(
        loaded.pinning,
        loaded.scheduling,
        loaded.placement_note,
        loaded.placement_cpus,
        loaded.nice,
    )


def _use(model: str, planned: FitPlan) -> MemoryUse | None:
    fitted = planned.of(model)
    return fitted.use() if fitted is not None else None


def _info(
    model: ModelConfig,
    bank: RunnerBank,
    size: int,
    planned: FitPlan,
    adapters: tuple[str, ...],
) -> ModelInfo:
    serving = bank.serving.state
    kept = serving.aside.get(model.name)
    status, reason = "idle", ""
    if size < 0:
        status, reason = "missing", f"no readable file at {model.path}"
    if kept is not None:
        status, reason = "set-aside", kept.reason
    links = [link for link in bank if link.state.model == model.name]
    if any(link.state.phase in _COMING for link in links if link not in bank.leaving):
        status, reason = "loading", ""
    ours = None
    if serving.model == model.name and serving.phase is life.Phase.READY:
        status, reason, ours = "ready", "", bank.serving.loaded
    return ModelInfo(
        name=model.name,
        path=model.path,
        size_bytes=max(size, 0),
        state=status,
        reason=reason,
        default=bool(serving.models) and serving.models[0] == model.name,
        description=ours.description if ours else "",
        context_tokens=ours.context_tokens if ours else 0,
        aliases=model.aliases,
        adapters=adapters,
        memory=_use(model.name, planned) if ours else None,
    )
