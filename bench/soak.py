"""``make bench NAME=soak``: many apps of some users against one stokerd, with accidents.

Apps cancel, hang up, vanish and are killed; runners are killed and stopped in the middle. At the
end nothing may be lost, mixed or left behind. The echo engine says what each word must be; with
``--engine llama`` greedy answers must be those of a single run, but where the model was undecided.
Users are real ones when root runs this, else all apps are one user's.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import pwd
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import psutil

from bench import soak_report, soak_user
from bench.near_ties import Choice, choices
from bench.runner_client import default_model
from bench.soak_report import Ending, Soak
from stoker.tour import children
from stoker.tour.private_bus import PrivateBus
from stoker_client import Options, Stoker, StokerClientError

SLOTS: Final = 4
GREEDY_TOKENS: Final = 12
RIVALS: Final = 8  # of each token
RESULTS: Final = Path(__file__).resolve().parent / "results" / "soak.json"
QUESTIONS: Final = tuple(
    f"Tell me about {thing}." for thing in ("iron", "rain", "bread", "clocks", "rivers", "wool")
)
_CONFIG: Final = """
[runner]
slots = {slots}
heartbeat_timeout_s = 3.0
stop_timeout_s = 1.0
[restart]
backoff_cap_s = 0.5
crash_limit = 100
[inference]
keep_result_s = 2.0
queue_limit = 64
[models.soak]
path = "{model}"
"""


@dataclass(slots=True)
class User:
    """One user's process; ``base`` is what its killed predecessors reported."""

    number: int
    process: Any
    pipe: Connection
    base: Counter[str] = field(default_factory=Counter)
    now: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)  # by those before, who were killed

    @property
    def sessions_open(self) -> int:
        """Conversations that this process may have made and has not deleted."""
        return self.now["sessions begun"] - self.now["sessions gone"]

    def listen(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while self.pipe.poll():
                counts, faults = self.pipe.recv()
                self.faults = [*self.told, *faults]
                self.now = Counter(counts)


class Run:
    """One soak, from start to judgement."""

    def __init__(self, options: argparse.Namespace, bus: PrivateBus, home: Path) -> None:
        self._options, self._bus, self._home = options, bus, home
        # forked from a process that never spoke D-Bus: GLib's thread does not survive a fork
        self._spawner = multiprocessing.get_context("forkserver")
        self._spawner.set_forkserver_preload(["bench.soak_user", "pydbus", "gi.repository.Gio"])
        self._random = random.Random(options.seed)
        self._texts: dict[str, str] = {}
        self._ties: dict[str, tuple[Choice, ...]] = {}
        self._memory: list[float] = []
        self._runners: dict[int, list[float]] = {}  # by process ID, MB
        self._kills = self._users_killed = self._abandoned = 0
        self._uids = _other_users(options.users) or [-1] * options.users

    def soak(self) -> Soak:
        with self._stokerd() as daemon, Stoker(self._bus.address) as stoker:
            _wait_ready(stoker)
            if self._options.engine == "llama":
                told = {q: greedy(stoker, q, GREEDY_TOKENS) for q in QUESTIONS}
                self._texts = {q: text for q, (text, _) in told.items()}
                self._ties = dict(told.values())
            stoker.ask("warm", max_tokens=4)
            # each once, so that what is opened and begun for good is there
            stoker.session().delete()
            stoker.models()
            stoker.sessions()
            time.sleep(3.0)
            before = daemon.num_fds(), daemon.num_threads()
            until_s = time.monotonic() + self._options.seconds
            users = [self._start(number, until_s) for number in range(self._options.users)]
            self._watch(daemon, stoker, users, until_s)
            for user in users:
                user.process.join(3 * soak_user.PATIENCE_S)
                user.listen()
                if user.process.is_alive():
                    user.faults.append(f"user {user.number} did not come to an end")
                    user.process.kill()
            ending = self._ending(daemon, stoker, before)
        return Soak(
            [user.base + user.now for user in users],
            [fault for user in users for fault in user.faults],
            self._memory, self._rows(ending), self._kills, list(self._runners.values()),
            self._options.seconds, -1 not in self._uids,
        )  # fmt: skip

    @contextlib.contextmanager
    def _stokerd(self) -> Iterator[psutil.Process]:
        model = self._options.model if self._options.engine == "llama" else "/dev/null"
        config = self._home / "stoker.toml"
        config.write_text(_CONFIG.format(slots=SLOTS, model=model))
        where = {
            "bus": self._bus.address, "config": config, "engine": self._options.engine,
            "state-dir": self._home / "state", "runtime-dir": self._home / "run",
        }  # fmt: skip
        command = [sys.executable, "-m", "stoker.main"]
        command += [f"--{name}={value}" for name, value in where.items()]
        with (self._home / "log").open("wb") as log:
            process = children.start(command, stderr=log)
        try:
            yield psutil.Process(process.pid)
        finally:
            children.stop(process, 30.0)

    def _start(self, number: int, until_s: float) -> User:
        ours, theirs = self._spawner.Pipe(duplex=False)
        plan = soak_user.Plan(
            self._bus.address, self._uids[number], number,
            self._options.apps // self._options.users, self._random.randrange(1 << 30), until_s,
            self._texts, self._ties, GREEDY_TOKENS,
        )  # fmt: skip
        process = self._spawner.Process(target=soak_user.main, args=(plan, theirs), daemon=True)
        process.start()
        theirs.close()
        return User(number, process, ours)

    def _watch(
        self, daemon: psutil.Process, stoker: Stoker, users: list[User], until_s: float
    ) -> None:
        """Listens, measures and causes accidents until the time is over."""
        next_runner_s = next_user_s = time.monotonic() + self._options.kill_every_s
        next_user_s += self._options.kill_every_s * 2
        while (now_s := time.monotonic()) < until_s:
            time.sleep(0.5)
            self._weigh(daemon)
            for user in users:
                user.listen()
            if now_s > next_runner_s:
                self._hurt_runner(stoker)
                next_runner_s = now_s + self._options.kill_every_s * self._random.uniform(0.5, 1.5)
            if now_s > next_user_s and until_s - now_s > 5:
                self._kill_user(users, until_s)
                next_user_s = now_s + self._options.kill_every_s * 3

    def _weigh(self, daemon: psutil.Process) -> None:
        """stokerd, and the runner that lives now."""
        self._memory.append(daemon.memory_info().rss / 1e6)
        for child in daemon.children():
            with contextlib.suppress(psutil.Error):  # it has just gone
                self._runners.setdefault(child.pid, []).append(child.memory_info().rss / 1e6)

    def _hurt_runner(self, stoker: Stoker) -> None:
        with contextlib.suppress(psutil.Error, StokerClientError):
            runner = psutil.Process(int(stoker.status()["runner_pid"]))
            runner.send_signal(
                self._random.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP))
            )
            self._kills += 1

    def _kill_user(self, users: list[User], until_s: float) -> None:
        """All apps of a user at once, in turns: each loses the same."""
        index = self._users_killed % len(users)
        old = users[index]
        old.process.kill()
        old.process.join()
        old.listen()
        self._abandoned += old.sessions_open
        fresh = self._start(index, until_s)
        fresh.base, fresh.told = old.base + old.now, old.faults
        fresh.faults = list(old.faults)
        users[index] = fresh
        self._users_killed += 1
        self._kills += 1

    def _ending(self, daemon: psutil.Process, stoker: Stoker, before: tuple[int, int]) -> Ending:
        """Everybody has gone; what is kept for a while has time to go too."""
        _wait_ready(stoker)
        free = _free_slots(stoker, self._options.engine)
        end_s = time.monotonic() + 20.0
        while time.monotonic() < end_s:
            time.sleep(0.5)
            status = stoker.status()
            quiet = not status["queue_depth"] and not status["active_jobs"]
            if quiet and daemon.num_fds() <= before[0] and daemon.num_threads() <= before[1]:
                break
        listed = len(stoker.sessions())
        faults = [
            line for line in (self._home / "log").read_text(errors="replace").splitlines()
            if "Traceback" in line or "fault in" in line or line.startswith("CRITICAL")
        ]  # fmt: skip
        return Ending(
            queue=int(status["queue_depth"]), active=int(status["active_jobs"]),
            files=(before[0], daemon.num_fds()), threads=(before[1], daemon.num_threads()),
            free_slots=free, slots=SLOTS, sessions_left=listed, log_faults=tuple(faults[:5]),
        )  # fmt: skip

    def _rows(self, ending: Ending) -> Ending:
        """The database when stokerd has closed it. A killed app leaves its conversation, which
        is no leak: it is listed, and its time to live ends it."""
        with contextlib.closing(sqlite3.connect(self._home / "state" / "sessions.db")) as base:
            sessions = base.execute("SELECT count(*) FROM sessions").fetchone()[0]
            loose = base.execute(
                "SELECT count(*) FROM turns WHERE state = 'open'"
                " OR session NOT IN (SELECT id FROM sessions)"
            ).fetchone()[0]
        return replace(
            ending,
            sessions_left=max(0, ending.sessions_left - self._abandoned),
            rows_left=loose + max(0, sessions - ending.sessions_left),
        )


