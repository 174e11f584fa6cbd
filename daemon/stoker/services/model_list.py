"""What the inference service shows of itself: its snapshot and its models."""

from __future__ import annotations

from stoker.config.schema import Config, ModelConfig
from stoker.core import runner_life as life
from stoker.core import scheduler
from stoker.events.inference import ModelInfo
from stoker.ports.doors import InferenceSnapshot
from stoker.ports.runner import ModelFiles
from stoker.services.runner_link import RunnerLink

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
}


def snapshot(link: RunnerLink, queue: scheduler.State, stopping: bool) -> InferenceSnapshot:
    """The present moment, without the runner's memory (that costs a look into /proc)."""
    state, process = link.state, link.process
    return InferenceSnapshot(
        state="stopping" if stopping else _STATES[state.phase],
        reason=state.reason,
        load_progress=link.progress,
        model=state.model if state.phase is life.Phase.READY else "",
        engine=link.hello.engine,
        library=link.hello.library,
        queue_depth=len(queue.jobs) - len(queue.running),
        active_jobs=len(queue.running),
        decoding_jobs=len(queue.decoding),
        threads=link.threads,
        runner_pid=process.pid if process is not None else 0,
        runner_restarts=state.restarts,
    )


def models(config: Config, link: RunnerLink, files: ModelFiles) -> tuple[ModelInfo, ...]:
    """Every configured model and how it is; the wanted one is marked as default."""
    state = link.state
    return tuple(_info(model, state, link, files) for model in config.models)


def _info(model: ModelConfig, state: life.State, link: RunnerLink, files: ModelFiles) -> ModelInfo:
    size = files.size_bytes(model.path)
    kept = state.aside.get(model.name)
    loaded = link.loaded
    status, reason = "idle", ""
    if size < 0:
        status, reason = "missing", f"no readable file at {model.path}"
    if kept is not None:
        status, reason = "set-aside", kept.reason
    here = state.model == model.name
    if here and state.phase in (life.Phase.SPAWNING, life.Phase.LOADING):
        status, reason = "loading", ""
    if here and state.phase is life.Phase.READY:
        status, reason = "ready", ""
    ours = loaded if here and status == "ready" else None
    return ModelInfo(
        name=model.name,
        path=model.path,
        size_bytes=max(size, 0),
        state=status,
        reason=reason,
        default=bool(state.models) and state.models[0] == model.name,
        description=ours.description if ours else "",
        context_tokens=ours.context_tokens if ours else 0,
    )
