"""org.stoker.Update1 over a fake service: access, descriptors, inhibitors, jobs' objects."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gi.repository import GLib
from tests.fakes.bus_client import BusClient
from tests.integration.stokerd_rig import until

from stoker.api import contract
from stoker.errors import InvalidRequest, NotFound

pytestmark = pytest.mark.bus


def _install(client: BusClient, folder: Path, **options: GLib.Variant) -> str:
    fd = os.open(folder, os.O_RDONLY)
    args = GLib.Variant("(ha{sv})", (0, options))
    method = (contract.UPDATE, "InstallBundle", args, contract.AGENT_PATH, 10_000)
    try:
        values, _ = client.call_with_fds(*method, fd)
    finally:
        os.close(fd)
    return str(values[0])


def test_a_bundle_is_installed_as_a_job_that_can_be_read_and_cancelled(
    client: BusClient, tmp_path: Path
) -> None:
    job = _install(client, tmp_path, deployment=GLib.Variant("s", "vision"))
    assert job.startswith(contract.UPDATES_PATH)
    facts = client.get_all(contract.UPDATE_JOB, job)
    assert (facts["Deployment"], facts["Phase"], facts["Total"]) == ("vision", "fetching", 10)
    client.call(contract.UPDATE_JOB, "Cancel", path=job)
    assert client.get(contract.UPDATE_JOB, "Error", job) == ("cancelled", "")
    with pytest.raises(NotFound):
        client.get_all(contract.UPDATE_JOB, contract.update_path("99"))


def test_what_a_look_found_is_installed_by_its_name(client: BusClient) -> None:
    args = GLib.Variant("(sa{sv})", ("vision", {"force": GLib.Variant("b", True)}))
    job = str(client.call(contract.UPDATE, "Install", args))
    facts = client.get_all(contract.UPDATE_JOB, job)
    assert (facts["Deployment"], facts["Eta"], facts["BytesOnWire"]) == ("vision", -1, 0)
    args = GLib.Variant("(sa{sv})", ("vision", {"colour": GLib.Variant("s", "red")}))
    with pytest.raises(InvalidRequest, match="colour"):
        client.call(contract.UPDATE, "Install", args)


def test_wrong_options_and_a_refused_bundle_are_told(client: BusClient, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="force"):
        _install(client, tmp_path, force=GLib.Variant("s", "yes"))
    (tmp_path / "bad").touch()
    with pytest.raises(InvalidRequest, match="bad"):
        _install(client, tmp_path)
    with pytest.raises(InvalidRequest, match="no descriptor"):
        client.call(contract.UPDATE, "InstallBundle", GLib.Variant("(ha{sv})", (0, {})))


def test_a_folder_is_looked_into_and_what_is_known_is_listed(
    client: BusClient, tmp_path: Path
) -> None:
    (tmp_path / "catalog.json").touch()
    fd = os.open(tmp_path, os.O_RDONLY)
    args = GLib.Variant("(h)", (0,))
    values, _ = client.call_with_fds(
        contract.UPDATE, "Inspect", args, contract.AGENT_PATH, 10_000, fd
    )
    os.close(fd)
    assert values[0][0]["reason"] == "catalog.json"
    assert client.call(contract.UPDATE, "ListDeployments")[0]["wire_bytes"] == 10
    assert client.call(contract.UPDATE, "CheckNow")[0]["name"] == "chat"
    found = client.call(contract.UPDATE, "GetHistory", GLib.Variant("(uu)", (0, 1)))
    assert [(item["what"], item["version"], item["code"]) for item in found] == [
        ("committed", 2, "")
    ]


def test_an_inhibitor_ends_when_its_descriptor_is_closed(client: BusClient) -> None:
    args = GLib.Variant("(ss)", ("a test", "it talks"))
    _, (fd,) = client.call_with_fds(contract.UPDATE, "Inhibit", args)
    os.close(fd)
    until(lambda: client.get(contract.UPDATE, "State").startswith("released"), "the release")
    with pytest.raises(InvalidRequest):
        client.call(contract.UPDATE, "Inhibit", GLib.Variant("(ss)", ("", "x")))
