"""Memory pressure, told through a file, on a real stokerd with a real model; and a refusal."""

from __future__ import annotations

from pathlib import Path

import pytest
from gi.repository import GLib
from tests.fakes.default_model import default_model
from tests.integration.stokerd_rig import Stream, stokerd, until

from stoker.api import contract
from stoker.errors import Busy, InsufficientMemory
from stoker.tour.private_bus import PrivateBus

pytestmark = [pytest.mark.bus, pytest.mark.real]
MIB = 1 << 20
PSI = "some avg10={} avg60=0.00 avg300=0.00 total=1\nfull avg10={} avg60=0.00 avg300=0.00 total=0\n"
CONFIG = """
[memory]
pressure_file = "{psi}"
calm_after_s = 1.0
grow_after_s = 3.0
{memory}
[models.smollm2]
path = "{model}"
"""


def config(psi: Path, memory: str = "") -> str:
    return CONFIG.format(psi=psi, model=default_model(), memory=memory)


def test_context_shrinks_under_pressure_and_comes_back(
    tmp_path: Path, child_env: dict[str, str]
) -> None:
    psi = tmp_path / "psi"
    psi.write_text(PSI.format("0.00", "0.00"))
    with PrivateBus() as bus, stokerd(bus, tmp_path, child_env, config=config(psi)) as running:
        before = running.wait_ready()
        assert (before["slots"], before["context_tokens"], before["kv_type"]) == (4, 4096, "f16")
        full = running.runner().memory_info().rss
        psi.write_text(PSI.format("80.00", "60.00"))
        until(lambda: running.status()["memory_level"] == "critical", running.text())
        until(lambda: running.status()["context_tokens"] < 4096, running.text(), 60)
        small = running.runner().memory_info().rss
        assert full - small > 100 * MIB
        with pytest.raises(Busy, match="memory is short"):
            running.client.create_job("x" * 20_000)
        _, fd = running.client.create_job("Say hello.", max_tokens=GLib.Variant("u", 8))
        assert "done" in Stream(fd).rest()[-1]
        psi.write_text(PSI.format("0.00", "0.00"))
        until(lambda: running.status()["context_tokens"] == 4096, running.text(), 60)
        after = running.status()
        assert after["memory_level"] == "calm"
        assert after["gave_way"] == ""
        assert after["runner_restarts"] == 0
        assert running.runner().memory_info().rss > small + 100 * MIB


def test_model_that_does_not_fit_is_refused_with_numbers(
    tmp_path: Path, child_env: dict[str, str]
) -> None:
    """So much is reserved that nothing is left."""
    psi = tmp_path / "psi"
    psi.write_text(PSI.format("0.00", "0.00"))
    much = f"reserve_bytes = {1 << 40}"
    with (
        PrivateBus() as bus,
        stokerd(bus, tmp_path, child_env, config=config(psi, much)) as running,
    ):
        until(lambda: running.status()["state"] == "no-model", running.text(), 60)
        (model,) = running.client.call(contract.INFERENCE, "ListModels")
        assert model["state"] == "set-aside"
        assert "cannot load model smollm2: it needs" in model["reason"]
        assert running.status()["runner_restarts"] <= 1
        with pytest.raises(InsufficientMemory):
            running.client.create_job("Say hello.")
