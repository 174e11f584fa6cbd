"""Status, models and heat as lines for people. Pure: dictionaries in, lines out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from stoker.cli.terminal import Terminal

Facts = Mapping[str, Any]

STATE_WORDS: Final = {
    "ok": "under control",
    "degraded": "the sensor is missing for a moment: the last cap is held",
    "safe": "the sensor cannot be trusted: the clock is held low",
    "stop": "too hot or blind for too long: inference is paused",
    "watching": "watching only: there is no clock to slow down on this machine",
    "blind": "there is no temperature sensor on this machine",
}
_GOOD: Final = ("ready", "asleep", "ok", "idle", "watching", "blind")
_WAITING: Final = ("starting", "loading", "restarting", "degraded")


def status(facts: Facts, terminal: Terminal) -> list[str]:
    """One screen of ``org.stoker.Agent1.Status``."""
    state = _text(facts, "state", terminal)
    reason = _text(facts, "state_reason", terminal)
    engine = " ".join(filter(None, (_text(facts, k, terminal) for k in ("engine", "library"))))
    model = _text(facts, "model", terminal) or "none"
    restarts = int(facts.get("runner_restarts", 0))
    pid = int(facts.get("runner_pid", 0))
    runner = [f"pid {pid}" if pid else "not running"]
    if facts.get("runner_memory_bytes"):
        runner.append(size(int(facts["runner_memory_bytes"])))
    if facts.get("threads"):
        runner.append(f"{int(facts['threads'])} threads")
    runner.append(f"restarted {restarts} ×")
    return _rows(
        terminal,
        (
            ("state", look(state, terminal) + (f": {reason}" if reason else "")),
            ("model", model + (f" ({engine})" if engine else "")),
            ("runner", ", ".join(runner)),
            *(("memory", line) for line in memory(facts, terminal)),
            *_cpus(facts, terminal),
            (
                "jobs",
                f"{facts.get('active_jobs', 0)} running, {facts.get('queue_depth', 0)} waiting",
            ),
            *_tokens(facts),
            ("heat", heat(facts, terminal)),
            ("board", _text(facts, "board", terminal) or "unknown"),
            ("up", span(float(facts.get("uptime_s", 0.0)))),
            ("version", _text(facts, "version", terminal)),
        ),
    )


def memory(facts: Facts, terminal: Terminal) -> list[str]:
    """What the model in use was given, and how short memory is; nothing if neither is known."""
    out = []
    if facts.get("expected_bytes"):
        slots = int(facts.get("slots", 0))
        out.append(
            f"{slots} slot{'s' * (slots != 1)} of {int(facts.get('context_tokens', 0))} tokens, "
            f"{_text(facts, 'kv_type', terminal)}, {size(int(facts['expected_bytes']))} expected"
        )
    if facts.get("gave_way"):
        out.append(_text(facts, "gave_way", terminal))
    level = _text(facts, "memory_level", terminal)
    if level not in ("", "calm"):
        out.append(f"{level}: caches and contexts shrink, large requests wait")
    return out


def _tokens(facts: Facts) -> tuple[tuple[str, str], ...]:
    """Nothing before the first answer."""
    prompt, known, made = (
        int(facts.get(f"{key}_tokens", 0)) for key in ("prompt", "cached", "completion")
    )
    if not prompt:
        return ()
    return (("tokens", f"{made} written, {prompt} read, {100 * known // prompt} % known already"),)


def _cpus(facts: Facts, terminal: Terminal) -> tuple[tuple[str, str], ...]:
    """Nothing where no stoker-slice has been at work (a checkout, a system without systemd)."""
    state, cpus, reason = (
        _text(facts, key, terminal) for key in ("cpu_state", "cpus", "cpu_reason")
    )
    words = {"partition": f"{cpus}, its own", "cpuset": f"{cpus}, shared", "none": "any, shared"}
    if state not in words:
        return ()
    return (("cpus", words[state] + (f": {reason}" if reason else "")),)


def models(found: Sequence[Facts], terminal: Terminal) -> list[str]:
    """A line for each model; ``*`` marks the default."""
    if not found:
        return ['No models. Put one into stoker.toml: [models.NAME] path = "…"']
    rows = [("", "NAME", "STATE", "SIZE", "CONTEXT", "")]
    for item in found:
        context = int(item.get("context_tokens", 0))
        rows.append(
            (
                "*" if item.get("default") else "",
                _names(item, terminal),
                _text(item, "state", terminal),
                size(int(item.get("size_bytes", 0))),
                str(context) if context else "",
                _text(item, "reason", terminal)
                or "; ".join(memory(item, terminal))
                or _text(item, "description", terminal),
            )
        )
    return columns(rows)


def _names(item: Facts, terminal: Terminal) -> str:
    """The name, and the aliases behind it."""
    others = ", ".join(terminal.clean(str(alias)) for alias in item.get("aliases", ()))
    return _text(item, "name", terminal) + (f" ({others})" if others else "")


def thermal(facts: Facts, terminal: Terminal) -> list[str]:
    """What the loop senses, what it does and why."""
    state = _text(facts, "state", terminal)
    reason = _text(facts, "reason", terminal) or STATE_WORDS.get(state, "")
    cap = int(facts.get("cap_khz", 0))
    shown = {**facts, "thermal_state": state}
    lines = _rows(
        terminal,
        (
            ("state", look(state, terminal) + (f": {reason}" if reason else "")),
            ("heat", heat(shown, terminal)),
            ("headroom", f"{100 * float(facts.get('headroom', 1.0)):.0f} % of the power budget"),
            ("cap", clock(cap) if cap else "none"),
            ("board", _text(facts, "board", terminal) or "unknown"),
            ("sensor", _text(facts, "sensor", terminal) or "none"),
            ("actuator", _text(facts, "actuator", terminal) or "none"),
            ("points", point(facts, terminal)),
            ("period", f"{1000 * float(facts.get('period_s', 0.0)):.0f} ms"),
        ),
    )
    return lines + _sensors(facts, terminal) + _policies(facts, terminal)


def point(facts: Facts, terminal: Terminal) -> str:
    """The operating point of the phase, or why there is none."""
    words = [_text(facts, "points", terminal) or "none"]
    if facts.get("point_watts"):
        words.append(
            f"{facts.get('point_tokens_per_s', 0.0):.1f} tokens/s for {facts['point_watts']:.1f} W"
        )
        threads = [int(facts.get(key, 0)) for key in ("threads", "threads_batch")]
        if all(threads):
            words.append(f"{threads[0]} threads writing, {threads[1]} reading")
    duty = float(facts.get("duty", 1.0))
    if duty < 1.0:
        words.append(f"steps take {100 * duty:.0f} % of the time")
    return ", ".join(words)


def _sensors(facts: Facts, terminal: Terminal) -> list[str]:
    sensors: Sequence[Facts] = facts.get("sensors", ())
    if not sensors:
        return []
    rows: list[tuple[str, ...]] = [("SENSOR", "KIND", "°C", "PATH")]
    for item in sensors:
        temperature = item.get("temperature_c")
        shown = f"{temperature:.1f}" if isinstance(temperature, float) else ""
        value = shown or _text(item, "fault", terminal) or "?"
        name, kind, path = (_text(item, key, terminal) for key in ("name", "kind", "path"))
        rows.append((name, kind, value, path))
    return ["", *columns(rows)]


def _policies(facts: Facts, terminal: Terminal) -> list[str]:
    policies: Sequence[Facts] = facts.get("policies", ())
    if not policies:
        return []
    caps: Mapping[str, int] = facts.get("caps_khz", {})
    rows = [("POLICY", "CLOCK", "CAP", "")]
    for item in policies:
        name = _text(item, "name", terminal)
        span_ = f"{clock(int(item.get('min_khz', 0)))} … {clock(int(item.get('max_khz', 0)))}"
        cap = clock(caps[name]) if caps.get(name) else "none"
        rows.append((name, span_, cap, "" if item.get("writable") else "read only"))
    return ["", *columns(rows)]


def heat(facts: Facts, terminal: Terminal) -> str:
    """Temperature against the wall, with a bar from 20 °C to the wall."""
    temperature, wall = facts.get("temperature_c"), facts.get("wall_c")
    state = _text(facts, "thermal_state", terminal)
    if not isinstance(temperature, float) or math.isnan(temperature):
        return f"unknown ({STATE_WORDS.get(state, state)})"
    if not isinstance(wall, float) or not wall > 20:
        return f"{temperature:.1f} °C, {state}"
    cells = 20
    full = round(cells * min(max((temperature - 20) / (wall - 20), 0), 1))
    bar = "█" * full + "░" * (cells - full)
    colour = "green" if temperature < wall - 8 else "yellow" if temperature < wall else "red"
    words = f"{temperature:.1f} °C of {wall:.1f} °C"
    return f"{words}  {terminal.paint(bar, colour)}  {look(state, terminal)}"


def look(state: str, terminal: Terminal) -> str:
    """A state in the colour of how much it should worry."""
    colour = "green" if state in _GOOD else "yellow" if state in _WAITING else "red"
    return terminal.paint(state, colour)


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Left-aligned columns, two spaces apart."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def size(count: int) -> str:
    """Bytes in binary units."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:.0f} {unit}" if unit in ("B", "KiB", "MiB") else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError


def clock(khz: int) -> str:
    return f"{khz / 1_000_000:.2f} GHz" if khz >= 1_000_000 else f"{khz / 1000:.0f} MHz"


def span(seconds: float) -> str:
    """A duration with its two largest units."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days} d {hour} h"
    if hour:
        return f"{hour} h {minute} min"
    return f"{minute} min {second} s" if minute else f"{second} s"


def _text(facts: Facts, key: str, terminal: Terminal) -> str:
    value = facts.get(key)
    return terminal.clean(str(value)) if value is not None else ""


def _rows(terminal: Terminal, rows: Iterable[tuple[str, str]]) -> list[str]:
    return [terminal.paint(f"{name:<10}", "dim") + value for name, value in rows]
