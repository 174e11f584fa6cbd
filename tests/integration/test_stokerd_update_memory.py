"""A set that this device's memory cannot hold is told so before a byte of it is fetched."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest
from tests.fakes.update_bundles import Operator, ota
from tests.integration import update_rig as rig
from tests.integration.stokerd_rig import Stokerd, until

from stoker.api import contract
from stoker_ota.core import clock, manifest, recipe
from stoker_ota.core.recipe import Measured
from stoker_ota.services import authority

pytestmark = [pytest.mark.bus, pytest.mark.real, pytest.mark.timeout(180)]
MIB = 1 << 20


def bundle(operator: Operator, version: int, size: int) -> Path:
    """Of a model of which there is nothing but its size."""
    now = datetime.now(UTC)
    payload = recipe.payload(
        recipe.parse({
            "deployment_id": "chat", "version": version, "issued_at": clock.write(now),
            "expires": clock.write(now + timedelta(days=1)),
            "artifacts": [{"kind": "model", "name": "chat", "version": "9", "file": "big"}],
        }),
        {"big": Measured(size, f"{version:02}" * 32)}, {},
    )  # fmt: skip
    keys, certificates = operator.home / "pki/keys", operator.home / "pki/certificates"
    release = authority.load(
        "release", (keys / "release.pem").read_bytes(),
        (certificates / "release.pem").read_bytes(), b"correct horse",
    )  # fmt: skip
    made = operator.home / f"{version}.json"
    made.write_bytes(authority.sign(manifest.MANIFEST_TYPE, payload, (release,)))
    after = () if version == 1 else ("--after", f"catalog-{version - 1}.json")
    catalog, folder = f"catalog-{version}.json", f"bundle-{version}"
    ota("catalog", "make", made.name, "-o", catalog, *after, home=operator.home)
    ota("bundle", "make", catalog, made.name, "-o", folder, home=operator.home)
    return operator.home / folder


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator.found(tmp_path / "operator")


def test_what_fits_in_no_way_waits_and_what_never_will_fails_at_once(
    updating: Stokerd, operator: Operator
) -> None:
    total = psutil.virtual_memory().total
    job = rig.install(updating, bundle(operator, 1, total - 32 * MIB))

    def waits() -> bool:
        """Again and again it looks: then it is running for a moment, with the old reason."""
        told = rig.look(updating, job)
        assert told["BytesOnWire"] == 0
        state = (told["State"], told["Phase"])
        return state == ("waiting", "preflight") and "at least" in str(told)

    until(waits, f"wait; log:\n{updating.text()}")
    updating.client.call(contract.UPDATE_JOB, "Cancel", path=job)
    rig.rest(updating)
    ended = rig.end(updating, rig.install(updating, bundle(operator, 2, total + 1024 * MIB)))
    assert "this device has" in str(ended)
    assert rig.rest(updating)["Current"] == 0
