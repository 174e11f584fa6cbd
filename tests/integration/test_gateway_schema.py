"""The door does what its OpenAPI document says: schemathesis asks the whole chain, model included.

What no schema says (how long a context is, which tools there are) is excused by the answer's own
words, and by nothing else. Refusals that a sound device never gives are a played agent's.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from bench.random_model import random_model
from hypothesis import HealthCheck, settings
from tests.fakes.agent import FakeAgent
from tests.integration.gateway_rig import Gateway
from tests.integration.stokerd_rig import Stokerd, stokerd, until

from stoker.api.errormap import ROWS
from stoker.gateway.asking import MAX_INPUTS
from stoker.gateway.doors import application
from stoker.gateway.openapi import document
from stoker.gateway.settings import Settings
from stoker.gateway.tokens import Tokens
from stoker.tour.private_bus import PrivateBus
from stoker_client.errors import StokerClientError

schemathesis = pytest.importorskip("schemathesis")
checks = pytest.importorskip("schemathesis.specs.openapi.checks")

CONFIG = """
[access]
gateway_user = "root"
[models.tiny]
path = "{model}"
context_tokens = 512
[inference]
max_tokens = 8
max_tokens_limit = 16
"""
TEXTS = 70  # more than one call of the agent takes
BEYOND = ("dimensions", "lora", "max_tokens", "messages", "n", "tool_choice", "tools")
CODES = ("context_length_exceeded", "grammar_invalid")
# Updates, whose codes come last, have no door here.
REFUSALS = [*itertools.takewhile(lambda code: code != "bad-delta", (row.code for row in ROWS))]


@schemathesis.serializer("application/msgpack")  # type: ignore[untyped-decorator]
def _packed(_context: Any, value: Any) -> bytes:
    import msgpack

    packed: bytes = msgpack.packb(value, unicode_errors="replace", default=str)
    return packed


def _schema() -> Any:
    schema = schemathesis.openapi.from_dict(document())
    schema.config.generation.update(allow_x00=False)  # D-Bus has no such character
    return schema


@pytest.fixture(scope="module")
def daemon(
    tmp_path_factory: pytest.TempPathFactory, child_env: dict[str, str]
) -> Iterator[Stokerd]:
    home = tmp_path_factory.mktemp("stokerd")
    config = CONFIG.format(model=random_model("qwen2-tiny", home))
    with PrivateBus() as bus, stokerd(bus, home, child_env, config=config) as running:
        running.wait_ready()
        yield running
        until(lambda: running.status()["active_jobs"] == 0, "every job is over")
        assert running.status()["runner_restarts"] == 0
        assert "Traceback" not in running.text()


@pytest.mark.bus
@pytest.mark.real
@_schema().parametrize()  # type: ignore[untyped-decorator]
@settings(
    max_examples=40, derandomize=True, deadline=None, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
def test_every_answer_is_one_that_the_document_names(case: Any, door: Gateway) -> None:
    texts = case.body.get("input") if isinstance(case.body, dict) else None
    if isinstance(texts, list) and TEXTS < len(texts) <= MAX_INPUTS:
        case.body["input"] = texts[:TEXTS]  # all that are allowed cost time and show no more
    response = case.call(base_url=door.url, timeout=60)
    assert response.status_code not in (500, 502, 503, 504), response.text
    excused = response.status_code == 400 and _beyond(response)
    case.validate_response(
        response, excluded_checks=[checks.positive_data_acceptance] if excused else []
    )


def _beyond(response: Any) -> bool:
    """The answer names something that the document cannot tell."""
    if "msgpack" in response.headers["content-type"][0]:
        import msgpack

        error = msgpack.unpackb(response.content)["error"]
    else:
        error = response.json()["error"]
    param = (error["param"] or "").partition(".")[0].partition("[")[0]
    return error["code"] in CODES or param in BEYOND


@pytest.mark.parametrize("code", REFUSALS)
def test_every_refusal_of_the_agent_is_one_that_the_document_names(code: str) -> None:
    agent = FakeAgent()
    agent.refusal = StokerClientError(code, "cannot do it: a reason", hint="a hint")
    app = application(agent, Settings(hosts=("testserver",)), Tokens(None))
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    for path, body in (
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
        ("/v1/completions", {"prompt": "hi", "stream": True}),
        ("/v1/embeddings", {"input": "hi"}),
    ):
        case = schema[path]["POST"].Case(body=body, media_type="application/json")
        conform = [checks.status_code_conformance, checks.response_schema_conformance]
        case.call_and_validate(checks=conform)
