"""Shaped answers from a real stokerd with the real model: bus, client, command line."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes import lora_file
from tests.fakes.default_model import default_model
from tests.fakes.schema_check import valid
from tests.integration.stokerctl_rig import ctl
from tests.integration.stokerd_rig import Stokerd, stokerd

from stoker.tour.private_bus import PrivateBus
from stoker_client import Record, Stoker, StokerClientError

pytestmark = [pytest.mark.bus, pytest.mark.real]
CITY = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1, "maxLength": 20},
        "people": {"type": "integer", "minimum": 0},
    },
    "required": ["city", "people"],
}
FORM = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY}}
TOOL = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "additionalProperties": False}},
}


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory, child_env: dict[str, str]) -> Iterator[Stokerd]:
    home = tmp_path_factory.mktemp("shaped")
    adapter = lora_file.write(home / "odd.gguf", 1, size=0.3)
    config = (
        f'[models.smollm2]\npath = "{default_model()}"\ncontext_tokens = 512\n'
        f'[adapters.odd]\npath = "{adapter}"\nmodel = "smollm2"\n'
        "[runner]\nslots = 2\n"
    )
    with PrivateBus() as bus, stokerd(bus, home, child_env, config=config) as running:
        running.wait_ready()
        yield running


@pytest.fixture
def stoker(agent: Stokerd) -> Iterator[Stoker]:
    with Stoker(agent.bus.address) as client:
        yield client


def records(stoker: Stoker, question: str, **options: object) -> list[Record]:
    with stoker.stream(question, temperature=0.0, max_tokens=80, **options) as stream:  # type: ignore[arg-type]
        return list(stream)


def test_json_that_follows_a_schema(stoker: Stoker) -> None:
    found = records(stoker, "Name a city and how many live there.", response_format=FORM)
    answer = "".join(record.text for record in found)
    assert found[-1].finish_reason == "stop"
    assert valid(json.loads(answer), CITY)


def test_a_call_is_a_record_and_stays_in_the_result(stoker: Stoker, agent: Stokerd) -> None:
    with stoker.stream("Add it.", tools=[TOOL], tool_choice="add", max_tokens=60) as stream:
        found = list(stream)
        result = agent.client.call("org.stoker.Job1", "GetResult", path=stream.job)
    (call,) = [record.call for record in found if record.kind == "tool"]
    assert (call["name"], call["arguments"]) == ("add", "{}")
    assert found[-1].finish_reason == "tool-calls"
    (kept,) = json.loads(result["tool_calls"])
    assert kept["function"] == {"name": "add", "arguments": "{}"}
    assert kept["id"] == call["id"]
    again = [
        {"role": "user", "content": "Add it."},
        {"role": "assistant", "tool_calls": result["tool_calls"]},
        {"role": "tool", "content": "3", "tool_call_id": kept["id"]},
    ]
    assert records(stoker, again, tools=[TOOL])[-1].kind == "done"  # type: ignore[arg-type]


def test_likelihoods_come_token_by_token(stoker: Stoker) -> None:
    found = records(stoker, "Say hello.", logprobs=2)
    items = [item for r in found if r.kind == "logprobs" for item in r.data["lp"]]  # type: ignore[attr-defined]
    assert "".join(item["token"] for item in items) == "".join(r.text for r in found)
    assert all(item["logprob"] <= 0 and len(item["top_logprobs"]) == 2 for item in items)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"grammar": "root ::= root"}, "grammar-invalid"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}},
         "grammar-invalid"),
        ({"response_format": "{"}, "invalid-request"),
        ({"lora": {"none": 1.0}}, "invalid-request"),
        ({"logprobs": 99}, "invalid-request"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_a_typed_error(
    stoker: Stoker, options: dict[str, object], code: str
) -> None:
    with pytest.raises(StokerClientError) as caught:
        records(stoker, "x", **options)
    assert caught.value.code == code
    assert records(stoker, "x")[-1].kind == "done"


def test_an_adapter_of_the_configuration_is_listed_and_acts(stoker: Stoker) -> None:
    assert stoker.models()[0]["adapters"] == ["odd"]
    plain, odd = ("".join(r.text for r in records(stoker, "Name three rivers.", lora=lora))
                  for lora in ({}, {"odd": 1.0}))  # fmt: skip
    assert plain != odd


def test_vectors_over_the_bus(stoker: Stoker) -> None:
    one, other = stoker.embed(["a cat", "a dog"])
    assert len(one) == len(other) == 576
    assert math.hypot(*one) == pytest.approx(1.0, abs=1e-4)
    for texts in ([], [""], ["x"] * 65):
        with pytest.raises(StokerClientError, match=r"embed|texts"):
            stoker.embed(texts)


def test_the_command_line_has_it_too(
    agent: Stokerd, child_env: dict[str, str], tmp_path: Path
) -> None:
    env = {**child_env, "STOKER_BUS_ADDRESS": agent.bus.address}
    file = tmp_path / "city.json"
    file.write_text(json.dumps(CITY))
    done = ctl(env, "ask", "--temperature", "0", "--schema", str(file), "Name a city.")
    assert valid(json.loads(done.stdout), CITY), done.stderr
    grammar = tmp_path / "yes.gbnf"
    grammar.write_text('root ::= "yes" | "no"\n')
    assert ctl(env, "ask", "--grammar", str(grammar), "Is it?").stdout in ("yes\n", "no\n")
    assert ctl(env, "ask", "--json-schema", "{", "x").returncode == 64
    assert ctl(env, "ask", "--lora", "odd=much", "x").returncode == 64
    lines = ctl(env, "embed", "a cat", "a dog").stdout.splitlines()
    assert [len(json.loads(line)) for line in lines] == [576, 576]
