"""The agent's numbers as Prometheus families: names, units, labels. No socket here.

Names follow Prometheus' conventions (base units, ``_total`` for counters); histograms have
the buckets of ``core.latency``. Labels are bounded: models as configured, three classes, the
update machine's phases. Loaded only where ``[metrics]`` asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from stoker import __version__
from stoker.core.latency import BOUNDS_S, Histogram
from stoker.core.measures import Counted, Key, Work
from stoker.events.fleet import FleetSnapshot
from stoker.events.thermal import ThermalSnapshot
from stoker.events.updates import UpdateSnapshot
from stoker.ports.doors import CpuShare, InferenceSnapshot

_EDGES: Final = (*(f"{bound:g}" for bound in BOUNDS_S), "+Inf")
_KEYS: Final = ("model", "class")
HEAT_STATES: Final = ("ok", "degraded", "safe", "stop", "watching", "blind")
PARTITION_LEVELS: Final = ("partition", "cpuset", "none", "unknown")
MEMORY_LEVELS: Final = ("calm", "tight", "critical")
_KHZ: Final = 1000.0


@dataclass(frozen=True, slots=True)
class Looks:
    """Where the collector finds what it tells; each answers at once."""

    counted: Callable[[], Counted]
    inference: Callable[[], InferenceSnapshot]
    thermal: Callable[[], ThermalSnapshot]
    updates: Callable[[], UpdateSnapshot]
    fleet: Callable[[], FleetSnapshot]
    cpu_share: Callable[[], CpuShare]
    uptime_s: Callable[[], float]


class Collector:
    """For ``prometheus_client``'s registry. ``constant`` labels every sample (device, region)."""

    def __init__(self, looks: Looks, constant: Mapping[str, str]) -> None:
        self._looks = looks
        self._constant = {key: value for key, value in constant.items() if value}

    def collect(self) -> Iterator[Metric]:
        counted, looks = self._looks.counted(), self._looks
        for family in (
            *_answers(counted.work),
            *_tokens(counted.work),
            *_inference(looks.inference()),
            *_heat(looks.thermal(), counted),
            *_updates(looks.updates()),
            *_fleet(looks.fleet()),
            _states("stoker_partition_level", "Level of CPU isolation the runner has",
                    looks.cpu_share().state, PARTITION_LEVELS),
            _gauge("stoker_uptime_seconds", "Since stokerd started", looks.uptime_s()),
            _info(looks.inference()),
        ):  # fmt: skip
            for sample in family.samples:
                sample.labels.update(self._constant)
            yield family


def _answers(work: Mapping[Key, Work]) -> Iterator[Metric]:
    ended = CounterMetricFamily(
        "stoker_requests", "Answers by how they ended: a finish reason or an error's code",
        labels=(*_KEYS, "end"),
    )  # fmt: skip
    for key, one in work.items():
        for how, count in one.ends.items():
            ended.add_metric((key.model, key.job_class, how), count)
    yield ended
    yield _histogram("stoker_request_duration_seconds", "From acceptance to the end of an answer",
                     {key: one.duration for key, one in work.items()})  # fmt: skip
    yield _histogram("stoker_queue_wait_seconds", "From acceptance until an answer was begun",
                     {key: one.queue_wait for key, one in work.items()})  # fmt: skip
    yield _histogram("stoker_time_to_first_token_seconds", "From acceptance to the first token",
                     {key: one.first_token for key, one in work.items()})  # fmt: skip
    yield _histogram("stoker_inter_token_seconds", "Between two tokens of one answer",
                     {key: one.between_tokens for key, one in work.items()})  # fmt: skip


def _tokens(work: Mapping[Key, Work]) -> Iterator[Metric]:
    prompt = CounterMetricFamily("stoker_prompt_tokens", "Read, cached ones too", labels=_KEYS)
    cached = CounterMetricFamily(
        "stoker_prefix_cache_hit_tokens", "Prompt tokens that were in the cache", labels=_KEYS
    )
    written = CounterMetricFamily("stoker_completion_tokens", "Written", labels=_KEYS)
    for key, one in work.items():
        labels = (key.model, key.job_class)
        prompt.add_metric(labels, one.tokens.prompt)
        cached.add_metric(labels, one.tokens.cached)
        written.add_metric(labels, one.tokens.completion)
    yield from (prompt, cached, written)


