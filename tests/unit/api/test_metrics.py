"""Numbers as Prometheus reads them, and the door that gives them out."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from stoker.api.metrics import Collector, Looks
from stoker.api.metrics_server import MetricsServer
from stoker.config.addresses import Address, parse_address
from stoker.core.measures import Counted, Heat, Key, fold
from stoker.errors import Unavailable
from stoker.events.fleet import FleetSnapshot
from stoker.events.inference import JobTimes, TokenTotals
from stoker.events.thermal import ThermalSnapshot
from stoker.events.updates import UpdateSnapshot
from stoker.ports.doors import CpuShare, InferenceSnapshot
from stoker.units import Celsius, Fraction, KiloHertz, Seconds, Watts

TIMES = JobTimes(Seconds(0.003), Seconds(0.3), Seconds(3.0), Seconds(0.5), (0, 2, 1))
HOT = ThermalSnapshot(
    "ok",
    Celsius(71.5),
    Celsius(80.0),
    Fraction(0.6),
    "pi5",
    sensor="cpu-thermal",
    cap_khz={"policy0": KiloHertz(1_500_000)},
    power_w=Watts(4.0),
)


def looks(fleet: str = "online") -> Looks:
    work = fold({}, Key("tiny", "normal"), "stop", TIMES, TokenTotals(100, 60, 4))
    heat = Heat(above_wall_s=Seconds(7.0), energy_j=90.0, busy_energy_j=8.0, metered=True)
    return Looks(
        counted=lambda: Counted(work, heat),
        inference=lambda: InferenceSnapshot(state="ready", queue_depth=3, runner_restarts=2),
        thermal=lambda: HOT,
        updates=lambda: UpdateSnapshot(state="fetching", current=4),
        fleet=lambda: FleetSnapshot(fleet, outbox=5),
        cpu_share=lambda: CpuShare("partition"),
        uptime_s=lambda: 12.0,
    )


def _text(constant: dict[str, str] | None = None) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector(looks(), constant or {}))
    return generate_latest(registry).decode()


def _samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("stoker_requests_total", {"model": "tiny", "class": "normal", "end": "stop"}, 1),
        ("stoker_request_duration_seconds_bucket", {"le": "2.048"}, 0),
        ("stoker_request_duration_seconds_bucket", {"le": "4.096"}, 1),
        ("stoker_request_duration_seconds_sum", {}, 3.0),
        ("stoker_queue_wait_seconds_bucket", {"le": "0.004"}, 1),
        ("stoker_time_to_first_token_seconds_bucket", {"le": "0.512"}, 1),
        ("stoker_inter_token_seconds_bucket", {"le": "0.002"}, 2),
        ("stoker_inter_token_seconds_count", {}, 3),
        ("stoker_prefix_cache_hit_tokens_total", {}, 60),
        ("stoker_completion_tokens_total", {}, 4),
        ("stoker_queue_depth", None, 3),
        ("stoker_runner_restarts_total", None, 2),
        ("stoker_temperature_celsius", {"sensor": "cpu-thermal"}, 71.5),
        ("stoker_frequency_cap_hertz", {"policy": "policy0"}, 1.5e9),
        ("stoker_above_wall_seconds_total", None, 7.0),
        ("stoker_energy_joules_total", None, 90.0),
        ("stoker_joules_per_token", None, 2.0),
        ("stoker_update_phase", {"phase": "fetching"}, 1),
        ("stoker_update_generation", None, 4),
        ("stoker_fleet_connected", None, 1),
        ("stoker_fleet_outbox", None, 5),
        ("stoker_partition_level", {"state": "partition"}, 1),
        ("stoker_partition_level", {"state": "none"}, 0),
        ("stoker_thermal_state", {"state": "ok"}, 1),
    ],
)
def test_a_number_has_its_name_unit_and_labels(
    name: str, labels: dict[str, str] | None, value: float
) -> None:
    wanted = dict(labels or {})
    answers = ("request_duration", "queue_wait", "time_to", "inter_token", "tokens_total")
    if any(part in name for part in answers):
        wanted = {"model": "tiny", "class": "normal", **wanted}
    assert _samples(_text())[name, frozenset(wanted.items())] == value


@pytest.mark.parametrize(("state", "told"), [("off", {}), ("waiting", {0.0}), ("online", {1.0})])
def test_a_broker_that_is_not_there_shows_and_one_that_nobody_wants_does_not(
    state: str, told: set[float]
) -> None:
    families = Collector(looks(state), {}).collect()
    samples = [sample for family in families for sample in family.samples]
    assert {s.value for s in samples if s.name == "stoker_fleet_connected"} == set(told)


def test_device_and_region_are_on_every_sample() -> None:
    families = text_string_to_metric_families(_text({"device": "d1", "region": "", "x": "y"}))
    labels = [sample.labels for family in families for sample in family.samples]
    assert labels
    assert all(found.get("device") == "d1" and "region" not in found for found in labels)


@pytest.fixture(params=["127.0.0.1:0", "unix"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[MetricsServer, str]]:
    path = str(tmp_path / "m.sock")
    text = f"unix:{path}" if request.param == "unix" else request.param
    made = MetricsServer(parse_address(text), Collector(looks(), {}))
    made.start()
    yield made, path if request.param == "unix" else ""
    made.stop()


def _connect(server: tuple[MetricsServer, str]) -> http.client.HTTPConnection:
    made, path = server
    connection = http.client.HTTPConnection("127.0.0.1", made.port or 1, timeout=10)
    if path:
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(path)
    return connection


def test_a_scraper_gets_text_and_openmetrics(server: tuple[MetricsServer, str]) -> None:
    connection = _connect(server)
    connection.request("GET", "/metrics", headers={"Host": "x"})
    answer = connection.getresponse()
    assert answer.status == 200
    assert "stoker_queue_depth 3.0" in answer.read().decode()
    connection = _connect(server)
    accept = {"Host": "x", "Accept": "application/openmetrics-text; version=1.0.0"}
    connection.request("GET", "/metrics", headers=accept)
    answer = connection.getresponse()
    assert answer.read().decode().endswith("# EOF\n")


def test_another_path_is_not_found(server: tuple[MetricsServer, str]) -> None:
    connection = _connect(server)
    connection.request("GET", "/", headers={"Host": "x"})
    assert connection.getresponse().status == 404


def test_a_silent_peer_is_not_waited_for_long(
    server: tuple[MetricsServer, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = server
    monkeypatch.setattr(made._server.RequestHandlerClass, "timeout", 0.2)
    silent = _connect(server)
    silent.connect() if silent.sock is None else None
    connection = _connect(server)
    connection.request("GET", "/metrics", headers={"Host": "x"})
    assert connection.getresponse().status == 200
    silent.close()


def test_a_taken_address_is_a_typed_error() -> None:
    first = MetricsServer(parse_address("127.0.0.1:0"), Collector(looks(), {}))
    with pytest.raises(Unavailable, match="cannot serve metrics on 127"):
        MetricsServer(Address(host="127.0.0.1", port=first.port), Collector(looks(), {}))
    first.stop()


@pytest.mark.parametrize(
    "text",
    ["", "9469", "0.0.0.0:9469", "example:1", "10.0.0.1:80", "[::]:1", "unix:x", "127.0.0.1:70000"],
)
def test_an_address_that_others_could_reach_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        parse_address(text)


def test_addresses_read_back_as_they_were_written() -> None:
    for text in ("127.0.0.1:9469", "[::1]:80", "unix:/run/stoker/metrics.sock"):
        assert str(parse_address(text)) == text
