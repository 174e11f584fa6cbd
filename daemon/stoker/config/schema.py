"""Every setting, its unit and its default, as frozen values.

policies/stoker.toml documents each key for people; a test compares the two, so that
neither can drift. Zero often means "choose for me"; it is said where.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stoker.events.prompt import Sampling
from stoker.units import Bytes, Celsius, Kelvin, Seconds


@dataclass(frozen=True, slots=True)
class DaemonConfig:
    bus: str = "system"  # system | session | a D-Bus address
    state_dir: str = "/var/lib/stoker"
    runtime_dir: str = "/run/stoker"
    log_level: str = "info"  # debug | info | warning | error


@dataclass(frozen=True, slots=True)
class DeviceConfig:
    """Who this device is among others: what updates and fleets are addressed to."""

    id: str = ""  # "" = made of /etc/machine-id
    region: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One ``[models.NAME]`` table."""

    name: str
    path: str
    context_tokens: int = 0  # per slot; 0 = the training context, at most 4096
    mmap: bool = True
    mlock: bool = False
    kv_type: str = "auto"  # auto | f16 | q8_0 | q4_0; auto = f16 where it fits
    flash_attention: str = "auto"  # auto | on | off
    gpu_layers: int = 0
    aliases: tuple[str, ...] = ()  # other names by which requests may ask for it


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """One ``[adapters.NAME]`` table: a LoRA file for one model."""

    name: str
    path: str
    model: str  # as in [models.NAME]


@dataclass(frozen=True, slots=True)
class RunnerConfig:
    engine: str = "llama"  # llama | echo (tests)
    libraries: str = ""  # folder of libllama.so; "" = the package's own
    launcher: str = "auto"  # auto | child | systemd; see docs/packaging.md
    slots: int = 4  # sequences decoded together
    parked_slots: int = 1  # sequences beyond them, for jobs that stand still
    threads: int = 0  # 0 = the CPUs this process may use, rounded down by any quota
    threads_batch: int = 0  # 0 = as threads
    batch_tokens: int = 512
    prefill_target_ms: int = 200  # longest step while others decode
    cached_prefixes: int = 8  # finished conversations kept ready; 0 = none
    cache_tokens: int = 0  # room for them beside the slots' own, which they use while it is free
    shared_prefixes: tuple[str, ...] = ()  # system prompts that users may share the cache of
    state_bytes: Bytes = Bytes(256 << 20)  # of conversations saved to disk; 0 = none is
    state_idle_s: Seconds = Seconds(30.0)  # a conversation is saved when unused for so long
    pin: str = "auto"  # auto | one-to-one | set | off: compute threads on CPUs; docs/thermal.md
    nice: int = -10  # of compute threads that masks hold to some CPUs; 0 = as they are
    realtime: str = "off"  # off | fifo: with a partition only
    frame_ms: int = 30  # tokens of quick steps wait so long for each other; 0 = none does
    gomp_spincount: int = 2000  # bounds libgomp's busy wait; see docs/inference.md
    hello_timeout_s: Seconds = Seconds(20.0)
    load_stall_timeout_s: Seconds = Seconds(60.0)  # no load progress for so long = hung
    heartbeat_timeout_s: Seconds = Seconds(10.0)
    stop_timeout_s: Seconds = Seconds(5.0)


@dataclass(frozen=True, slots=True)
class SwapConfig:
    """Changing the model while the agent runs; see docs/inference.md."""

    policy: str = "never"  # never | when-idle | on-demand: may requests bring another model in
    drain_timeout_s: Seconds = Seconds(30.0)  # for running jobs, before they are preempted
    probe_timeout_s: Seconds = Seconds(60.0)  # for a new model to show that it can answer
    keep_alive_s: Seconds = Seconds(0.0)  # idle for so long = unloaded; 0 = never


@dataclass(frozen=True, slots=True)
class MemoryConfig:
    """What a model may take, and what is given back when memory is short."""

    fit: str = "auto"  # auto | strict | off; see core/fit.py
    reserve_bytes: Bytes = Bytes(64 << 20)  # left to everybody else
    least_context_tokens: int = 1024  # "auto" makes no context smaller than this
    pressure_file: str = ""  # read instead of the kernel's memory pressure; "" = the kernel's
    tight_pct: float = 10.0  # of time in which some task waited for memory
    critical_pct: float = 10.0  # … in which all of them did
    calm_after_s: Seconds = Seconds(30.0)
    grow_after_s: Seconds = Seconds(300.0)
    huge_pages: bool = False


