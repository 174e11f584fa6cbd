"""Prefixes and saved states on the real library and the default model."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.runner_client import RunnerClient, default_model, text

from stoker.events.prompt import Message, Sampling
from stoker.events.runner import Answer, Delta, Failed, Forget, Generate, Loaded, Resize, Stats

pytestmark = pytest.mark.real
GREEDY = Sampling(temperature=0.0)
SYSTEM = Message("system", "You are the stoker of a steam engine. " * 8)
FIRST = (SYSTEM, Message("user", "What do you shovel all day?"))


@contextlib.contextmanager
def runner(
    scratch: Path | None = None, **settings: object
) -> Iterator[tuple[RunnerClient, Loaded]]:
    extra = ("--scratch", str(scratch)) if scratch else ()
    wanted: dict[str, object] = {
        "threads": 2, "threads_batch": 2, "context_tokens": 512, "slots": 2,
        "cached_prefixes": 4, "state_bytes": (64 << 20) if scratch else 0,
    }  # fmt: skip
    with RunnerClient("llama", *extra) as client:
        client.hello()
        yield client, client.load(default_model(), **(wanted | settings))


@pytest.fixture(scope="module")
def shared() -> Iterator[RunnerClient]:
    with runner() as (client, _):
        yield client


def ask(
    client: RunnerClient, messages: tuple[Message, ...], *, scope: str = "7", **more: object
) -> tuple[str, dict[str, int], dict[str, object]]:
    """(text, usage, done)"""
    request = Generate(
        f"j{len(client.received)}", messages=messages, scope=scope, sampling=GREEDY,
        **({"max_tokens": 24} | more),  # type: ignore[arg-type]
    )  # fmt: skip
    deltas: list[Delta] = client.ask(request)
    done = deltas[-1].done
    assert done is not None, deltas[-1].error
    usage = done["usage"]
    assert isinstance(usage, dict)
    return text(deltas), usage, dict(done)


def second(answer: str) -> tuple[Message, ...]:
    return (*FIRST, Message("assistant", answer), Message("user", "And at night?"))


def cache(client: RunnerClient) -> dict[str, int]:
    found = client.answer(Stats("s"))
    assert isinstance(found, Answer)
    counts = found.result["prefix_cache"]
    assert isinstance(counts, dict)
    return counts


def wait_saved(client: RunnerClient, files: int) -> None:
    """Asking is what the runner does between two rests."""
    for _ in range(10_000):
        if cache(client)["saves"] >= files:
            return
    raise AssertionError("nothing was saved")


def test_a_second_turn_reads_only_what_is_new(shared: RunnerClient) -> None:
    answer, usage, _ = ask(shared, FIRST, max_tokens=40)
    assert usage["cached_tokens"] == 0
    _, again, _ = ask(shared, second(answer))
    # the question, the marks around it, and the answer's last token, which was never read
    assert again["prompt_tokens"] - again["cached_tokens"] < 20
    assert again["cached_tokens"] > usage["prompt_tokens"]
    _, nothing, _ = ask(shared, second(answer), scope="")
    assert nothing["cached_tokens"] == 0


def test_the_same_greedy_text_with_and_without_the_cache(shared: RunnerClient) -> None:
    # words that are sure: another batch rounds otherwise and may turn a near tie
    count = ", ".join(str(number) for number in range(1, 60)) + ","
    job = Generate("c1", raw=True, prompt=count, sampling=GREEDY, max_tokens=24, scope="count")
    fresh = shared.ask(job)
    cached = shared.ask(job)
    assert "63, 64" in text(fresh)
    assert text(cached) == text(fresh)
    assert cached[-1].done is not None
    usage = cached[-1].done["usage"]
    assert isinstance(usage, dict)
    assert usage["cached_tokens"] == usage["prompt_tokens"] - 1


def test_another_user_reuses_nothing(shared: RunnerClient) -> None:
    ask(shared, FIRST, scope="first")
    assert ask(shared, FIRST, scope="second")[1]["cached_tokens"] == 0
    assert ask(shared, FIRST, scope="second")[1]["cached_tokens"] > 50


def test_jobs_of_one_prompt_side_by_side_say_what_each_says_alone(shared: RunnerClient) -> None:
    prompts = [f"{SYSTEM.content} The capital of {land} is" for land in ("France", "Italy")]
    jobs = [
        Generate(f"p{n}", raw=True, prompt=prompt, sampling=GREEDY, max_tokens=4, scope="side")
        for n, prompt in enumerate(prompts)
    ]
    alone = [text(shared.ask(job)) for job in jobs]
    for job in jobs:
        shared.send(job)
    together = shared.finish(*(job.job for job in jobs))
    assert [text(together[job.job]) for job in jobs] == alone
    assert "Paris" in alone[0]
    assert "Rome" in alone[1]


def test_a_full_cache_of_cells_gives_way_to_jobs() -> None:
    with runner(slots=1, context_tokens=256, cached_prefixes=8) as (client, _):
        words = "coal steam fire iron water smoke " * 20
        for number in range(6):
            prompt = f"{number} {words}"
            done = client.ask(Generate(f"g{number}", prompt=prompt, raw=True, scope="7",
                                       sampling=GREEDY, max_tokens=8))[-1].done  # fmt: skip
            assert done is not None
        counts = cache(client)
        assert counts["evictions"] >= 4
        assert counts["cells"] <= 256


def test_a_conversation_survives_kill_nine(tmp_path: Path) -> None:
    with runner(tmp_path) as (client, loaded):
        assert loaded.kv_bytes > 0
        answer, usage, _ = ask(client, FIRST, keep="talk", max_tokens=40)
        wait_saved(client, 1)
        client.process.send_signal(signal.SIGKILL)
        client.process.wait()
    with runner(tmp_path) as (client, again):
        assert again.fingerprint == loaded.fingerprint
        assert again.saved == {"7": ["talk"]}
        _, restored, _ = ask(client, second(answer), keep="talk")
        assert restored["cached_tokens"] > usage["prompt_tokens"] - 2
        assert cache(client)["restores"] == 1


def test_the_end_of_the_runner_saves_the_last_turn(tmp_path: Path) -> None:
    with runner(tmp_path, state_idle_ms=3_600_000) as (client, _):
        ask(client, FIRST, keep="talk")
    with runner(tmp_path) as (client, _):
        assert ask(client, FIRST, keep="talk")[1]["cached_tokens"] > 50


@pytest.mark.parametrize("at", [-1000, 300, -1])
def test_a_damaged_state_is_ignored_and_removed(tmp_path: Path, at: int) -> None:
    with runner(tmp_path) as (client, _):
        ask(client, FIRST, keep="talk")
    (file,) = tmp_path.iterdir()
    data = bytearray(file.read_bytes())
    data[at] ^= 0xFF
    file.write_bytes(data)
    with runner(tmp_path, state_idle_ms=3_600_000) as (client, _):
        told, usage, _ = ask(client, FIRST, keep="talk")
        assert told
        assert usage["cached_tokens"] == 0
        assert list(tmp_path.iterdir()) == []


def test_forget_takes_cells_and_files(tmp_path: Path) -> None:
    with runner(tmp_path) as (client, _):
        ask(client, FIRST, keep="talk")
        wait_saved(client, 1)
        answer = client.answer(Forget("f", "7", "talk"))
        assert isinstance(answer, Answer)
        assert answer.result == {"dropped": 2}
        assert list(tmp_path.iterdir()) == []
        assert ask(client, FIRST)[1]["cached_tokens"] == 0


def test_a_smaller_context_still_answers_and_remembers_the_disk(tmp_path: Path) -> None:
    with runner(tmp_path) as (client, loaded):
        ask(client, FIRST, keep="talk")
        wait_saved(client, 1)
        answer = client.answer(Resize("r", slots=1, context_tokens=384))
        assert isinstance(answer, Answer), answer
        assert answer.result["slots"] == 1
        assert isinstance(answer.result["kv_bytes"], int)
        assert 0 < answer.result["kv_bytes"] < loaded.kv_bytes
        assert ask(client, FIRST, keep="talk")[1]["cached_tokens"] > 50
        client.send(Generate("long", raw=True, prompt="Once upon a time", max_tokens=300))
        next(client.deltas("long"))
        refused = client.answer(Resize("r2", slots=2, context_tokens=512))
        assert isinstance(refused, Failed)
        assert refused.code == "busy"
        client.cancel("long")
        wrong = client.answer(Resize("r3", slots=0, context_tokens=512))
        assert isinstance(wrong, Failed)


def test_shift_goes_on_past_the_context_and_tells_what_it_dropped() -> None:
    with runner(slots=1, context_tokens=256) as (client, _):
        request = Generate(
            "a", raw=True, prompt="1, 2, 3, 4, 5,", sampling=GREEDY, max_tokens=300, scope="7",
            overflow="shift",
        )  # fmt: skip
        done = client.ask(request)[-1].done
        assert done is not None
        usage = done["usage"]
        assert isinstance(usage, dict)
        assert usage["completion_tokens"] == 300 or done["finish_reason"] == "stop"
        if usage["completion_tokens"] == 300:
            assert done["shifted_tokens"] == 64
        assert cache(client)["entries"] == 0


def test_truncation_leaves_out_the_oldest_turns_and_tells_how_many(shared: RunnerClient) -> None:
    turns = [
        Message(role, f"{number} " + "coal and steam and fire " * 12)
        for number in range(8)
        for role in ("user", "assistant")
    ]
    messages = (SYSTEM, *turns, Message("user", "What is two and two?"))
    (refused,) = shared.ask(Generate("t", messages=messages, sampling=GREEDY))
    assert refused.error is not None
    assert refused.error["code"] == "context-length-exceeded"
    _, usage, done = ask(shared, messages, overflow="truncate-oldest")
    assert usage["prompt_tokens"] <= 512 - 24
    assert isinstance(done["omitted_messages"], int)
    assert done["omitted_messages"] % 2 == 0
    assert isinstance(done["omitted_tokens"], int)
    assert done["omitted_tokens"] > 0
    assert "omitted_messages" not in ask(shared, FIRST, overflow="truncate-oldest")[2]
