"""How each key is read: its kind and what it may be, one table a section.

The keys equal the fields of ``schema`` (a test holds it). Ranges refuse what can only
be a slip of the hand; what the device can really do is decided where it is known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from stoker.config.addresses import parse_address
from stoker.events.inference import JobClass
from stoker.events.prompt import OVERFLOW, SAMPLING_RANGES
from stoker.getters import Table

Reader = Callable[[Table, str, Any], object]
"""(table, key, default) -> the checked value."""

KIB: Final = 1 << 10
MIB: Final = 1 << 20
DAY_S: Final = 86_400.0
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
BOARD: Final = re.compile(rf"{NAME.pattern}|sim:[A-Za-z0-9][A-Za-z0-9.,=_-]{{0,127}}")
GROUP: Final = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
USER: Final = re.compile(r"(?:[a-z_][a-z0-9_-]{0,31})?")  # "" = nobody
_MAX_PATH_BYTES: Final = 4096  # PATH_MAX


def whole(low: int, high: int) -> Reader:
    return lambda table, key, default: table.whole(key, default, low=low, high=high)


def number(low: float, high: float) -> Reader:
    return lambda table, key, default: table.number(key, default, low=low, high=high)


def _within(low: float, high: float) -> Reader:
    """Whole numbers where both limits are whole."""
    if isinstance(low, int) and isinstance(high, int):
        return whole(low, high)
    return number(low, high)


def flag(table: Table, key: str, default: Any) -> object:
    return table.flag(key, default)


def one_of(*allowed: str) -> Reader:
    return lambda table, key, default: table.choice(key, allowed, default)


def matching(pattern: re.Pattern[str], what: str) -> Reader:
    def read(table: Table, key: str, default: Any) -> object:
        value = table.text(key, default)
        if not pattern.fullmatch(value):
            table.refuse(key, f"{value!r} is not {what}")
        return value

    return read


def path(table: Table, key: str, default: Any) -> object:
    """The daemon runs in ``/``: a relative path would mean another file than it says."""
    value = table.text(key, default, max_bytes=_MAX_PATH_BYTES)
    if not value.startswith("/"):
        table.refuse(key, f"{value!r} is not an absolute path")
    if "\0" in value:
        table.refuse(key, "a path cannot hold a NUL character")
    return value


def file_or_none(table: Table, key: str, default: Any) -> object:
    """An absolute path, or "" for none."""
    return "" if table.text(key, default) == "" else path(table, key, default)


def bus(table: Table, key: str, default: Any) -> object:
    """``system``, ``session`` or a D-Bus address such as ``unix:path=/run/x``."""
    value = table.text(key, default, max_bytes=_MAX_PATH_BYTES)
    if value not in ("system", "session") and not re.match(r"[a-z-]+:[^\s]+=", value):
        table.refuse(key, f"{value!r} is not system, session or a D-Bus address")
    return value


def address(table: Table, key: str, default: Any) -> object:
    """Of a local door, or "" for none."""
    value = table.text(key, default)
    if value:
        try:
            parse_address(value)
        except ValueError as error:
            table.refuse(key, str(error))
    return value


def wall(table: Table, key: str, default: Any) -> object:
    """0 leaves the wall to the board; a few degrees would mean "never run"."""
    value = table.number(key, default, low=0.0, high=125.0)
    if 0.0 < value < 30.0:
        table.refuse(key, f"{value} °C is colder than the air around many boards; 0 or 30..125")
    return value


def names(table: Table, key: str, default: Any) -> object:
    """Further names of a model."""
    found = table.texts(key, default, max_items=16)
    for index, name in enumerate(found):
        if not NAME.fullmatch(name):
            table.refuse(f"{key}[{index}]", f"{name!r} is not a model's name")
    return found


def sensors(table: Table, key: str, default: Any) -> object:
    """Kernel names, so any printable text; whether they exist is seen when the board is."""
    found = table.texts(key, default, max_items=16)
    for index, name in enumerate(found):
        if not 0 < len(name) <= 64 or not name.isprintable() or name in found[:index]:
            table.refuse(f"{key}[{index}]", f"{name!r} is no sensor's name, or is there twice")
    return found


def prompts(table: Table, key: str, default: Any) -> object:
    """Whole system prompts, as programs send them."""
    found = table.texts(key, default, max_items=16)
    for index, prompt in enumerate(found):
        if not prompt or len(prompt.encode("utf-8", "surrogatepass")) > 64 * KIB:
            table.refuse(f"{key}[{index}]", f"must have 1..{64 * KIB} bytes")
    return found


def folders(table: Table, key: str, default: Any) -> object:
    """Absolute paths."""
    found = table.texts(key, default, max_items=16)
    for index, folder in enumerate(found):
        if not folder.startswith("/") or "\0" in folder or len(folder) > _MAX_PATH_BYTES:
            table.refuse(f"{key}[{index}]", f"{folder!r} is not an absolute path")
    return found


MODEL: Final[Mapping[str, Reader]] = {
    "path": path,
    "context_tokens": whole(0, 1 << 20),
    "mmap": flag,
    "mlock": flag,
    "kv_type": one_of("auto", "f16", "q8_0", "q4_0"),
    "flash_attention": one_of("auto", "on", "off"),
    "gpu_layers": whole(0, 1000),
    "aliases": names,
}

ADAPTER: Final[Mapping[str, Reader]] = {
    "path": path,
    "model": matching(NAME, "a model's name"),
}

QUOTA: Final[Mapping[str, Reader]] = {
    "highest_class": one_of(*(job_class.word for job_class in JobClass)),
    "concurrent_jobs": whole(0, 64),
    "queued_jobs": whole(0, 10_000),
    "queued_bytes": whole(0, 1 << 40),
    "tokens_per_minute": whole(0, 1 << 40),
}

SECTIONS: Final[Mapping[str, Mapping[str, Reader]]] = {
    "daemon": {
        "bus": bus,
        "state_dir": path,
        "runtime_dir": path,
        "log_level": one_of("debug", "info", "warning", "error"),
    },
    "runner": {
        "engine": one_of("llama", "echo"),
        "launcher": one_of("auto", "child", "systemd"),
        "slots": whole(1, 64),
        "parked_slots": whole(0, 63),
        "threads": whole(0, 512),
        "threads_batch": whole(0, 512),
        "batch_tokens": whole(16, 16_384),
        "prefill_target_ms": whole(1, 60_000),
        "cached_prefixes": whole(0, 64),
        "cache_tokens": whole(0, 1 << 20),
        "shared_prefixes": prompts,
        "state_bytes": whole(0, 1 << 40),
        "state_idle_s": number(0.0, DAY_S),
        "gomp_spincount": whole(0, 1_000_000_000),
        "hello_timeout_s": number(0.5, 600.0),
        "load_stall_timeout_s": number(1.0, 3600.0),
        "heartbeat_timeout_s": number(2.0, 600.0),  # the runner beats once a second
        "stop_timeout_s": number(0.1, 120.0),
    },
    "swap": {
        "policy": one_of("never", "when-idle", "on-demand"),
        "drain_timeout_s": number(0.0, 3600.0),
        "probe_timeout_s": number(1.0, 3600.0),
        "keep_alive_s": number(0.0, 366 * DAY_S),
    },
    "memory": {
        "fit": one_of("auto", "strict", "off"),
        "reserve_bytes": whole(0, 1 << 40),
        "least_context_tokens": whole(256, 1 << 20),
        "pressure_file": file_or_none,
        "tight_pct": number(0.1, 100.0),
        "critical_pct": number(0.1, 100.0),
        "calm_after_s": number(1.0, DAY_S),
        "grow_after_s": number(1.0, DAY_S),
        "huge_pages": flag,
    },
    "restart": {
        "backoff_first_s": number(0.01, 60.0),
        "backoff_cap_s": number(0.01, 3600.0),
        "stable_after_s": number(1.0, DAY_S),
        "crash_limit": whole(1, 100),
        "crash_window_s": number(1.0, DAY_S),
    },
    "inference": {
        "queue_limit": whole(1, 10_000),
        "ageing_s": number(0.1, DAY_S),
        "background_waits": flag,
        # A control character is six bytes of JSON: so many still fit a frame of 16 MiB.
        "max_request_bytes": whole(KIB, 2 * MIB),
        # JSON already, with those characters as they will be sent.
        "max_request_fd_bytes": whole(KIB, 14 * MIB),
        "max_tokens": whole(1, 1 << 20),
        "max_tokens_limit": whole(1, 1 << 20),
        "overflow": one_of(*OVERFLOW),
        "deadline_s": number(1.0, DAY_S),
        "ask_timeout_s": number(1.0, DAY_S),
        "stream_buffer_bytes": whole(4 * KIB, 16 * MIB),
        "slow_reader_timeout_s": number(0.1, 3600.0),
        "keep_result_s": number(0.0, DAY_S),
        "max_result_bytes": whole(KIB, 64 * MIB),
        "keep_results_bytes": whole(64 * KIB, 1024 * MIB),
    },
    "sampling": {name: _within(*limits) for name, limits in SAMPLING_RANGES.items()},
    "sessions": {
        "window_turns": whole(0, 500),
        "window_tokens": whole(0, 1 << 20),
        "overflow": one_of("drop-oldest", "error"),
        "title": one_of("off", "question"),
        "summary": one_of("off", "on"),
        "keep_partial": flag,
        "when_full": one_of("evict", "refuse"),
        "ttl_s": number(0.0, 3660 * DAY_S),
        "max_sessions_per_user": whole(1, 100_000),
        "max_bytes_per_session": whole(16 * KIB, 16 * MIB),  # Export is one message
        "max_bytes_per_user": whole(16 * KIB, 1 << 40),
        "max_bytes": whole(16 * KIB, 1 << 40),
    },
    "thermal": {
        "enabled": flag,
        "board": matching(BOARD, 'a board\'s name, "auto" or "sim:PLANT"'),
        "wall_c": wall,
        "actuate": flag,
        "law": one_of("pi", "step-table", "open-loop"),
        "sensors": sensors,
        "margin_k": number(0.0, 20.0),
        "gain_w_per_k": number(0.0, 100.0),
        "reset_s": number(0.5, 600.0),
        "sysfs_root": path,
        "period_min_s": number(0.01, 10.0),
        "period_max_s": number(0.05, 60.0),
    },
    "updates": {
        "enabled": flag,
        "trust": path,
        "sources": folders,
        "retry_s": number(0.1, DAY_S),
    },
    "metrics": {"listen": address},
    "history": {"enabled": flag, "keep_days": whole(1, 400)},
    "access": {
        "admin_group": matching(GROUP, "a group's name"),
        "gateway_user": matching(USER, "a user's name"),
    },
    "quotas": QUOTA,
}
