"""Settings and callers' questions in the runner's words. Decides nothing, sends nothing."""

from __future__ import annotations

from stoker.config.schema import Config, ModelConfig
from stoker.events import runner as wire
from stoker.events.inference import Ask


def load_request(load_id: str, model: ModelConfig, config: Config, threads: int) -> wire.Load:
    """Load as the model's and the runner's settings say."""
    runner = config.runner
    return wire.Load(
        id=load_id,
        model=model.name,
        path=model.path,
        context_tokens=model.context_tokens,
        slots=runner.slots + runner.parked_slots,
        threads=threads,
        threads_batch=runner.threads_batch or threads,
        batch_tokens=runner.batch_tokens,
        prefill_target_ms=runner.prefill_target_ms,
        mmap=model.mmap,
        mlock=model.mlock,
        kv_type="f16" if model.kv_type == "auto" else model.kv_type,
        flash_attention=model.flash_attention,
        gpu_layers=model.gpu_layers,
        cached_prefixes=runner.cached_prefixes,
        cache_tokens=runner.cache_tokens,
        shared_prefixes=runner.shared_prefixes,
        state_bytes=runner.state_bytes,
        state_idle_ms=int(runner.state_idle_s * 1000),
        adapters=tuple(
            wire.Adapter(item.name, item.path)
            for item in config.adapters
            if item.model == model.name
        ),
    )


def generate_request(
    job: str, ask: Ask, max_tokens: int, uid: int, overflow: str = "error"
) -> wire.Generate:
    """A caller's question in the runner's words; ``overflow`` where it names none."""
    return wire.Generate(
        job=job,
        prompt=ask.prompt,
        messages=ask.messages,
        raw=ask.raw,
        max_tokens=max_tokens,
        stop=ask.stop,
        sampling=ask.sampling,
        reasoning=ask.reasoning,
        shape=ask.shape,
        scope=str(uid),
        keep=ask.keep,
        overflow=ask.overflow or overflow,
    )
