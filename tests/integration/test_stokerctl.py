"""stokerctl and the client as processes against the real doors over fake services."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.integration.conftest import Spawn
from tests.integration.stokerctl_rig import COMMAND, Typed, ctl

from stoker.events.inference import JobClass
from stoker.tour.private_bus import PrivateBus
from stoker_client import Stoker, StokerClientError

pytestmark = pytest.mark.bus
Env = dict[str, str]


@pytest.fixture
def env(child_env: Env, session_bus: PrivateBus, fake_server: object) -> Env:
    return {**child_env, "STOKER_BUS_ADDRESS": session_bus.address}


@pytest.fixture
def stoker(session_bus: PrivateBus, fake_server: object) -> Stoker:
    return Stoker(session_bus.address)


def test_the_client_asks_and_streams(stoker: Stoker) -> None:
    assert stoker.ask("one two").split() == ["one", "two"]
    with stoker.stream([{"role": "user", "content": "one two"}]) as stream:
        kinds = [record.kind for record in stream]
    assert kinds == ["text", "text", "done"]


def test_every_option_reaches_the_service(stoker: Stoker) -> None:
    said = stoker.ask(
        "describe",
        system="be brief", model="m", reasoning=False, max_tokens=5, seed=7, top_k=3,
        temperature=0.5, top_p=0.25, min_p=0.125, repeat_penalty=1.5, stop=["a", "b"],
        deadline_s=2.5, job_class="background", grammar='root ::= "x"', logprobs=3,
        tools=[{"function": {"name": "f"}}], lora={"a": 0.5},
        frequency_penalty=0.75,
    )  # fmt: skip
    found = json.loads(said)
    ask = found["ask"]
    system = ask["messages"][0]
    assert (system["role"], system["content"]) == ("system", "be brief")
    assert (ask["model"], ask["reasoning"], ask["max_tokens"]) == ("m", False, 5)
    assert ask["stop"] == ["a", "b"]
    assert found["delivery"] == {
        "format": "ndjson", "deadline_s": 2.5, "job_class": JobClass.BACKGROUND
    }  # fmt: skip
    sampling = ask["sampling"]
    numbers = {"seed": 7, "top_k": 3, "temperature": 0.5, "top_p": 0.25, "min_p": 0.125}
    numbers["frequency_penalty"] = 0.75
    assert {key: sampling[key] for key in numbers} == numbers
    shape = ask["shape"]
    assert (shape["grammar"], shape["logprobs"]) == ('root ::= "x"', 3)
    assert json.loads(shape["tools"]) == [{"function": {"name": "f"}}]
    assert shape["adapters"] == [{"name": "a", "scale": 0.5}]


def test_closing_a_stream_cancels_its_job(stoker: Stoker) -> None:
    stream = stoker.stream("hold")
    assert next(stream).text == "holding"
    assert stoker.status()["active_jobs"] == 1
    stream.close()
    _until_idle(stoker)


def test_facts_have_plain_types(stoker: Stoker) -> None:
    assert stoker.status()["model"] == "fake"
    assert [model["name"] for model in stoker.models()] == ["fake", "broken"]
    assert (stoker.tokenize("ab"), stoker.count_tokens("ab")) == ([97, 98], 2)
    thermal = stoker.thermal()
    assert (thermal["wall_c"], thermal["cap_khz"], thermal["state"]) == (75.0, 1_500_000, "ok")
    assert thermal["caps_khz"] == {"policy0": 1_500_000}
    assert stoker.load_state()[0] == "ready"
    placement = stoker.realtime()
    assert (placement["level"], placement["locked_bytes"], placement["notes"]) == (
        "cpuset", 4096, ["note"],
    )  # fmt: skip
    assert [item["name"] for item in stoker.discover_heat()] == ["cpu", "package-0"]


def test_heat_and_placement_are_shown(env: Env) -> None:
    found = ctl(env, "thermal", "discover")
    assert (found.returncode, found.stderr) == (0, "")
    assert "cannot read /sys/z: EACCES\n  grant does it" in found.stdout
    assert json.loads(ctl(env, "--json", "thermal", "discover").stdout)[0]["use"] == "holds policy0"
    shown = ctl(env, "rt")
    assert "cpuset: chosen CPUs, shared with others (2-3)" in shown.stdout
    assert "other, nice -10" in shown.stdout
    assert json.loads(ctl(env, "--json", "rt", "show").stdout)["reason"] == "told so"


@pytest.mark.parametrize("code", ["busy", "throttled", "context-length-exceeded"])
def test_refusals_keep_code_and_details(stoker: Stoker, code: str) -> None:
    with pytest.raises(StokerClientError) as caught:
        stoker.ask(f"refuse {code}")
    assert caught.value.code == code
    assert caught.value.details == {"retry_after_ms": 7}


def test_ask_prints_the_answer_alone(env: Env) -> None:
    done = ctl(env, "ask", "one", "two")
    assert (done.returncode, done.stdout, done.stderr) == (0, "one two \n", "")


def test_standard_input_is_added_below_the_words(env: Env) -> None:
    done = ctl(env, "ask", "describe this", stdin="line 1\nline 2\n")
    assert done.stdout.split() == ["describe", "this", "line", "1", "line", "2"]
    assert ctl(env, "ask", "words", stdin="in").stdout == "words in \n"
    assert ctl(env, "ask", "--no-stdin", "words", stdin="in").stdout == "words \n"
    assert ctl(env, "ask", stdin="in\n").stdout == "in \n"
    assert ctl(env, "ask", "-", stdin="in\n").stdout == "in \n"
    assert "there is no question" in ctl(env, "ask", "-", stdin="").stderr


def test_ask_reads_a_file_of_any_size(env: Env, tmp_path: Path) -> None:
    file = tmp_path / "report"
    file.write_text("word " * 300_000)  # more than a D-Bus message may have here
    done = ctl(env, "ask", "-f", str(file), "sum", "up:", stdin="not this")
    assert done.stdout.split() == ["sum", "up:", *["word"] * 300_000]
    file.write_bytes(b"\xff")
    assert "byte 0 is not UTF-8" in ctl(env, "ask", "--file", str(file)).stderr
    missing = ctl(env, "ask", "-f", str(tmp_path / "none"))
    assert (missing.returncode, missing.stdout) == (64, "")
    assert "none: No such file" in missing.stderr


def test_input_that_is_not_text_is_refused(env: Env) -> None:
    done = subprocess.run(
        [*COMMAND, "ask", "x"],
        env=env,
        input=b"\xff\xfe",
        check=False,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 64
    assert b"not UTF-8" in done.stderr
    assert ctl(env, "ask").returncode == 64


def test_json_of_ask_is_the_stream_itself(env: Env) -> None:
    done = ctl(env, "--json", "ask", "one two")
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert [next(iter(record)) for record in records] == ["t", "t", "done"]
    assert done.returncode == 0


def test_an_error_in_the_middle_has_its_status(env: Env) -> None:
    done = ctl(env, "ask", "break engine-failed")
    assert (done.returncode, done.stdout) == (76, "first\n")
    assert done.stderr == "stokerctl: cannot finish job: engine-failed\n"
    done = ctl(env, "ask", "--json", "break deadline-exceeded")
    assert done.returncode == 124
    assert json.loads(done.stdout.splitlines()[-1])["error"]["code"] == "deadline-exceeded"


def test_a_wrong_option_value_is_told_by_the_agent(env: Env) -> None:
    done = ctl(env, "ask", "--temperature", "99", "x")
    assert done.returncode == 64
    assert "temperature" in done.stderr


@pytest.mark.parametrize("verb", ["status", "models", "thermal", "version"])
def test_one_object_for_programs_and_lines_for_people(env: Env, verb: str) -> None:
    more = ["--agent"] if verb == "version" else []
    as_json = ctl(env, "--json", verb, *more)
    assert as_json.returncode == 0
    assert json.loads(as_json.stdout)
    lines = ctl(env, verb, *more)
    assert lines.returncode == 0
    assert len(lines.stdout.splitlines()) >= 2
    assert "\x1b" not in lines.stdout


def test_tokens_counts_words_or_standard_input(env: Env) -> None:
    assert ctl(env, "tokens", "abc").stdout == "3\n"
    assert ctl(env, "tokens", "--ids", stdin="ab").stdout == "2\n97 98\n"
    assert json.loads(ctl(env, "--json", "tokens", "--ids", "ab").stdout) == {
        "count": 2,
        "ids": [97, 98],
    }


def test_administrators_reload_and_restart(env: Env, private_bus: PrivateBus, spawn: Spawn) -> None:
    spawn("tests.fakes.dbus_server", private_bus.address, ready="ready")
    own = {**env, "STOKER_BUS_ADDRESS": private_bus.address}
    assert "daemon.bus" in ctl(own, "reload").stdout
    assert ctl(own, "restart-runner").returncode == 0
    assert Stoker(private_bus.address).status()["runner_restarts"] == 1


def test_ctrl_c_cancels_and_leaves_quietly(env: Env, stoker: Stoker) -> None:
    child = subprocess.Popen(
        [*COMMAND, "ask", "hold"],
        env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout is not None
    assert os.read(child.stdout.fileno(), 100) == b"holding"
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=10)
    assert (child.returncode, out, err) == (130, b"\n", b"")
    _until_idle(stoker)


def test_a_reader_that_goes_away_cancels(env: Env, stoker: Stoker) -> None:
    script = '"$@" ask "$WORDS" | head -c 10; exit "${PIPESTATUS[0]}"'
    many = " ".join(["word"] * 20000)
    done = subprocess.run(
        ["bash", "-c", script, "bash", *COMMAND],
        env={**env, "WORDS": many}, stdin=subprocess.DEVNULL, capture_output=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (141, b"word word ", b"")
    _until_idle(stoker)


def test_help_into_a_closed_pipe_is_quiet(env: Env) -> None:
    script = '"$@" --help | true; exit "${PIPESTATUS[0]}"'
    done = subprocess.run(
        ["bash", "-c", script, "bash", *COMMAND],
        env=env,
        check=False,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode in (0, 141)
    assert done.stderr == b""


@pytest.mark.parametrize(
    ("redirect", "status", "said"),
    [("> /dev/full", 74, "cannot write the output"), (">&-", 0, ""), (">&- 2>&-", 0, "")],
)
@pytest.mark.parametrize("verb", ["ask one two", "status"])
def test_output_that_cannot_be_written(
    env: Env, verb: str, redirect: str, status: int, said: str
) -> None:
    done = subprocess.run(
        ["bash", "-c", f'"$@" {verb} {redirect}', "bash", *COMMAND],
        env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == status
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_small_alphabet_is_no_reason_to_fail(env: Env) -> None:
    done = ctl({**env, "PYTHONIOENCODING": "ascii"}, "status")
    assert done.returncode == 0
    assert "51.5 ?C" in done.stdout


def test_without_an_agent_it_says_how_to_get_one(child_env: Env, private_bus: PrivateBus) -> None:
    done = ctl(child_env, "--bus", private_bus.address, "ask", "x")
    assert (done.returncode, done.stdout) == (69, "")
    for part in ("systemctl start stoker", "journalctl -u stoker", "make run"):
        assert part in done.stderr
    assert "Traceback" not in done.stderr
    done = ctl(child_env, "--bus", "unix:path=/nonexistent/bus", "--json", "status")
    assert done.returncode == 69
    assert json.loads(done.stdout)["error"]["code"] == "unavailable"


def test_an_agent_that_dies_in_the_middle(env: Env, private_bus: PrivateBus, spawn: Spawn) -> None:
    server = spawn("tests.fakes.dbus_server", private_bus.address, ready="ready")
    child = subprocess.Popen(
        [*COMMAND, "--bus", private_bus.address, "ask", "hold"],
        env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout is not None
    os.read(child.stdout.fileno(), 100)
    server.kill()
    _, err = child.communicate(timeout=10)
    assert child.returncode == 76
    assert b"the service died" in err


def test_a_silent_agent_does_not_hold_ctrl_c(
    env: Env, private_bus: PrivateBus, spawn: Spawn
) -> None:
    server = spawn("tests.fakes.dbus_server", private_bus.address, ready="ready")
    server.send_signal(signal.SIGSTOP)
    child = subprocess.Popen(
        [*COMMAND, "--bus", private_bus.address, "status"], env=env, stderr=subprocess.PIPE
    )
    time.sleep(0.4)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=5)
    server.kill()
    assert (child.returncode, err) == (130, b"")


def test_chat_reads_lines_from_a_pipe(env: Env) -> None:
    done = ctl(env, "chat", stdin="one two\n/reset\nthree\n/quit\nnever\n")
    assert (done.returncode, done.stdout) == (0, "one two \nForgotten.\nthree \n")
    assert ctl(env, "chat", stdin="break engine-failed\nnever\n").returncode == 76


def test_chat_at_a_terminal(env: Env, stoker: Stoker) -> None:
    with Typed(env, *COMMAND, "chat") as typed:
        typed.see("fake — /help")
        typed.see("> ")
        typed.enter("one two\n")
        typed.see("\none two \n.*> ")
        typed.enter("hold\n")
        typed.see("holding")
        typed.enter("\x03")
        typed.see(r"\(stopped\)\n.*> ")
        _until_idle(stoker)
        typed.enter("refuse busy\n")
        typed.see("stokerctl: cannot take job.*> ")
        typed.enter("half a line")
        typed.see("half a line")
        time.sleep(0.2)  # Python's readline misses a signal in the instant before it waits
        typed.enter("\x03")
        typed.see("> ")
        typed.enter("\x04")
        assert typed.end() == 0
        assert "Traceback" not in typed.text()


def _until_idle(stoker: Stoker) -> None:
    end = time.monotonic() + 5
    while stoker.status()["active_jobs"]:
        assert time.monotonic() < end, "the job was not cancelled"
        time.sleep(0.02)
