"""The runner with the real library and the default model, through its socket."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.runner_client import RunnerClient, default_model, text

from stoker.core import frames
from stoker.events.prompt import Message, Sampling
from stoker.events.runner import (
    Answer,
    ApplyTemplate,
    Delta,
    Failed,
    Generate,
    LoadProgress,
    Score,
    SetThreads,
    Stats,
    Tokenize,
)

pytestmark = pytest.mark.real
GREEDY = Sampling(temperature=0.0)


@pytest.fixture(scope="module")
def model() -> Path:
    path = default_model()
    if not path.is_file():
        pytest.fail(f"{path} is missing: 'make run' fetches it, or set STOKER_TEST_MODEL")
    return path


@pytest.fixture(scope="module")
def shared(model: Path) -> Iterator[RunnerClient]:
    with RunnerClient("llama") as client:
        client.hello()
        client.load(model, threads=2, threads_batch=2, context_tokens=1024, slots=4)
        yield client


@pytest.fixture
def llama(shared: RunnerClient) -> RunnerClient:
    """The shared runner, idle: no test may leave it a job."""
    stats = _result(shared, Stats("fixture"))
    assert (stats["active"], stats["waiting"]) == (0, 0)
    return shared


def _result(
    client: RunnerClient, query: Stats | Score | Tokenize | ApplyTemplate
) -> dict[str, object]:
    answer = client.answer(query)
    assert isinstance(answer, Answer), answer
    return dict(answer.result)


def _done(deltas: list[Delta]) -> dict[str, object]:
    assert deltas[-1].done is not None, deltas[-1]
    return dict(deltas[-1].done)


def _code(deltas: list[Delta]) -> object:
    assert deltas[-1].error is not None, deltas[-1]
    return deltas[-1].error["code"]


def test_load_reports_progress_and_facts(model: Path) -> None:
    with RunnerClient("llama") as client:
        assert client.hello().library.startswith("llama-cpp-python")
        loaded = client.load(model, slots=2, context_tokens=512)
        marks = [e.fraction for e in client.received if isinstance(e, LoadProgress)]
        assert marks == sorted(marks)
        assert marks[-1] == 1.0
        assert loaded.parameters == 134_515_008
        assert (loaded.vocabulary, loaded.train_context_tokens) == (49_152, 8_192)
        assert (loaded.slots, loaded.context_tokens) == (2, 512)
        assert "llama" in loaded.description
    assert client.process.returncode == 0


def test_it_knows_the_capital_of_france(llama: RunnerClient) -> None:
    prompt = "The capital of France is"
    deltas = llama.ask(Generate("a", raw=True, prompt=prompt, sampling=GREEDY, max_tokens=48))
    assert "Paris" in text(deltas)
    assert len(deltas) > 3, "it streams: a frame for each 30 ms"


def test_chat_answer_ends_by_itself(llama: RunnerClient) -> None:
    deltas = llama.ask(Generate("a", prompt="What is 2+2?", sampling=GREEDY, max_tokens=60))
    assert "4" in text(deltas)
    assert "<|im_end|>" not in text(deltas)
    done = _done(deltas)
    assert done["finish_reason"] == "stop"
    timings = done["timings"]
    assert isinstance(timings, dict)
    assert all(value > 0 for value in timings.values())


def test_same_seed_same_text(llama: RunnerClient) -> None:
    hot = Sampling(temperature=1.0, seed=42)
    texts = [
        text(llama.ask(Generate(name, prompt="Tell me a story.", sampling=hot, max_tokens=20)))
        for name in "ab"
    ]
    assert texts[0] == texts[1]
    assert len(texts[0]) > 10


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(top_k=0),
        Sampling(top_k=1_000_000),
        Sampling(repeat_penalty=1.3),
        Sampling(temperature=0.0, repeat_penalty=1.3),
        Sampling(top_p=0.0, min_p=1.0),
        Sampling(repeat_last_n=0, repeat_penalty=1.3),
    ],
)
def test_every_sampler_setting_runs(llama: RunnerClient, sampling: Sampling) -> None:
    deltas = llama.ask(Generate("a", prompt="Hi", sampling=sampling, max_tokens=3))
    assert _done(deltas)["finish_reason"] in ("length", "stop")


def test_stop_string_ends_the_text_before_it(llama: RunnerClient) -> None:
    request = Generate("a", raw=True, prompt="1, 2, 3, 4,", sampling=GREEDY, stop=("7, 8",))
    deltas = llama.ask(request)
    assert _done(deltas)["finish_reason"] == "stop-string"
    assert "6" in text(deltas)
    assert "7" not in text(deltas)


def test_jobs_together_say_what_each_says_alone(llama: RunnerClient) -> None:
    # prompts whose next words are sure: sums in a batch are added in another order, which
    # may turn a near tie
    prompts = ["1, 2, 3, 4,", "A B C D E", "Monday, Tuesday,", "The capital of France is"]
    jobs = [
        Generate(f"j{n}", raw=True, prompt=prompt, sampling=GREEDY, max_tokens=6)
        for n, prompt in enumerate(prompts)
    ]
    alone = [text(llama.ask(job)) for job in jobs]
    for job in jobs:
        llama.send(job)
    together = llama.finish(*(job.job for job in jobs))
    assert [text(together[job.job]) for job in jobs] == alone


def test_more_jobs_than_slots_are_all_served(llama: RunnerClient) -> None:
    names = [f"q{n}" for n in range(7)]
    for name in names:
        llama.send(Generate(name, prompt="Hi", sampling=GREEDY, max_tokens=4))
    done = llama.finish(*names)
    assert {text(deltas) for deltas in done.values()} == {text(done["q0"])}


def test_cancel_in_mid_stream_frees_the_slot(llama: RunnerClient) -> None:
    llama.send(Generate("a", raw=True, prompt="Once upon a time", max_tokens=900))
    stream = llama.deltas("a")
    for _ in range(3):
        next(stream)
    llama.cancel("a")
    rest = list(stream)
    assert _code(rest) == "cancelled"
    assert len(rest) < 20
    assert _result(llama, Stats("s"))["active"] == 0


def test_cancel_in_a_long_prefill_is_prompt(llama: RunnerClient) -> None:
    words = " ".join(random.Random(1).choices(["fire", "coal", "steam", "iron"], k=900))
    waits: list[float] = []
    for n in range(3):
        llama.send(Generate(f"p{n}", raw=True, prompt=words, sampling=GREEDY))
        time.sleep(0.15)
        sent_s = time.monotonic()
        llama.cancel(f"p{n}")
        assert _code(list(llama.deltas(f"p{n}"))) == "cancelled"
        waits.append(time.monotonic() - sent_s)
    assert min(waits) < 0.05, f"a step of the prefill takes 10 times as long: {waits}"
    after = llama.ask(Generate("after", prompt="Say hi.", sampling=GREEDY, max_tokens=8))
    assert text(after)


def test_prompt_over_the_context_names_the_numbers(llama: RunnerClient) -> None:
    (delta,) = llama.ask(Generate("a", raw=True, prompt="word " * 3000))
    assert delta.error is not None
    assert delta.error["code"] == "context-length-exceeded"
    details = delta.error["details"]
    assert isinstance(details, dict)
    assert details["context_tokens"] == 1024
    assert details["prompt_tokens"] > 3000


def test_huge_prompt_is_refused_at_once(llama: RunnerClient) -> None:
    sent_s = time.monotonic()
    (delta,) = llama.ask(Generate("a", prompt="fire " * 1_600_000))
    assert _code([delta]) == "context-length-exceeded"
    assert time.monotonic() - sent_s < 3.0


def test_generation_up_to_the_context_ends_with_length(llama: RunnerClient) -> None:
    request = Generate("a", raw=True, prompt="go " * 1000, sampling=GREEDY, max_tokens=900)
    done = _done(llama.ask(request))
    usage = done["usage"]
    assert isinstance(usage, dict)
    assert done["finish_reason"] in ("length", "stop")
    assert usage["prompt_tokens"] + usage["completion_tokens"] <= 1024


def test_zero_length_prompt_is_refused_but_an_empty_message_is_not(llama: RunnerClient) -> None:
    assert _code(llama.ask(Generate("a", prompt=""))) == "invalid-request"
    empty = (Message("user", ""),)
    assert _done(llama.ask(Generate("b", messages=empty, sampling=GREEDY, max_tokens=4)))


@pytest.mark.parametrize(
    "prompt", ["\ud800 lone", "pair \ud83d\udd25", "nul \0 byte", "\ufffe\U0010ffff"]
)
def test_odd_characters_do_no_harm(llama: RunnerClient, prompt: str) -> None:
    body = {"k": "generate", "job": "a", "prompt": prompt, "max_tokens": 3}
    data = json.dumps(body).encode()
    llama.socket.sendall(frames.encode(json.loads(data)))
    assert _done(list(llama.deltas("a")))


def test_emoji_arrive_whole(llama: RunnerClient) -> None:
    request = Generate("a", raw=True, prompt="🔥🔥🔥🔥🔥🔥🔥🔥", sampling=GREEDY, max_tokens=24)
    deltas = llama.ask(request)
    assert "\ufffd" not in "".join(item.t for item in deltas[:-1])
    assert "🔥" in text(deltas)


def test_template_marks_the_beginning_once(llama: RunnerClient) -> None:
    rendered = _result(llama, ApplyTemplate("t", (Message("user", "hi"),)))["text"]
    assert isinstance(rendered, str)
    assert rendered.endswith("<|im_start|>assistant\n")
    tokens = _result(llama, Tokenize("k", rendered, special=True))["tokens"]
    assert isinstance(tokens, list)
    done = _done(llama.ask(Generate("a", prompt="hi", sampling=GREEDY, max_tokens=1)))
    usage = done["usage"]
    assert isinstance(usage, dict)
    assert usage["prompt_tokens"] == len(tokens), "no second beginning was added"


def test_sentence_scores_better_than_its_words_shuffled(llama: RunnerClient) -> None:
    words = ["the", "old", "man", "sat", "by", "the", "fire", "and", "told", "us", "a", "story"]
    shuffled = random.Random(3).sample(words, len(words))
    plain, mixed = (_result(llama, Score("s", " ".join(each))) for each in (words, shuffled))
    assert isinstance(plain["nll"], float)
    assert isinstance(mixed["nll"], float)
    assert 0 < plain["nll"] < mixed["nll"] * 0.8


def test_score_does_not_depend_on_other_jobs(llama: RunnerClient) -> None:
    query = Score("s", "stokers shovel coal into the furnace all night long " * 8)
    alone = _result(llama, query)
    llama.send(Generate("a", raw=True, prompt="Once", sampling=GREEDY, max_tokens=1500))
    beside = _result(llama, query)  # a quarter of the time is the score's: the job outlasts it
    llama.cancel("a")
    list(llama.deltas("a"))
    assert beside["tokens"] == alone["tokens"]
    assert beside["nll"] == pytest.approx(alone["nll"], rel=0.01)


def test_score_of_too_little_or_too_much_is_refused(llama: RunnerClient) -> None:
    for content, code in (("", "invalid-request"), ("x " * 5000, "context-length-exceeded")):
        answer = llama.answer(Score("s", content))
        assert isinstance(answer, Failed)
        assert answer.code == code


def test_threads_change_between_steps(llama: RunnerClient) -> None:
    llama.send(Generate("a", raw=True, prompt="Once", max_tokens=30, sampling=GREEDY))
    for threads in (1, 2):
        answer = llama.answer(SetThreads("t", threads, threads))
        assert isinstance(answer, Answer)
        assert _result(llama, Stats("s"))["threads"] == threads
    llama.cancel("a")
    refused = llama.answer(SetThreads("t", 0, 10_000))
    assert isinstance(refused, Failed)


def test_stats_tell_what_the_agent_needs(llama: RunnerClient) -> None:
    stats = _result(llama, Stats("s"))
    assert stats["gomp_spincount"]
    for key in ("steps", "prefill_ms_per_token", "decode_ms_per_step", "state_bytes", "rss_bytes"):
        value = stats[key]
        assert isinstance(value, int | float)
        assert value > 0, key
