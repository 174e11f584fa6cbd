"""stokerctl bench against a real agent with the real model: figures that can be true."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from tests.fakes.default_model import default_model
from tests.integration.stokerctl_rig import ctl
from tests.integration.stokerd_rig import stokerd

from stoker.tour.private_bus import PrivateBus

pytestmark = pytest.mark.bus
TEXT = "The river flows down from the mountains to the sea, and the boats go with it. " * 3
NOISE = "xq zv kkj wpl rtv bnm qqx zzk vvb jjh ggf ddw ssx aaq ppo iiu " * 3


def test_a_model_is_measured_kept_and_compared(
    private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str]
) -> None:
    env = {**child_env, "STOKER_BUS_ADDRESS": private_bus.address}
    text, noise = tmp_path / "text.txt", tmp_path / "noise.txt"
    text.write_text(TEXT)
    noise.write_text(NOISE)
    kept = tmp_path / "kept.json"
    small = ("--runs", "2", "--tokens", "12", "--prompt-tokens", "48")
    with stokerd(private_bus, tmp_path, child_env, "--model", str(default_model())) as daemon:
        daemon.wait_ready()
        first = ctl(env, "--json", "bench", *small, "--text", str(text), "--save", str(kept))
        assert first.returncode == 0, first.stderr
        second = ctl(env, "bench", *small, "--text", str(noise), "--against", str(kept),
                     "--plot", str(tmp_path / "p.png"))  # fmt: skip
        assert second.returncode == 0, second.stderr
    (found,) = json.loads(first.stdout)
    assert json.loads(kept.read_text()) == found
    medians = found["medians"]
    assert len(found["values"]["decode_tok_s"]) == 2
    for key in ("prefill_tok_s", "decode_tok_s", "first_token_ms", "gap_p50_ms", "gap_p99_ms"):
        assert medians[key] > 0, key
    assert medians["gap_p50_ms"] <= medians["gap_p99_ms"]
    # buckets are a factor of two wide
    assert 0.4 < medians["gap_p50_ms"] * medians["decode_tok_s"] / 1000 < 2.5
    assert medians["peak_rss_bytes"] > 50e6
    assert 1.0 < medians["perplexity"] < 100.0
    row = next(line for line in second.stdout.splitlines() if line.startswith("perplexity"))
    assert "worse" in row
    assert (tmp_path / "p.png").stat().st_size > 5000


def test_a_score_is_the_sum_over_the_tokens(
    private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str]
) -> None:
    from stoker_client import Stoker, StokerClientError

    with stokerd(private_bus, tmp_path, child_env, "--model", str(default_model())) as daemon:
        daemon.wait_ready()
        with Stoker(private_bus.address) as stoker:
            nats, tokens = stoker.score(TEXT)
            assert tokens == stoker.count_tokens(TEXT) - 1
            assert 0 < nats / tokens < math.log(49_152)
            assert stoker.score(TEXT) == (nats, tokens)
            with pytest.raises(StokerClientError, match="fewer than two tokens"):
                stoker.score("a")