def _other_users(count: int) -> list[int]:
    """User ids that are not ours, if we may become them: dbus-daemon knows only those that the
    system knows, and every system has some for services."""
    known = sorted({entry.pw_uid for entry in pwd.getpwall()} - {0})
    return known[:count] if os.geteuid() == 0 and len(known) >= count else []


def greedy(stoker: Stoker, question: str, tokens: int) -> tuple[str, tuple[Choice, ...]]:
    """Alone on the machine: the text, and how near other tokens were."""
    text, rows = "", list[dict[str, Any]]()
    options: Options = {"temperature": 0.0, "max_tokens": tokens, "reasoning": False}
    options |= {"logprobs": RIVALS}
    with stoker.stream(question, **options) as stream:
        for record in stream:
            text += record.text
            found = record.data.get("lp")
            rows += found if isinstance(found, list) else ()
    return text.strip(), choices(rows)


def _free_slots(stoker: Stoker, engine: str) -> int:
    """How many jobs get their first word while none of them has ended."""
    prompt = "!slow 50 " + "w " * 190 if engine == "echo" else "Count to a thousand."
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(stoker.stream(prompt, max_tokens=180)) for _ in range(SLOTS)]
        found = 0
        for stream in streams:
            if stream.wait(20.0) and next(stream).kind in ("text", "progress"):
                found += 1
        return found


