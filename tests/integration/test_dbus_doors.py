"""Every method and property of the doors, on a real bus, as clients meet them."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET

import pytest
from gi.repository import Gio, GLib
from tests.fakes.bus_client import BusClient, records

from stoker.api import contract
from stoker.errors import (
    Busy,
    Cancelled,
    EngineFailed,
    InvalidRequest,
    NotFound,
    RequestTooLarge,
    StokerError,
)

pytestmark = pytest.mark.bus

Shape = dict[str, object]


def text(value: str) -> GLib.Variant:
    return GLib.Variant("s", value)


def shape(interface: ET.Element) -> Shape:
    """Members with their types: all that introspection and the XML must agree on."""
    out: Shape = {}
    for member in interface:
        if member.tag == "property":
            out[member.attrib["name"]] = (member.tag, member.get("type"), member.get("access"))
        elif member.tag in ("method", "signal"):
            args = [
                (arg.get("name"), arg.get("type"), arg.get("direction"))
                for arg in member.iter("arg")
            ]
            out[member.attrib["name"]] = (member.tag, args)
    return out


def live(client: BusClient, path: str) -> dict[str, Shape]:
    found = client.call("org.freedesktop.DBus.Introspectable", "Introspect", path=path)
    return {item.attrib["name"]: shape(item) for item in ET.fromstring(found).iter("interface")}


def test_the_xml_is_what_introspection_shows(client: BusClient) -> None:
    job, stream = client.create_job("hi")
    list(records(stream))
    session = client.call(contract.INFERENCE, "CreateSession", GLib.Variant("(a{sv})", ({},)))
    update = client.call(contract.UPDATE, "Rollback")
    seen = live(client, contract.AGENT_PATH) | live(client, job) | live(client, session)
    seen |= live(client, update)
    for interface in contract.INTERFACES:
        written = ET.fromstring(contract.xml(interface)).find("interface")
        assert written is not None
        assert seen[interface] == shape(written), interface
    ours = {name for name in seen if name.startswith("org.stoker.")}
    assert ours == set(contract.INTERFACES)


def test_a_job_streams_typed_records_and_can_be_read_afterwards(client: BusClient) -> None:
    job, stream = client.create_job("red green blue")
    lines = list(records(stream))
    assert lines[:3] == [{"t": "red "}, {"t": "green "}, {"t": "blue "}]
    assert lines[3]["done"]["finish_reason"] == "stop"
    result = client.call(contract.JOB, "GetResult", path=job)
    assert result == {
        "state": "done", "text": "red green blue ", "reasoning": "", "finish_reason": "stop",
        "truncated": False, "prompt_tokens": 0, "completion_tokens": 3, "error_code": "",
        "error_message": "",
        "tool_calls": "",
        "logprobs": "",
    }  # fmt: skip
    assert client.get_all(contract.JOB, job) == {
        "State": "done", "Class": "normal", "QueuePosition": 0, "EtaSeconds": 0.0
    }  # fmt: skip
    assert client.get(contract.JOB, "State", job) == "done"


def test_the_callers_words_reach_the_service_as_they_were(client: BusClient) -> None:
    messages = GLib.Variant("aa{ss}", [{"role": "user", "content": "describe"}])
    _job, stream = client.create_job(
        messages=messages, system=text("brief"), max_tokens=GLib.Variant("y", 9),
        seed=GLib.Variant("x", 4), stop=GLib.Variant("as", ["a"]), top_k=GLib.Variant("q", 2),
        option_format=text("text"), option_deadline_ms=GLib.Variant("t", 9000),
    )  # fmt: skip
    with os.fdopen(stream) as answer:
        said = answer.read()
    assert '"max_tokens": 9, "stop": ["a"]' in said
    assert '"top_k": 2' in said
    assert '"content": "brief"' in said
    assert '"deadline_s": 9.0' in said
    assert f'"uid": {os.getuid()}, "pid": {os.getpid()}' in said
    assert client.name in said


def test_cancel_ends_a_job_and_is_harmless_afterwards(client: BusClient) -> None:
    job, stream = client.create_job("hold")
    client.call(contract.JOB, "Cancel", path=job)
    assert list(records(stream))[-1]["error"]["code"] == "cancelled"
    client.call(contract.JOB, "Cancel", path=job)
    assert client.call(contract.JOB, "GetResult", path=job)["error_code"] == "cancelled"


def test_signals_reach_the_owner_and_nobody_else(client: BusClient) -> None:
    heard: list[tuple[str, str, str]] = []

    def hear(_con: object, _sender: str, path: str, _i: str, signal: str, args: object) -> None:
        heard.append((path, signal, str(args)))

    context = GLib.MainContext.default()
    flags = Gio.DBusSignalFlags.NO_MATCH_RULE  # unicast needs no match rule
    client.con.signal_subscribe(None, contract.JOB, None, None, None, flags, hear)
    job, stream = client.create_job("hi")
    list(records(stream))
    client.ask("done by now")  # its reply comes after the signals were sent
    while len(heard) < 2 and context.iteration(True):
        pass
    assert heard == [(job, "Started", "()"), (job, "Finished", "('stop', '')")]


def test_ask_answers_with_text_or_with_the_jobs_error(client: BusClient) -> None:
    assert client.ask("one two") == "one two "
    with pytest.raises(EngineFailed, match="cannot finish job"):
        client.ask("break engine-failed")
    with pytest.raises(Busy) as caught:
        client.ask("refuse busy")
    assert caught.value.details == {"retry_after_ms": 7}
    with pytest.raises(Cancelled):
        client.ask("break cancelled")


def test_tokenize_count_and_list(client: BusClient) -> None:
    args = GLib.Variant("(s)", ("ab",))
    assert client.call(contract.INFERENCE, "Tokenize", args) == [97, 98]
    assert client.call(contract.INFERENCE, "CountTokens", args) == 2
    models = client.call(contract.INFERENCE, "ListModels")
    assert [model["name"] for model in models] == ["fake", "broken"]
    assert models[0]["size_bytes"] == 98 << 20
    assert models[1]["reason"] == "crashed 3 times"


def test_status_thermal_and_version(client: BusClient) -> None:
    status = client.call(contract.AGENT, "Status")
    assert (status["state"], status["temperature_c"], status["board"]) == ("ready", 51.5, "fake")
    details = client.call(contract.THERMAL, "Details")
    assert details["caps_khz"] == {"policy0": 1_500_000}
    assert details["sensors"][1]["fault"] == "ENODATA"
    assert client.get(contract.AGENT, "Version")
    assert client.get_all(contract.THERMAL) == {
        "Temperature": 51.5, "Wall": 75.0, "Headroom": 0.8, "Cap": 1_500_000, "State": "ok",
        "HeadroomThresholds": [0.75, 0.5, 0.25, 0.1],
        "Calibration": "idle", "CalibrationProgress": 0.0, "CalibrationReason": "",
    }  # fmt: skip
    assert set(client.get_all(contract.INFERENCE)) == {
        "State", "LoadProgress", "Model", "QueueDepth", "ActiveJobs",
    }  # fmt: skip


def test_the_administrator_may_restart_the_runner(client: BusClient) -> None:
    assert client.call(contract.AGENT, "RestartRunner") is None
    assert client.call(contract.AGENT, "Status")["runner_restarts"] >= 1


@pytest.mark.parametrize(
    ("request_", "options", "path"),
    [
        ({"prompt": ("s", "x"), "temprature": ("d", 1.0)}, {}, "request.temprature"),
        ({"prompt": ("i", 5)}, {}, "request.prompt"),
        ({"prompt": ("ay", b"x")}, {}, "request.prompt"),
        ({"prompt": ("s", "")}, {}, "request.prompt"),
        ({"prompt": ("s", "x"), "max_tokens": ("d", 5.0)}, {}, "request.max_tokens"),
        ({"prompt": ("s", "x"), "max_tokens": ("t", 2**64 - 1)}, {}, "request.max_tokens"),
        ({"prompt": ("s", "x"), "raw": ("i", 1)}, {}, "request.raw"),
        ({"messages": ("aa{sv}", [])}, {}, "request.messages"),
        ({"prompt": ("s", "x")}, {"format": ("s", "xml")}, "options.format"),
        ({"prompt": ("s", "x")}, {"deadline_ms": ("i", -1)}, "options.deadline_ms"),
        ({"prompt": ("s", "x")}, {"nice": ("b", True)}, "options.nice"),
    ],
)
def test_wrong_types_and_unknown_keys_name_their_path(
    client: BusClient, request_: dict[str, tuple[str, object]], options: Shape, path: str
) -> None:
    def pack(table: Shape) -> dict[str, GLib.Variant]:
        return {key: GLib.Variant(*value) for key, value in table.items()}  # type: ignore[misc]

    args = GLib.Variant("(a{sv}a{sv})", (pack(dict(request_)), pack(options)))
    with pytest.raises(InvalidRequest) as caught:
        client.call(contract.INFERENCE, "CreateJob", args)
    assert caught.value.details["path"] == path


def test_arguments_of_another_signature_are_refused_by_gdbus(client: BusClient) -> None:
    with pytest.raises(InvalidRequest):
        client.call(contract.INFERENCE, "Ask", GLib.Variant("(i)", (5,)))
    with pytest.raises(NotFound):
        client.call(contract.INFERENCE, "NoSuchMethod")
    with pytest.raises(StokerError):
        client.get(contract.INFERENCE, "NoSuchProperty")


def test_a_request_over_the_limit_is_refused_before_it_is_read(client: BusClient) -> None:
    with pytest.raises(RequestTooLarge) as caught:
        client.ask("x" * (2 << 20))
    assert int(caught.value.details["limit_bytes"]) < 2 << 20
    assert client.ask("still here") == "still here "


def test_an_unknown_job_is_not_found(client: BusClient) -> None:
    with pytest.raises(NotFound):
        client.call(contract.JOB, "Cancel", path=contract.job_path("0" * 32))


def test_nobody_can_write_a_property(client: BusClient) -> None:
    args = GLib.Variant("(ssv)", (contract.THERMAL, "Wall", GLib.Variant("d", 120.0)))
    with pytest.raises(StokerError):
        client.call(contract.PROPERTIES, "Set", args)
    assert client.get(contract.THERMAL, "Wall") == 75.0