@dataclass(frozen=True, slots=True)
class RestartConfig:
    backoff_first_s: Seconds = Seconds(0.1)
    backoff_cap_s: Seconds = Seconds(30.0)
    stable_after_s: Seconds = Seconds(60.0)  # ready for so long = the backoff starts again
    crash_limit: int = 3  # so many crashes of one model in the window set it aside
    crash_window_s: Seconds = Seconds(600.0)


@dataclass(frozen=True, slots=True)
class InferenceConfig:
    queue_limit: int = 64
    queue_bytes: Bytes = Bytes(64 << 20)  # of the requests of all users, answered or waiting
    ageing_s: Seconds = Seconds(60.0)  # so long a wait lifts a job by one class
    background_waits: bool = True  # stands still while an interactive answer is made
    max_request_bytes: Bytes = Bytes(1 << 20)
    max_request_fd_bytes: Bytes = Bytes(4 << 20)  # of a request in a sealed memory file
    max_tokens: int = 512  # when a request names none
    max_tokens_limit: int = 8192
    overflow: str = "error"  # error | truncate-oldest | shift; a request may say otherwise
    deadline_s: Seconds = Seconds(600.0)
    ask_timeout_s: Seconds = Seconds(300.0)
    stream_buffer_bytes: Bytes = Bytes(64 << 10)  # unread text per job before it is paused
    slow_reader_timeout_s: Seconds = Seconds(30.0)
    keep_result_s: Seconds = Seconds(60.0)
    max_result_bytes: Bytes = Bytes(1 << 20)
    keep_results_bytes: Bytes = Bytes(16 << 20)  # of all jobs; the oldest go first


@dataclass(frozen=True, slots=True)
class SessionsConfig:
    window_turns: int = 5  # earlier turns that go to the model; a session may say otherwise
    window_tokens: int = 0  # 0 = no budget beside the model's context
    overflow: str = "drop-oldest"  # drop-oldest | error
    title: str = "off"  # off | question
    summary: str = "off"  # off | on
    keep_partial: bool = True
    when_full: str = "evict"  # evict | refuse
    ttl_s: Seconds = Seconds(2_592_000.0)  # since the last use; 0 = for ever
    max_sessions_per_user: int = 256
    max_bytes_per_session: Bytes = Bytes(4 << 20)
    max_bytes_per_user: Bytes = Bytes(32 << 20)
    max_bytes: Bytes = Bytes(256 << 20)


@dataclass(frozen=True, slots=True)
class ThermalConfig:
    enabled: bool = True
    board: str = "auto"  # a preset's name in policies/boards
    wall_c: Celsius = Celsius(0.0)  # 0 = the board's; never above what the kernel's trips allow
    actuate: bool = True  # false = watch only
    law: str = "pi"  # pi | step-table | open-loop; see docs/thermal.md
    sensors: tuple[str, ...] = ()  # controlled instead of the board's, by the name of their type
    margin_k: Kelvin = Kelvin(0.0)  # the pi law aims so far below the wall; 0 = the board's
    gain_w_per_k: float = 0.0  # of the pi law; 0 = the board's, 1 / ΣR
    reset_s: Seconds = Seconds(4.0)  # integral time of the pi law
    governor: str = "keep"  # keep | performance: while anything is computed
    devfreq: tuple[str, ...] = ()  # limited with the headroom, by their names in class/devfreq
    sysfs_root: str = "/sys"
    period_min_s: Seconds = Seconds(0.1)
    period_max_s: Seconds = Seconds(1.0)