def _wait_ready(stoker: Stoker) -> None:
    end_s = time.monotonic() + 90.0
    while time.monotonic() < end_s:
        with contextlib.suppress(StokerClientError):
            if stoker.load_state()[0] == "ready":
                return
        time.sleep(0.1)
    raise SystemExit("cannot soak: stokerd is not ready")


def keep(path: Path, rows: Mapping[str, object]) -> None:
    """Beside those of the other engine, whose keys begin otherwise."""
    known: dict[str, object] = {}
    if path.exists():
        known = json.loads(path.read_text(encoding="utf-8"))["metrics"]
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"metrics": {**known, **rows}}, indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--engine", choices=("echo", "llama"), default="echo")
    parser.add_argument("--model", type=Path, default=default_model())
    parser.add_argument("--apps", type=int, default=24)
    parser.add_argument("--users", type=int, default=6)
    parser.add_argument("--kill-every-s", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    with PrivateBus() as bus, tempfile.TemporaryDirectory() as folder:
        soak = Run(options, bus, Path(folder)).soak()
    keep(options.output, soak_report.metrics(soak, options.engine))
    wrong = soak_report.wrong(soak)
    if options.json:
        facts = {"wrong": wrong, "jain": soak.fairness, "users": soak.users}
        print(json.dumps(facts))
    else:
        print("\n".join([*soak_report.lines(soak), *(f"WRONG: {text}" for text in wrong)]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
