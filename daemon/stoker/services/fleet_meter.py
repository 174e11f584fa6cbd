"""What telemetry says of answers: their number, tokens a second, how long they took.

Any thread tells it of jobs; the fleet thread takes what has gathered. No text passes here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from stoker.core.latency import Histogram, together
from stoker.core.measures import Counted
from stoker.ports.doors import InferenceDoor, InferenceListener, JobView

MAX_TIMES: Final = 1024


class Meter:
    """``counted``: what metrics and the device's history read too."""

    def __init__(
        self,
        inference: InferenceDoor,
        monotonic_s: Callable[[], float],
        counted: Callable[[], Counted],
    ) -> None:
        self._inference, self._now_s, self._counted = inference, monotonic_s, counted
        self._before = counted()
        self._lock = threading.Lock()
        self._begun: dict[str, float] = {}
        self._took_s: list[float] = []
        self._failed = 0
        self._since_s = monotonic_s()
        self._tokens = inference.snapshot().tokens.completion
        inference.listen(InferenceListener(job_started=self._started, job_finished=self._ended))

    def take(self) -> dict[str, object]:
        """Since the last time; seconds and tokens."""
        now, tokens = self._now_s(), self._inference.snapshot().tokens.completion
        with self._lock:
            took, self._took_s = sorted(self._took_s), []
            failed, self._failed = self._failed, 0
        span = max(now - self._since_s, 1e-3)
        made = max(0, tokens - self._tokens)
        self._since_s, self._tokens = now, tokens
        return {
            "interval_s": round(span, 1),
            "jobs": len(took),
            "jobs_failed": failed,
            "tokens": made,
            "tokens_per_s": round(made / span, 2),
            "p50_s": round(_quantile(took, 0.50), 3),
            "p99_s": round(_quantile(took, 0.99), 3),
            **self._of_tokens(),
        }

    def _of_tokens(self) -> dict[str, object]:
        """Between two tokens of an answer, and energy where a meter is; of answers that ended."""
        before, now = self._before, self._counted()
        self._before = now
        gaps = _gaps(now).minus(_gaps(before))
        body: dict[str, object] = {
            f"token_p{part}_s": round(gaps.quantile_s(part / 100) or 0.0, 4) for part in (50, 99)
        }
        tokens = _tokens(now) - _tokens(before)
        if now.heat.metered and tokens > 0:
            joules = now.heat.busy_energy_j - before.heat.busy_energy_j
            body["joules_per_token"] = round(joules / tokens, 3)
        return body

    def _started(self, job: JobView) -> None:
        with self._lock:
            if len(self._begun) < MAX_TIMES:
                self._begun[job.id] = self._now_s()

    def _ended(self, job: JobView) -> None:
        with self._lock:
            begun = self._begun.pop(job.id, None)
            if begun is not None and len(self._took_s) < MAX_TIMES:
                self._took_s.append(self._now_s() - begun)
            self._failed += bool(job.error_code)


def _gaps(counted: Counted) -> Histogram:
    return together(work.between_tokens for work in counted.work.values())


def _tokens(counted: Counted) -> int:
    return sum(work.tokens.completion for work in counted.work.values())


def _quantile(values: list[float], share: float) -> float:
    """Of ascending values; 0 when there are none."""
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0
