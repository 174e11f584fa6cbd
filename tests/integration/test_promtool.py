"""Prometheus' own tool judges what we give it: metrics, rules, the dashboard's queries."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from tests.unit.api.test_metrics import looks

from stoker.api.metrics import Collector

SERIES = re.compile(r"\bstoker_[a-z_]+")
RATE_TEST = """
rule_files: [{rules}]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
{series}
    promql_expr_test:
      - expr: round(stoker:inter_token_seconds:p99_5m, 0.0001)
        eval_time: 10m
        exp_samples:
          - labels: '{{{labels}}}'
            value: 0.0304
      - expr: round(stoker:inter_token_seconds:p50_5m, 0.0001)
        eval_time: 10m
        exp_samples:
          - labels: '{{{labels}}}'
            value: 0.0114
      - expr: stoker:completion_tokens:rate_5m
        eval_time: 10m
        exp_samples:
          - labels: stoker:completion_tokens:rate_5m{{device="d", model="m", region="r"}}
            value: 2
    alert_rule_test:
      - alertname: StokerAboveWall
        eval_time: 10m
        exp_alerts:
          - exp_labels: {{device: d, region: r, severity: warning}}
            exp_annotations:
              summary: d was above its thermal wall for 10 s in five minutes
      - alertname: StokerNotReady
        eval_time: 3m
        exp_alerts: []
      - alertname: StokerNotReady
        eval_time: 9m
        exp_alerts:
          - exp_labels: {{device: d, region: r, severity: critical}}
            exp_annotations: {{summary: d serves no model}}
"""


def _tool() -> str:
    cache = os.environ.get("STOKER_CACHE") or str(Path.home() / ".cache/stoker")
    found = shutil.which("promtool") or shutil.which("promtool", path=f"{cache}/promtool")
    assert found is not None, "bootstrap --tests brings promtool"
    return found


def _promtool(*words: str, stdin: bytes = b"") -> str:
    done = subprocess.run(
        [_tool(), *words], input=stdin, capture_output=True, timeout=60, check=False
    )
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, said
    return said


def _exposed() -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector(looks(), {"device": "d", "region": "r"}))
    return generate_latest(registry)


def _names() -> set[str]:
    """Of all samples."""
    return {line.split("{")[0].split(" ")[0] for line in _exposed().decode().splitlines()
            if not line.startswith("#")}  # fmt: skip


def test_the_metrics_are_named_and_typed_as_prometheus_wants() -> None:
    assert _promtool("check", "metrics", stdin=_exposed()) == ""


def test_the_rules_give_the_right_numbers_and_alerts(root: Path, tmp_path: Path) -> None:
    rules = root / "policies/prometheus/stoker.rules.yml"
    _promtool("check", "rules", str(rules))
    # a minute brings 100 tokens: 30 of up to 8 ms, 70 more up to 16, 98 up to 16, all up to 32
    labels = 'device="d",region="r",model="m",class="normal"'
    rows = [
        *((f'stoker_inter_token_seconds_bucket{{{labels},le="{le}"}}', step)
          for le, step in (("0.008", 20), ("0.016", 90), ("0.032", 100), ("+Inf", 100))),
        (f"stoker_completion_tokens_total{{{labels}}}", 120),
        ('stoker_above_wall_seconds_total{device="d",region="r"}', 2),
    ]  # fmt: skip
    series = [f"      - series: '{name}'\n        values: '0+{step}x20'" for name, step in rows]
    series.append(
        "      - series: 'stoker_ready{device=\"d\",region=\"r\"}'\n        values: '1 0x20'"
    )
    test = tmp_path / "test.yml"
    test.write_text(
        RATE_TEST.format(rules=json.dumps(str(rules)), series="\n".join(series), labels=labels)
    )
    assert "SUCCESS" in _promtool("test", "rules", str(test))


def _queries(root: Path) -> Iterator[tuple[str, str]]:
    dashboard = json.loads((root / "policies/grafana/stoker.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def test_every_query_of_the_dashboard_is_valid_and_asks_for_what_there_is(
    root: Path, tmp_path: Path
) -> None:
    known, rules = _names(), []
    for number, (title, query) in enumerate(_queries(root)):
        for name in SERIES.findall(query):
            assert name in known, f"{title}: {name}"
        plain = re.sub(r"\$[a-z]+", ".*", query.replace("$__rate_interval", "5m"))
        rules.append({"record": f"x:{number}", "expr": plain})
    file = tmp_path / "dashboard.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(rules)} rules found" in _promtool("check", "rules", str(file))


def test_rules_ask_for_what_there_is(root: Path) -> None:
    known = _names()
    for name in SERIES.findall((root / "policies/prometheus/stoker.rules.yml").read_text()):
        assert name in known, name


def test_panels_of_the_dashboard_do_not_lie_on_each_other(root: Path) -> None:
    dashboard: dict[str, Any] = json.loads((root / "policies/grafana/stoker.json").read_text())
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"])
                 for y in range(at["y"], at["y"] + at["h"])}  # fmt: skip
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    heat = [panel for panel in dashboard["panels"] if panel["type"] == "heatmap"]
    assert heat
    assert all(target["format"] == "heatmap" for panel in heat for target in panel["targets"])


@pytest.mark.parametrize("broken", ["rate(stoker_x[5m]", "stoker_ready =! 0"])
def test_a_broken_query_would_be_seen(broken: str, tmp_path: Path) -> None:
    file = tmp_path / "broken.yml"
    rule = {"record": "x:y", "expr": broken}
    file.write_text(json.dumps({"groups": [{"name": "x", "rules": [rule]}]}))
    with pytest.raises(AssertionError):
        _promtool("check", "rules", str(file))