def _inference(seen: InferenceSnapshot) -> Iterator[Metric]:
    yield _gauge("stoker_queue_depth", "Jobs that wait", seen.queue_depth)
    yield _gauge("stoker_active_jobs", "Jobs in the runner", seen.active_jobs)
    yield _gauge("stoker_threads", "Compute threads of the runner", seen.threads)
    yield _gauge("stoker_ready", "1 while a model serves", float(seen.state == "ready"))
    restarts = CounterMetricFamily("stoker_runner_restarts", "Unordered ends of the runner")
    restarts.add_metric((), seen.runner_restarts)
    yield restarts
    yield _states("stoker_memory_level", "How short memory is", seen.memory_level, MEMORY_LEVELS)


def _heat(seen: ThermalSnapshot, counted: Counted) -> Iterator[Metric]:
    if seen.temperature_c is not None:
        warm = GaugeMetricFamily(
            "stoker_temperature_celsius", "The zone nearest to its wall", labels=("sensor",)
        )
        warm.add_metric((seen.sensor,), seen.temperature_c)
        yield warm
    yield _gauge("stoker_thermal_wall_celsius", "Never to be crossed", seen.wall_c)
    yield _gauge(
        "stoker_thermal_headroom_ratio", "Heat leaves so much of the device", seen.headroom
    )
    caps = GaugeMetricFamily(
        "stoker_frequency_cap_hertz", "Our cap; absent = uncapped", labels=("policy",)
    )
    for policy, khz in sorted(seen.cap_khz.items()):
        caps.add_metric((policy,), khz * _KHZ)
    yield caps
    yield _counter("stoker_above_wall_seconds", "Time above the wall", counted.heat.above_wall_s)
    yield _states("stoker_thermal_state", "State of the thermal loop", seen.state, HEAT_STATES)
    if seen.power_w is not None:
        yield _gauge("stoker_power_watts", "Measured by the board's meter", seen.power_w)
    if counted.heat.metered:
        yield _counter("stoker_energy_joules", "Power over time", counted.heat.energy_j)
    if counted.joules_per_token is not None:
        yield _gauge("stoker_joules_per_token", "Mean since the start, prompts included",
                     counted.joules_per_token)  # fmt: skip


def _updates(seen: UpdateSnapshot) -> Iterator[Metric]:
    phase = GaugeMetricFamily("stoker_update_phase", "1 for the phase it is in", labels=("phase",))
    phase.add_metric((seen.state,), 1)
    yield phase
    yield _gauge("stoker_update_generation", "Installed set; 0 = the package's own", seen.current)
    yield _gauge("stoker_update_clock_trusted", "1 = expiry decides", float(seen.clock_trusted))


def _fleet(seen: FleetSnapshot) -> Iterator[Metric]:
    """Nothing where no broker is configured: 0 would be an alarm."""
    if seen.state == "off":
        return
    yield _gauge("stoker_fleet_connected", "1 while the broker is there", seen.state == "online")
    yield _gauge("stoker_fleet_outbox", "Messages that wait for the broker", seen.outbox)


def _info(seen: InferenceSnapshot) -> Metric:
    labels = ("version", "engine", "library")
    info = GaugeMetricFamily(
        "stoker_build_info", "Always 1; what runs is in its labels", labels=labels
    )
    info.add_metric((__version__, seen.engine, seen.library), 1)
    return info


def _histogram(name: str, text: str, found: Mapping[Key, Histogram]) -> Metric:
    family = HistogramMetricFamily(name, text, labels=_KEYS)
    for key, histogram in found.items():
        buckets = [(edge, float(n)) for edge, n in zip(_EDGES, histogram.cumulated(), strict=True)]
        family.add_metric((key.model, key.job_class), buckets, sum_value=histogram.sum_s)
    return family


def _states(name: str, text: str, now: str, known: tuple[str, ...]) -> Metric:
    """One sample for each known state, 1 for the present one."""
    family = GaugeMetricFamily(name, f"{text}; 1 for the present one", labels=("state",))
    for state in known:
        family.add_metric((state,), float(state == now))
    return family


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)
