"""How each key is read: its kind and what it may be, one table a section.

The keys equal the fields of ``schema`` (a test holds it). Ranges refuse what can only
be a slip of the hand; what the device can really do is decided where it is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stoker.config.readers import (
    BOARD,
    DAY_S,
    DEVICE,
    GROUP,
    KIB,
    MIB,
    NAME,
    PREFIX,
    PROXY,
    TEXT,
    TOPIC_ROOT,
    USER,
    Reader,
    address,
    broker_address,
    bus,
    devices,
    file_or_none,
    flag,
    labels,
    matching,
    names,
    number,
    one_of,
    origins,
    path,
    prompts,
    sensors,
    wall,
    whole,
    within,
)
from stoker.events.inference import JobClass
from stoker.events.prompt import OVERFLOW, SAMPLING_RANGES

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
    "device": {
        "id": matching(DEVICE, "a device's id (letters, digits, dots, dashes and lines)"),
        "region": matching(DEVICE, "a region's name"),
        "labels": labels,
    },
    "runner": {
        "engine": one_of("llama", "echo"),
        "libraries": file_or_none,
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
        "pin": one_of("auto", "one-to-one", "set", "off"),
        "nice": whole(-10, 19),  # LimitNICE= of the unit
        "realtime": one_of("off", "fifo"),
        "frame_ms": whole(0, 1000),
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
        "queue_bytes": whole(MIB, 1 << 40),
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
    "sampling": {name: within(*limits) for name, limits in SAMPLING_RANGES.items()},
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
        "governor": one_of("keep", "performance"),
        "devfreq": devices,
        "sysfs_root": path,
        # A loop that did not tick for 10 s counts as dead, and systemd ends us after 30 s.
        "period_min_s": number(0.01, 5.0),
        "period_max_s": number(0.05, 5.0),
    },
    "updates": {
        "enabled": flag,
        "trust": path,
        "sources": origins,
        "poll_s": number(0.0, 30 * DAY_S),
        "automatic": flag,
        "spread_s": number(0.0, DAY_S),
        "max_rate": whole(0, 1 << 40),
        "mqtt_window": whole(1, 64),
        "metered": one_of("auto", "yes", "no"),
        "ca": file_or_none,
        "certificate": file_or_none,
        "key": file_or_none,
        "proxy": matching(PROXY, "http://HOST:PORT, none or empty"),
        "plain_http": flag,
        "retry_s": number(0.1, DAY_S),
    },
    "metrics": {"listen": address},
    "history": {"enabled": flag, "keep_days": whole(1, 400)},
    "fleet": {
        "broker": broker_address,
        "root": matching(TOPIC_ROOT, "one to three levels of letters, digits, - and _"),
        "ca": file_or_none,
        "certificate": file_or_none,
        "key": file_or_none,
        "username": matching(TEXT, "a name without spaces"),
        "password_file": file_or_none,
        "keepalive_s": whole(30, 1140),  # AWS IoT Core's least, Azure's most
        "reconnect_cap_s": number(1.0, 3600.0),
        "telemetry_s": number(0.0, DAY_S),
        "outbox_bytes": whole(256 * KIB, 1 << 30),
        "outbox_age_s": number(60.0, 366 * DAY_S),
        "home_assistant": matching(PREFIX, "one level of a topic"),
        "restart_button": flag,
    },
    "access": {
        "admin_group": matching(GROUP, "a group's name"),
        "gateway_user": matching(USER, "a user's name"),
    },
    "quotas": QUOTA,
}
