"""An agent without a broker has nothing of the fleet in its memory; the page shows true things."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.integration.broker_rig import ACL

from stoker.config.schema import FleetConfig
from stoker.services.fleet_deeds import CommandDeeds
from stoker_ota.core import fleet_documents, fleet_orders

ROOT = Path(__file__).resolve().parents[2]


def test_the_wiring_loads_neither_paho_nor_cryptography_nor_the_client() -> None:
    code = (
        "import sys; import stoker.wiring, stoker.main; "
        "bad = [m for m in sys.modules if m.split('.')[0] in ('paho', 'cryptography', 'tarfile') "
        "or m in ('stoker.services.fleet', 'stoker.fleet_wiring', 'stoker.services.fleet_desk')]; "
        "sys.exit(' '.join(bad) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_it_is_off_unless_a_broker_is_named() -> None:
    assert FleetConfig().broker == ""
    assert not FleetConfig().restart_button
    assert FleetConfig().home_assistant == ""


def test_the_page_shows_the_rules_that_the_tests_run_on() -> None:
    page = (ROOT / "docs/fleet.md").read_text()
    shown = {line for line in page.split("\n") if re.match(r"(pattern|topic|user) ", line)}
    used = {line for line in ACL.split("\n") if "collector" not in line and line.strip()}
    used -= {"topic read stoker/1/d/#"}
    assert shown == used
    assert set(fleet_orders.mosquitto_rights("stoker/1").split("\n")) <= used


def test_the_page_lists_every_command_and_the_agent_knows_them_all() -> None:
    page = (ROOT / "docs/fleet.md").read_text()
    table = page.split("| command | args |")[1].split("\n\n")[0]
    listed = set(re.findall(r"`([a-z]+(?:\.[a-z]+)?)`", "".join(
        line.split("|")[1] for line in table.split("\n") if line.startswith("| `")
    )))  # fmt: skip
    assert listed == set(fleet_documents.COMMANDS)
    deeds = CommandDeeds(None)  # type: ignore[arg-type]
    assert set(deeds.names) == set(fleet_documents.COMMANDS)


def test_every_test_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/fleet.md").read_text()))
    text = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    assert named - set(re.findall(r"^def (test_\w+)\(", text, re.MULTILINE)) == set()
    assert len(named) > 15