@dataclass(frozen=True, slots=True)
class UpdatesConfig:
    """Signed updates of the model; see docs/ota.md."""

    enabled: bool = True
    trust: str = "/etc/stoker/trust.json"  # the operator's first trust document
    sources: tuple[str, ...] = ()  # folders, https: addresses or mqtt: that a check looks into
    poll_s: Seconds = Seconds(0.0)  # between two looks; 0 = only when somebody asks
    automatic: bool = False  # install what a look finds, if it is one new deployment
    spread_s: Seconds = Seconds(0.0)  # over which a fleet's fetches begin
    max_rate: int = 0  # bytes a second from the network; 0 = as the manifest says
    mqtt_window: int = 8  # chunks asked for at a time from a broker
    metered: str = "auto"  # auto (as NetworkManager says) | yes | no
    ca: str = ""  # PEM of whom to believe over TLS; "" = the system's list
    certificate: str = ""  # of this device, for servers that want one
    key: str = ""
    proxy: str = ""  # http://HOST:PORT, "none", "" = as the environment says
    plain_http: bool = False  # http: addresses too
    retry_s: Seconds = Seconds(30.0)  # between two tries of what has to wait


@dataclass(frozen=True, slots=True)
class MetricsConfig:
    """For a scraper of Prometheus' kind; see docs/metrics.md."""

    listen: str = ""  # HOST:PORT on loopback, or unix:PATH; "" = off


@dataclass(frozen=True, slots=True)
class HistoryConfig:
    """The device's own past; see docs/metrics.md."""

    enabled: bool = True
    keep_days: int = 7


@dataclass(frozen=True, slots=True)
class FleetConfig:
    """Commands and desired states over MQTT; see docs/fleet.md. Off while ``broker`` is empty."""

    broker: str = ""  # mqtts://HOST[:PORT], mqtt://localhost[:PORT], unix:/PATH
    root: str = "stoker/1"  # of all topics
    ca: str = ""  # PEM of whoever signs the broker's certificate; "" = the system's
    certificate: str = ""  # PEM of this device's own; its common name is the device's id
    key: str = ""
    username: str = ""
    password_file: str = ""
    keepalive_s: int = 60
    reconnect_cap_s: Seconds = Seconds(300.0)  # the longest wait between two tries
    telemetry_s: Seconds = Seconds(60.0)  # 0 = none
    outbox_bytes: Bytes = Bytes(16 << 20)
    outbox_age_s: Seconds = Seconds(604_800.0)
    home_assistant: str = ""  # discovery prefix, usually "homeassistant"; "" = off
    restart_button: bool = False  # Home Assistant's, unsigned: for those who trust their broker


@dataclass(frozen=True, slots=True)
class AccessConfig:
    admin_group: str = "stoker-admin"
    gateway_user: str = "stoker-gateway"  # may say on_behalf_of_uid; "" = nobody


@dataclass(frozen=True, slots=True)
class QuotaConfig:
    """``[quotas]`` for everybody; ``[users.NAME]`` and ``[groups.NAME]`` for some. 0 = no limit."""

    highest_class: str = "interactive"  # interactive | normal | background
    concurrent_jobs: int = 0  # answered together; more of them wait
    queued_jobs: int = 32
    queued_bytes: Bytes = Bytes(4 << 20)
    tokens_per_minute: int = 0  # read and written


@dataclass(frozen=True, slots=True)
class Config:
    daemon: DaemonConfig = field(default_factory=DaemonConfig)
    device: DeviceConfig = field(default_factory=DeviceConfig)
    default_model: str = ""  # [models] default; empty = the first by name
    models: tuple[ModelConfig, ...] = ()
    adapters: tuple[AdapterConfig, ...] = ()
    runner: RunnerConfig = field(default_factory=RunnerConfig)
    swap: SwapConfig = field(default_factory=SwapConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    restart: RestartConfig = field(default_factory=RestartConfig)
    inference: InferenceConfig = field(default_factory=InferenceConfig)
    sampling: Sampling = field(default_factory=Sampling)
    sessions: SessionsConfig = field(default_factory=SessionsConfig)
    thermal: ThermalConfig = field(default_factory=ThermalConfig)
    updates: UpdatesConfig = field(default_factory=UpdatesConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    history: HistoryConfig = field(default_factory=HistoryConfig)
    fleet: FleetConfig = field(default_factory=FleetConfig)
    access: AccessConfig = field(default_factory=AccessConfig)
    quotas: QuotaConfig = field(default_factory=QuotaConfig)
    users: Mapping[str, QuotaConfig] = field(default_factory=dict)
    groups: Mapping[str, QuotaConfig] = field(default_factory=dict)  # in the files' order
    folder: str = ""  # no setting: where the main file in use lies; "" = there is none
