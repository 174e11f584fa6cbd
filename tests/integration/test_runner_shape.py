"""Shaped answers by the real library and the default model, through the runner's socket."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping

import pytest
from bench.runner_client import RunnerClient, default_model, text
from tests.fakes import lora_file
from tests.fakes.hostile_shapes import HOSTILE, REFUSED
from tests.fakes.schema_check import valid

from stoker.events.prompt import AdapterScale, Message, Sampling, Shape
from stoker.events.runner import (
    Adapter,
    Answer,
    Delta,
    Deltas,
    Embed,
    Failed,
    Generate,
    Score,
    Stats,
)

pytestmark = pytest.mark.real
GREEDY = Sampling(temperature=0.0)
_ids = itertools.count()

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 24},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "maxItems": 3},
        "home": {"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 12}]},
    },
    "required": ["name", "age", "tags", "home"],
}
CALL = {"id": "1", "function": {"name": "get_weather", "arguments": "{}"}}
TOOLS = json.dumps(
    [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "parameters": {
                    "type": "object",
                    "properties": {"city": {"type": "string", "maxLength": 20}},
                    "required": ["city"],
                },
            },
        }
    ]
)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunnerClient]:
    model = default_model()
    if not model.is_file():
        pytest.fail(f"{model} is missing: 'make run' fetches it, or set STOKER_TEST_MODEL")
    folder = tmp_path_factory.mktemp("lora")
    adapters = (
        Adapter("one", str(lora_file.write(folder / "one.gguf", 1, size=0.3))),
        Adapter("two", str(lora_file.write(folder / "two.gguf", 2, size=0.3))),
        Adapter("alien", str(lora_file.write(folder / "alien.gguf", 3, arch="qwen2"))),
        Adapter("gone", str(folder / "gone.gguf")),
    )
    with RunnerClient("llama") as client:
        client.hello()
        client.load(
            model, threads=1, threads_batch=1, context_tokens=1024, slots=4, adapters=adapters
        )
        yield client


def ask(
    prompt: str, shape: Shape | None = None, *, sampling: Sampling = GREEDY, most: int = 120
) -> Generate:
    return Generate(
        f"shape{next(_ids)}", prompt=prompt, max_tokens=most, sampling=sampling,
        shape=shape or Shape(),
    )  # fmt: skip


def answers(client: RunnerClient, *requests: Generate) -> list[list[Delta]]:
    """All of them together."""
    for request in requests:
        client.send(request)
    found: dict[str, list[Delta]] = {request.job: [] for request in requests}
    ended = 0
    while ended < len(requests):
        event = client.next(120.0)
        for delta in event.items if isinstance(event, Deltas) else ():
            found[delta.job].append(delta)
            ended += delta.done is not None or delta.error is not None
    return list(found.values())


def one(client: RunnerClient, request: Generate) -> list[Delta]:
    return answers(client, request)[0]


def end(deltas: list[Delta]) -> Mapping[str, object]:
    assert deltas[-1].done is not None, deltas[-1].error
    return deltas[-1].done


def test_a_schema_gives_json_that_follows_it_and_the_answer_ends(llama: RunnerClient) -> None:
    shape = Shape(schema=json.dumps(PERSON))
    for seed in (None, 1, 2, 3):
        hot = GREEDY if seed is None else Sampling(temperature=1.5, min_p=0.0, seed=seed)
        deltas = one(llama, ask("Invent a person, as JSON.", shape, sampling=hot))
        assert end(deltas)["finish_reason"] == "stop"
        assert valid(json.loads(text(deltas)), PERSON), text(deltas)


def test_a_cut_answer_under_a_grammar_says_that_it_is_cut(llama: RunnerClient) -> None:
    deltas = one(llama, ask("JSON", Shape(schema=json.dumps(PERSON)), most=5))
    assert end(deltas)["finish_reason"] == "length"


def test_a_grammar_decides_and_four_of_them_run_together(llama: RunnerClient) -> None:
    grammars = [
        'root ::= "yes" | "no"',
        "root ::= [0-9]{3}",
        'root ::= "é☃" [α-ω]',
        "root ::= [a-f]+ [.]",
    ]
    found = answers(llama, *(ask("Is water wet?", Shape(grammar=grammar)) for grammar in grammars))
    texts = [text(deltas) for deltas in found]
    assert texts[0] in ("yes", "no")
    assert len(texts[1]) == 3
    assert texts[1].isdigit()
    assert texts[2][:2] == "é☃"


@pytest.mark.parametrize("kind", ["grammar", "schema"])
def test_hostile_shapes_end_with_typed_errors_and_the_runner_lives(
    llama: RunnerClient, kind: str
) -> None:
    hostile = HOSTILE.values() if kind == "grammar" else map(json.dumps, REFUSED.values())
    for item in filter(None, hostile):
        shape = Shape(grammar=item) if kind == "grammar" else Shape(schema=item)
        last = one(llama, ask("x", shape, most=3))[-1]
        assert last.error is not None, item[:80]
        assert last.error["code"] == "grammar-invalid"
    explosive = Shape(grammar='root ::= x\nx ::= " " x "b" | " " x "c" | " "')
    last = one(llama, ask("x", explosive, most=200))[-1]
    assert last.done is not None or (last.error and last.error["code"] == "grammar-invalid")
    assert isinstance(llama.answer(Stats("alive")), Answer)


def test_a_call_that_is_asked_for_is_made(llama: RunnerClient) -> None:
    for choice in ("required", "get_weather"):
        shape = Shape(tools=TOOLS, tool_choice=choice)
        deltas = one(llama, ask("What is the weather in Paris?", shape))
        (call,) = [call for delta in deltas for call in delta.tools]
        assert end(deltas)["finish_reason"] == "tool-calls"
        assert (text(deltas), call.name) == ("", "get_weather")
        assert isinstance(json.loads(call.arguments)["city"], str)
    talk = (
        Message("user", "Weather in Paris?"),
        Message("assistant", "", tool_calls=json.dumps([CALL])),
        Message("tool", "12 degrees", tool_call_id="1"),
    )  # fmt: skip
    again = Generate("talk", messages=talk, max_tokens=5, sampling=GREEDY, shape=Shape(tools=TOOLS))
    assert end(one(llama, again))["finish_reason"] in ("length", "stop")


def test_likelihoods_are_those_of_the_model_alone(llama: RunnerClient) -> None:
    """Scoring the same text sums the same numbers."""
    request = Generate(
        "likely", prompt="The sun is", raw=True, max_tokens=12, sampling=GREEDY,
        shape=Shape(logprobs=3),
    )  # fmt: skip
    deltas = one(llama, request)
    content = [item for d in deltas for item in (d.lp or {}).get("content", [])]  # type: ignore[attr-defined]
    usage = end(deltas)["usage"]
    assert isinstance(usage, dict)
    assert len(content) in (usage["completion_tokens"], usage["completion_tokens"] - 1)
    assert b"".join(bytes(item["bytes"]) for item in content).decode() == text(deltas)
    for item in content:
        tops = [top["logprob"] for top in item["top_logprobs"]]
        assert tops == sorted(tops, reverse=True)
        assert item["logprob"] == tops[0]  # greedy took the likeliest
        assert sum(map(math.exp, tops)) <= 1.0001
    whole = llama.answer(Score("s1", "The sun is" + text(deltas)))
    head = llama.answer(Score("s2", "The sun is"))
    assert isinstance(whole, Answer)
    assert isinstance(head, Answer)
    nats = float(str(whole.result["nll"])) - float(str(head.result["nll"]))
    assert nats == pytest.approx(-sum(item["logprob"] for item in content), abs=0.2)


def test_likelihoods_do_not_depend_on_samplers(llama: RunnerClient) -> None:
    shape = Shape(logprobs=2)
    hot = Sampling(temperature=3.0, top_k=2, seed=5)
    first = [one(llama, ask("Hi", shape, sampling=s, most=1))[0] for s in (GREEDY, hot)]
    tops = [d.lp["content"][0]["top_logprobs"] for d in first if d.lp]  # type: ignore[index]
    assert tops[0] == tops[1]


@pytest.mark.parametrize(
    ("penalty", "value"),
    [("frequency_penalty", 2.0), ("presence_penalty", 2.0), ("repeat_penalty", 1.8)],
)
def test_penalties_make_an_answer_repeat_itself_less(
    llama: RunnerClient, penalty: str, value: float
) -> None:
    def distinct(sampling: Sampling) -> float:
        prompt = "a b a b a b a b"
        request = Generate(
            f"p{next(_ids)}", prompt=prompt, raw=True, max_tokens=40, sampling=sampling
        )
        words = text(one(llama, request)).split()
        return len(set(words)) / len(words)

    assert distinct(Sampling(temperature=0.0, **{penalty: value})) > distinct(GREEDY)  # type: ignore[arg-type]


def test_the_same_seed_gives_the_same_text(llama: RunnerClient) -> None:
    warm = Sampling(temperature=0.9, seed=11)
    texts = {text(one(llama, ask("Tell me of the sea.", sampling=warm, most=30))) for _ in range(2)}
    assert len(texts) == 1
    other = text(one(llama, ask("Tell me of the sea.", sampling=Sampling(seed=12), most=30)))
    assert other not in texts


def test_reasoning_is_cut_at_its_budget(llama: RunnerClient) -> None:
    """A prompt that opens a thought, as templates of reasoning models do."""
    request = Generate(
        "think", prompt="Question: 2+2?\n<think>\n", raw=True, max_tokens=60, sampling=GREEDY,
        shape=Shape(reasoning_tokens=4),
    )  # fmt: skip
    deltas = one(llama, request)
    usage = end(deltas)["usage"]
    assert isinstance(usage, dict)
    assert 4 <= usage["reasoning_tokens"] <= 12  # with the tokens of the end mark
    assert "".join(d.r for d in deltas)
    assert text(deltas)
    assert "think>" not in text(deltas)


@pytest.mark.parametrize("budget", [3, 50])  # cut, and ended by the model itself
def test_reasoning_is_free_and_the_answer_under_the_grammar(
    llama: RunnerClient, budget: int
) -> None:
    request = Generate(
        f"both{budget}", prompt="Is 2+2 4?\n<think>\n", raw=True, max_tokens=60, sampling=GREEDY,
        shape=Shape(reasoning_tokens=budget, grammar='root ::= "yes" | "no"'),
    )  # fmt: skip
    deltas = one(llama, request)
    assert text(deltas) in ("yes", "no")
    assert len("".join(d.r for d in deltas)) > 5
    assert end(deltas)["finish_reason"] == "stop"


def _vectors(client: RunnerClient, *texts: str) -> list[list[float]]:
    answer = client.answer(Embed(f"e{next(_ids)}", texts), 120.0)
    assert isinstance(answer, Answer), answer
    found = answer.result["vectors"]
    assert isinstance(found, list)
    return found


def test_vectors_have_length_one_and_tell_meaning(llama: RunnerClient) -> None:
    long = "The cat sat on the mat. " * 12  # several chunks
    first, near, far, chunks = _vectors(
        llama, "A cat sits on a mat.", "A kitten is sitting on a rug.", "Tax law of 1987, § 4", long
    )
    for vector in (first, near, far, chunks):
        assert len(vector) == 576
        assert math.fsum(v * v for v in vector) == pytest.approx(1.0, abs=1e-4)
    assert _product(first, near) > _product(first, far)
    again = _vectors(llama, "A cat sits on a mat.")[0]
    assert _product(first, again) == pytest.approx(1.0, abs=1e-3)


def _product(one_: list[float], other: list[float]) -> float:
    return math.fsum(a * b for a, b in zip(one_, other, strict=True))


def test_streams_go_on_while_texts_are_embedded(llama: RunnerClient) -> None:
    job = ask("Tell a story.", most=1500)  # most of the time is its own: it outlasts them
    llama.send(job)
    assert len(_vectors(llama, *("The cat sat on the mat. " * 20,) * 3)) == 3
    llama.cancel(job.job)
    assert list(llama.deltas(job.job))[-1].error is not None


@pytest.mark.parametrize(
    ("texts", "code"),
    [
        ((), "invalid-request"),
        (("a",) * 65, "invalid-request"),
        (("a", ""), "invalid-request"),
        (("word " * 1200,), "context-length-exceeded"),
        (("word " * 900,) * 10, "request-too-large"),
    ],
)
def test_texts_that_cannot_be_embedded(
    llama: RunnerClient, texts: tuple[str, ...], code: str
) -> None:
    answer = llama.answer(Embed(f"e{next(_ids)}", texts))
    assert isinstance(answer, Failed)
    assert answer.code == code


def _styled(name: str, scale: float) -> Shape:
    return Shape(adapters=(AdapterScale(name, scale),))


def test_an_adapter_acts_by_its_scale_and_never_on_its_neighbours(llama: RunnerClient) -> None:
    """Begins are compared: further on a near tie may fall the other way in another batch."""
    shapes = [None, _styled("one", 0.0), _styled("one", 1.0), _styled("two", 1.0)]
    solo = [text(one(llama, ask("Name three rivers.", shape, most=12))) for shape in shapes]
    assert solo[0] == solo[1]
    begins = [said[:8] for said in solo[1:]]
    assert len(set(begins)) == 3
    together = answers(llama, *(ask("Name three rivers.", shape, most=12) for shape in shapes[1:]))
    assert [text(deltas)[:8] for deltas in together] == begins
    assert text(one(llama, ask("Name three rivers.", most=12))) == solo[0]


def test_scores_and_vectors_are_the_models_own_beside_an_adapter(llama: RunnerClient) -> None:
    def nats() -> object:
        answer = llama.answer(Score(f"r{next(_ids)}", "The rivers of the world"))
        assert isinstance(answer, Answer)
        return answer.result

    before, vector = nats(), _vectors(llama, "rivers")[0]
    one(llama, ask("Name three rivers.", _styled("one", 1.0), most=3))
    assert nats() == before
    one(llama, ask("Name three rivers.", _styled("one", 1.0), most=3))
    assert _product(_vectors(llama, "rivers")[0], vector) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("name", ["alien", "gone", "unknown"])
def test_an_adapter_that_cannot_be_used_is_told_to_who_asks_for_it(
    llama: RunnerClient, name: str
) -> None:
    last = one(llama, ask("Hi", _styled(name, 1.0), most=3))[-1]
    assert last.error is not None
    assert last.error["code"] == "invalid-request"
    assert name in str(last.error["message"])
