"""SmolLM2 v1 → v2 by a signed delta while a client talks; a failing set; a broken model."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from gi.repository import GLib
from tests.fakes.default_model import default_model
from tests.fakes.update_bundles import Operator, renamed_model
from tests.integration import update_rig as rig
from tests.integration.stokerd_rig import Stokerd

from stoker.api import contract
from stoker_client import Stoker

pytestmark = [pytest.mark.bus, pytest.mark.real, pytest.mark.timeout(300)]
GOOD = (
    '[health]\nmin_tok_s = 0.1\n[[health.probes]]\ntext = "The cat sat on the mat and looked at '
    'the dog."\nmin_nats = 0.5\nmax_nats = 6.0\n'
)
BAD = GOOD.replace("max_nats = 6.0", "max_nats = 0.6")


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Operator:
    """1 = the same weights under another name; 2 = bounds that no model of this size meets."""
    made = Operator.found(tmp_path_factory.mktemp("operator"))
    v1 = default_model()
    v2 = renamed_model(v1, made.home / "v2", "second")
    v3 = renamed_model(v1, made.home / "v3", "third")
    made.bundle(1, v1, v2, GOOD)
    made.bundle(2, v2, v3, BAD)
    return made


def test_a_client_talks_through_an_update_and_a_failing_one(
    updating: Stokerd, operator: Operator
) -> None:
    ended = []

    def talk() -> None:
        with Stoker(updating.bus.address) as stoker:
            for record in stoker.stream("Tell a long story.", max_tokens=200, temperature=0.0):
                if record.kind == "done":
                    ended.append(record.finish_reason)

    with Stoker(updating.bus.address) as stoker:
        session = stoker.session(system="You are brief.")
        session.ask("My name is Ada.", max_tokens=16)
        thread = threading.Thread(target=talk)
        thread.start()
        job = rig.install(updating, operator.home / "bundle-1")
        last = rig.end(updating, job, 120)
        assert last["Error"] == ("", ""), last
        thread.join(120)
        assert ended in (["length"], ["stop"])
        assert Path(rig.served_path(updating)).read_bytes() == (operator.home / "v2").read_bytes()
        assert session.ask("And now?", max_tokens=16)
        assert session.facts()["Turns"] == 2
        runner = updating.status()["runner_pid"]
        last = rig.end(updating, rig.install(updating, operator.home / "bundle-2"), 120)
        assert last["Error"][0] == "unhealthy"
        assert "nats a token" in last["Error"][1]
        assert updating.status()["runner_pid"] == runner
        assert stoker.ask("Hello!", max_tokens=8)
    assert Path(rig.served_path(updating)).read_bytes() == (operator.home / "v2").read_bytes()
    size = sum(f.stat().st_size for f in (operator.home / "bundle-1/blobs").iterdir())
    assert size < 100_000  # of 98 MB: metadata alone has changed
    args = GLib.Variant("(uu)", (0, 20))
    said = [item["what"] for item in updating.client.call(contract.UPDATE, "GetHistory", args)]
    assert said.count("committed") == 1
    assert "returned" in said
