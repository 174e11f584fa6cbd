"""A scraper's view of a real stokerd: numbers move when answers are made."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from tests.integration.stokerd_rig import Stokerd, echoes, until

from stoker.tour.private_bus import PrivateBus

pytestmark = pytest.mark.bus
MODEL = '[models.echo]\npath = "/dev/null"\n'


def _families(path: str) -> list[Metric]:
    connection = http.client.HTTPConnection("localhost", timeout=10)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(10)
    connection.sock.connect(path)
    connection.request("GET", "/metrics")
    return list(text_string_to_metric_families(connection.getresponse().read().decode()))


def _scrape(path: str) -> dict[str, float]:
    """Sums over all labels."""
    found: dict[str, float] = {}
    for family in _families(path):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def test_answers_are_counted_and_timed(
    private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str]
) -> None:
    path = f"{tmp_path}/m.sock"
    with echoes(private_bus, tmp_path, child_env) as begin:
        daemon = begin(f'{MODEL}[metrics]\nlisten = "unix:{path}"\n')
        assert _scrape(path)["stoker_ready"] == 1
        assert daemon.client.ask("one two three four") == "one two three four"
        found = until(
            lambda: (now := _scrape(path)).get("stoker_requests_total") == 1 and now, "counted"
        )
        assert found["stoker_request_duration_seconds_count"] == 1
        assert found["stoker_time_to_first_token_seconds_count"] == 1
        tokens = found["stoker_completion_tokens_total"]
        assert found["stoker_inter_token_seconds_count"] == tokens - 1 > 2
    assert not Path(path).exists()


def test_every_number_says_whose_it_is(
    private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str]
) -> None:
    path = f"{tmp_path}/m.sock"
    more = '[device]\nid = "dev-1"\nregion = "north"\n[fleet]\nbroker = "mqtt://127.0.0.1:1"\n'
    with echoes(private_bus, tmp_path, child_env) as begin:
        begin(f'{MODEL}{more}[metrics]\nlisten = "unix:{path}"\n')
        samples = [sample for family in _families(path) for sample in family.samples]
    whose = {(item.labels.get("device"), item.labels.get("region")) for item in samples}
    assert whose == {("dev-1", "north")}
    assert [item.value for item in samples if item.name == "stoker_fleet_connected"] == [0.0]


def test_without_an_address_the_library_is_not_loaded(
    private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str]
) -> None:
    with echoes(private_bus, tmp_path, child_env) as begin:
        daemon = begin(MODEL)
        maps = Path(f"/proc/{daemon.process.pid}/maps").read_text()
        assert "metrics" not in daemon.text()
        assert "prometheus" not in maps
    code = "import stoker.main, stoker.wiring, sys; print('prometheus_client' in sys.modules)"
    said = subprocess.run(
        [sys.executable, "-c", code], check=True, env=child_env, capture_output=True, text=True
    )
    assert said.stdout == "False\n", said.stderr


def test_a_taken_address_ends_the_start_with_a_word(
    private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        begin: Callable[[str], Stokerd]
        with (
            echoes(private_bus, tmp_path, child_env) as begin,
            pytest.raises(AssertionError, match="cannot serve metrics on 127"),
        ):
            begin(f'{MODEL}[metrics]\nlisten = "127.0.0.1:{port}"\n')
