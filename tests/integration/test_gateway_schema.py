"""The door does what its OpenAPI document says: schemathesis makes the requests, in process."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from tests.fakes.agent import FakeAgent

schemathesis = pytest.importorskip("schemathesis")
checks = pytest.importorskip("schemathesis.specs.openapi.checks")


@schemathesis.serializer("application/msgpack")  # type: ignore[untyped-decorator]
def _packed(_context: Any, value: Any) -> bytes:
    import msgpack

    packed: bytes = msgpack.packb(value, unicode_errors="replace", default=str)
    return packed


def _schema() -> Any:
    from stoker.gateway.doors import application
    from stoker.gateway.settings import Settings
    from stoker.gateway.tokens import Tokens

    app = application(FakeAgent(), Settings(hosts=("testserver",)), Tokens(None))
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    schema.config.generation.update(allow_x00=False)  # D-Bus has no such character
    return schema


@_schema().parametrize()  # type: ignore[untyped-decorator]
@settings(
    max_examples=10, derandomize=True, deadline=None, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
def test_every_answer_is_one_that_the_document_names(case: Any) -> None:
    body = case.body if isinstance(case.body, dict) else {}
    # How many dimensions there are, and how many answers n and prompt are together, no schema says.
    beyond = "dimensions" in body or body.get("n") not in (None, 1)
    excluded = [checks.positive_data_acceptance] if beyond else []
    case.call_and_validate(excluded_checks=excluded)
