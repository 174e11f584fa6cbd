"""The page of "stokerctl report" in a real browser: drawn where it belongs, nothing cut off."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from tests.integration.stokerctl_rig import ctl
from tests.integration.stokerd_rig import echoes, until

from stoker.tour.private_bus import PrivateBus

pytestmark = pytest.mark.bus

# A page around the report: the browser measures, the title tells.
LOOK = """<!DOCTYPE html>
<iframe id=f src=report.html style="width:%dpx;height:900px"></iframe>
<script>
f.onload = () => {
  const d = f.contentDocument, w = d.documentElement, count = s => d.querySelectorAll(s).length;
  const outside = [...d.querySelectorAll("svg :not(title)")].filter(e => {
    const b = e.getBoundingClientRect(), s = e.closest("svg").getBoundingClientRect();
    return b.left < s.left - 1 || b.right > s.right + 1
      || b.top < s.top - 1 || b.bottom > s.bottom + 1;
  });
  const cell = d.querySelector("rect.h");
  document.title = JSON.stringify({
    wide: w.scrollWidth - w.clientWidth, cells: count("rect.h"), bars: count("rect.bar"),
    outside: outside.map(e => e.outerHTML.slice(0, 120)),
    hot: cell ? getComputedStyle(cell).fill : "", text: d.body.innerText,
  });
};
</script>"""


def _look(folder: Path, width: int) -> dict[str, Any]:
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    assert browser is not None, "chromium is one of bootstrap's packages"
    page = folder / f"look{width}.html"
    page.write_text(LOOK % width)
    found = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files",
         f"--user-data-dir={folder}/chromium", "--virtual-time-budget=5000", "--dump-dom",
         page.as_uri()],
        capture_output=True, text=True, timeout=100, check=True,
    )  # fmt: skip
    title = re.search(r"<title>(.*?)</title>", found.stdout, re.DOTALL)
    assert title is not None, found.stdout[:500]
    answer: dict[str, Any] = json.loads(unescape(title[1]))
    return answer


def test_the_report_of_a_real_agent_is_drawn_whole_on_a_screen_and_on_a_phone(
    private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str]
) -> None:
    env = {**child_env, "STOKER_BUS_ADDRESS": private_bus.address}
    with echoes(private_bus, tmp_path, child_env) as begin:
        daemon = begin('[models.echo]\npath = "/dev/null"\n')
        daemon.client.ask("one two three four five six seven")
        until(lambda: _columns(env), "a column")
        said = ctl(env, "report", "--html", str(tmp_path / "report.html"))
        assert said.returncode == 0, said.stderr
    for width in (1000, 380):
        seen = _look(tmp_path, width)
        assert "echo: time between two tokens" in seen["text"]
        assert "stokerd started" in seen["text"]
        assert seen["cells"] >= 1
        assert seen["bars"] >= 1
        assert seen["hot"] not in ("", "rgb(0, 0, 0)"), "the style is not applied"
        assert seen["outside"] == []
        assert seen["wide"] == 0


def _columns(env: dict[str, str]) -> bool:
    said = ctl(env, "--json", "report", "--hours", "0.25")
    return said.returncode == 0 and bool(json.loads(said.stdout)["answers"])
