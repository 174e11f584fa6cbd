"""The clients that people really use, against a real gateway, stokerd and model."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.default_model import default_model
from tests.integration import gateway_rig
from tests.integration.gateway_rig import Gateway
from tests.integration.stokerd_rig import Stokerd, stokerd, until

from stoker.tour.private_bus import PrivateBus

pytestmark = [pytest.mark.bus, pytest.mark.real]

QUESTION = "What is gravity?"
WORDS = "force|physics|Gravity"
MESSAGES = [{"role": "user", "content": QUESTION}]
LONG = [{"role": "user", "content": "word " * 2000}]
STORY = [{"role": "user", "content": "Tell me a long story about the sea."}]
SETTINGS = """
[access]
gateway_user = "{user}"
[models.smollm2]
path = "{path}"
context_tokens = 512
[sampling]
temperature = 0.0
"""


@pytest.fixture(scope="module")
def daemon(
    tmp_path_factory: pytest.TempPathFactory, child_env: dict[str, str]
) -> Iterator[Stokerd]:
    config = SETTINGS.format(user="root", path=default_model())
    home = tmp_path_factory.mktemp("stokerd")
    with PrivateBus() as bus, stokerd(bus, home, child_env, config=config) as running:
        running.wait_ready()
        yield running


@pytest.fixture
def client(door: Gateway) -> Iterator[Any]:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=door.api, api_key="unused", max_retries=0) as found:
        yield found


def test_openai_answers_and_counts(client: Any) -> None:
    answer = client.chat.completions.create(model="smollm2", messages=MESSAGES, max_tokens=32)
    (choice,) = answer.choices
    assert re.search(WORDS, choice.message.content)
    assert choice.finish_reason in ("stop", "length")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert 0 < answer.usage.completion_tokens <= 32


def test_openai_streams_and_gets_the_same_text(client: Any) -> None:
    more = {"model": "smollm2", "messages": MESSAGES, "max_completion_tokens": 32, "seed": 7}
    whole = client.chat.completions.create(**more).choices[0].message.content
    options = {"include_usage": True}
    chunks = list(client.chat.completions.create(**more, stream=True, stream_options=options))
    assert chunks[0].choices[0].delta.role == "assistant"
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(texts) == whole
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] in ("stop", "length")
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens > 0
    assert len({chunk.id for chunk in chunks}) == 1
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}


def test_openai_completes_text_and_gives_several_choices(client: Any) -> None:
    answer = client.completions.create(
        model="smollm2", prompt="The capital of France is", max_tokens=4, n=2, echo=True
    )
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert all("France is Paris" in choice.text.replace(" the", "") for choice in answer.choices)


def test_openai_gets_vectors_of_one_length(client: Any) -> None:
    found = client.embeddings.create(model="smollm2", input=["a cat", "a kitten", "an invoice"])
    cat, kitten, invoice = (item.embedding for item in found.data)
    assert sum(x * x for x in cat) == pytest.approx(1.0, abs=1e-3)
    near, far = (sum(x * y for x, y in zip(cat, v, strict=True)) for v in (kitten, invoice))
    assert near > far
    assert found.usage.prompt_tokens > 5


def test_openai_gets_json_that_follows_its_schema(client: Any) -> None:
    schema = {
        "type": "object", "properties": {"city": {"type": "string", "maxLength": 20}},
        "required": ["city"], "additionalProperties": False,
    }  # fmt: skip
    answer = client.chat.completions.create(
        model="smollm2", messages=[{"role": "user", "content": "Where is the Eiffel tower?"}],
        response_format={"type": "json_schema", "json_schema": {"name": "p", "schema": schema}},
        max_tokens=60,
    )  # fmt: skip
    assert set(json.loads(answer.choices[0].message.content)) == {"city"}


def test_openai_gets_likelihoods(client: Any) -> None:
    answer = client.chat.completions.create(
        model="smollm2", messages=MESSAGES, max_tokens=4, logprobs=True, top_logprobs=2
    )
    tokens = answer.choices[0].logprobs.content
    assert "".join(token.token for token in tokens).startswith(answer.choices[0].message.content)
    assert all(token.logprob <= 0 and len(token.top_logprobs) == 2 for token in tokens)


def test_openai_calls_a_tool(client: Any) -> None:
    tool = {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "maxLength": 20}},
                "required": ["city"],
            },
        },
    }
    more = {"model": "smollm2", "tools": [tool], "tool_choice": "required", "max_tokens": 40}
    messages = [{"role": "user", "content": "What is the weather in Paris?"}]
    choice = client.chat.completions.create(messages=messages, **more).choices[0]
    (call,) = choice.message.tool_calls
    assert (choice.finish_reason, call.function.name) == ("tool_calls", "weather")
    assert "city" in json.loads(call.function.arguments)
    chunks = list(client.chat.completions.create(messages=messages, stream=True, **more))
    calls = [chunk.choices[0].delta.tool_calls for chunk in chunks if chunk.choices]
    assert [call[0].function.name for call in calls if call] == ["weather"]
    back = [*messages, choice.message, {"role": "tool", "tool_call_id": call.id, "content": "5°"}]
    later = client.chat.completions.create(model="smollm2", messages=back, max_tokens=8)
    assert later.choices[0].message.content


def test_openai_lists_models(client: Any) -> None:
    assert [model.id for model in client.models.list()] == ["smollm2"]
    assert client.models.retrieve("smollm2").id == "smollm2"


def test_openai_raises_its_own_errors(client: Any) -> None:
    openai = pytest.importorskip("openai")
    with pytest.raises(openai.BadRequestError) as overflow:
        client.chat.completions.create(model="smollm2", messages=LONG)
    assert overflow.value.code == "context_length_exceeded"
    assert overflow.value.request_id
    with pytest.raises(openai.BadRequestError, match="context_length_exceeded"):
        client.chat.completions.create(model="smollm2", messages=LONG, stream=True)
    with pytest.raises(openai.NotFoundError) as absent:
        client.chat.completions.create(model="gpt-9", messages=MESSAGES)
    assert absent.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model="smollm2", messages=MESSAGES, max_tokens=10**9)
    assert wrong.value.param == "max_tokens"


def test_openai_over_the_unix_socket(door: Gateway) -> None:
    openai, httpx = pytest.importorskip("openai"), pytest.importorskip("httpx")
    transport = httpx.HTTPTransport(uds=str(door.socket_path))
    with openai.OpenAI(
        base_url="http://localhost/v1", api_key="x", http_client=httpx.Client(transport=transport)
    ) as client:
        answer = client.chat.completions.create(model="", messages=MESSAGES, max_tokens=8)
    assert answer.model == "smollm2"


def test_a_client_that_hangs_up_cancels_its_job(client: Any, daemon: Stokerd) -> None:
    stream = client.chat.completions.create(
        model="smollm2", messages=STORY, stream=True, max_tokens=400
    )
    next(iter(stream))
    until(lambda: daemon.status()["active_jobs"] == 1, "the job runs")
    stream.close()
    until(lambda: daemon.status()["active_jobs"] == 0, "slot free", 5.0)


def test_the_death_of_the_runner_in_mid_stream_is_an_error(client: Any, daemon: Stokerd) -> None:
    openai = pytest.importorskip("openai")
    stream = iter(
        client.chat.completions.create(model="smollm2", messages=STORY, stream=True, max_tokens=400)
    )
    next(stream), next(stream)
    daemon.runner().kill()
    with pytest.raises(openai.APIError) as died:
        list(stream)
    assert died.value.code == "engine_failed"
    daemon.wait_ready()


def test_langchain_answers_streams_and_knows_an_overflow(door: Gateway, daemon: Stokerd) -> None:
    langchain = pytest.importorskip("langchain_openai")
    daemon.wait_ready()
    chat = langchain.ChatOpenAI(
        model="smollm2", base_url=door.api, api_key="x", max_tokens=16, max_retries=0
    )
    assert re.search(WORDS, chat.invoke(QUESTION).content)
    assert re.search(WORDS, "".join(chunk.content for chunk in chat.stream(QUESTION)))
    with pytest.raises(Exception, match="context_length_exceeded") as overflow:
        chat.invoke("word " * 2000)
    assert type(overflow.value).__name__ == "OpenAIContextOverflowError"


def test_llm_asks_through_its_own_model_file(door: Gateway, tmp_path: Path) -> None:
    pytest.importorskip("llm")
    (tmp_path / "extra-openai-models.yaml").write_text(
        f"- model_id: stoker\n  model_name: smollm2\n  api_base: {door.api}\n"
    )
    env = {**os.environ, "LLM_USER_PATH": str(tmp_path), "OPENAI_API_KEY": "x"}
    said = subprocess.run(
        [sys.executable, "-m", "llm", "-m", "stoker", "-o", "max_tokens", "16", QUESTION],
        env=env, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    assert re.search(WORDS, said.stdout)


def test_curl_streams_over_both_sockets(door: Gateway) -> None:
    body = json.dumps({"messages": MESSAGES, "stream": True, "max_tokens": 8})
    common = ["-sS", "-N", "-H", "Content-Type: application/json", "-d", body]
    for where in (
        [f"{door.api}/chat/completions"],
        ["--unix-socket", str(door.socket_path), "http://localhost/v1/chat/completions"],
    ):
        said = subprocess.run(
            ["curl", *common, *where], capture_output=True, text=True, timeout=30, check=True
        )
        assert said.stdout.startswith("data: {")
        assert said.stdout.endswith("data: [DONE]\n\n")


def test_a_stopped_gateway_tells_its_streams(
    daemon: Stokerd, tmp_path: Path, child_env: dict[str, str]
) -> None:
    openai = pytest.importorskip("openai")
    with gateway_rig.gateway(daemon.bus.address, tmp_path, child_env) as door:
        client = openai.OpenAI(base_url=door.api, api_key="x", max_retries=0)
        stream = iter(
            client.chat.completions.create(
                model="smollm2", messages=STORY, stream=True, max_tokens=400
            )
        )
        next(stream), next(stream)
        door.process.terminate()
        with pytest.raises(openai.APIError) as ended:
            list(stream)
    assert ended.value.code == "unavailable"
    until(lambda: daemon.status()["active_jobs"] == 0, "slot free", 5.0)
