"""What the tour shows of the agent: board, model, answers, a killed runner, what next."""

from __future__ import annotations

import os
import signal
import time
from typing import Final

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from stoker.cli import screens
from stoker.cli.terminal import Terminal
from stoker.errors import EngineFailed
from stoker.tour import stage
from stoker.tour.screen import Screen
from stoker_client import Stoker, StokerClientError

_LONG: Final = "Tell a long story about a stoker who keeps an engine burning."
_BUSCTL: Final = ("org.stoker.Agent1", "/org/stoker/Agent1", "org.stoker.Inference1")


class Guide:
    """The steps, over one client and one screen. Each raises when what it shows is not true."""

    def __init__(self, screen: Screen, stoker: Stoker, question: str, story: str = _LONG) -> None:
        self._screen = screen
        self._stoker = stoker
        self._question = question
        self._story = story  # whatever makes the engine talk for long

    def board(self) -> None:
        facts = self._stoker.thermal()
        for line in screens.thermal(facts, Terminal(colour=False)):
            self._screen.say("  " + line)
        if not facts.get("sensors"):
            self._screen.say("  No temperature sensor here (a virtual machine?).", "yellow")
        if not facts.get("policies"):
            self._screen.say("  No cpufreq here: the loop can watch, but slow nothing.", "yellow")
        if facts["state"] in ("watching", "blind"):
            self._screen.say("  Step 6 shows the loop at work on a simulated board.", "dim")

    def loading(self) -> None:
        started = time.monotonic()
        columns = (TextColumn("  {task.description}"), BarColumn(), TaskProgressColumn())
        with Progress(*columns, TimeElapsedColumn(), console=self._screen.console) as progress:
            task = progress.add_task("loading the model", total=1.0)
            self._stoker.wait_ready(
                on_progress=lambda _state, share: progress.update(task, completed=share)
            )
            progress.update(task, completed=1.0)
        status = self._stoker.status()
        memory = screens.size(int(status.get("runner_memory_bytes", 0)))
        self._screen.fact("model", str(status.get("model", "")))
        self._screen.fact("engine", f"{status.get('engine', '')} {status.get('library', '')}")
        self._screen.fact("runner", f"pid {status.get('runner_pid', 0)}, {memory}")
        self._screen.fact(
            "note", "very small and often wrong; stokerd --model FILE serves any GGUF"
        )
        self._screen.fact("ready", f"{time.monotonic() - started:.1f} s after we looked")

    def ask(self) -> None:
        screen = self._screen
        screen.say("A second terminal can do the same while this runs, after these lines:", "dim")
        self._along("dim")
        dashes = ["--"] if self._question.startswith("-") else []
        _need(screen.run(["stokerctl", "ask", *dashes, self._question], 300), "stokerctl")

    def buses(self) -> None:
        """The same question with the tools that every system has."""
        address, question = self._stoker.address, self._question
        self._screen.say("Any program that speaks D-Bus can ask. With systemd's tool:")
        busctl = ["busctl", f"--address={address}", "--timeout=300", "call", "--"]
        _need(self._screen.run([*busctl, *_BUSCTL, "Ask", "s", question], 300), "busctl")
        self._screen.say("And with GLib's:")
        gdbus = ["gdbus", "call", "--address", address, "--timeout", "300"]
        gdbus += ["--dest", _BUSCTL[0], "--object-path", _BUSCTL[1]]
        gdbus += ["--method", f"{_BUSCTL[2]}.Ask", _gvariant(question)]
        _need(self._screen.run(gdbus, 300), "gdbus")

    def killed(self) -> None:
        """SIGKILL in the middle of an answer: a typed error, then a new answer."""
        screen = self._screen
        pid = int(self._stoker.status().get("runner_pid", 0))
        if pid <= 1:
            raise EngineFailed("cannot find the runner: the agent names no pid")
        screen.say(f"The model lives in a process of its own, pid {pid}. We ask for a long story,")
        screen.say("and kill that process while it answers:")
        error, killed_at = self._break(pid)
        screen.say(f"\n  the caller is told: {error.code}: {error.message}", "yellow")
        screen.say(f"Now a new question, at once: {self._question}")
        first_at = self._ask_until_answered()
        status = self._stoker.status()
        if int(status.get("runner_pid", 0)) in (0, pid):
            raise EngineFailed("cannot see a new runner: the agent still names the old one")
        screen.fact("recovery", f"{first_at - killed_at:.2f} s from SIGKILL to the first new word")
        screen.fact("runner", f"pid {status['runner_pid']} instead of {pid}")

    def next(self) -> None:
        say = self._screen.say
        say("In a second terminal, first (the bus ends with the chat; without a chat, now):")
        self._along("")
        say("Talk with it:          stokerctl chat")
        say("See how it is:         stokerctl status     stokerctl thermal")
        say("From Python:           from stoker_client import Stoker")
        say("                       for piece in Stoker().stream('Why is the sky blue?'):")
        say("                           print(piece.text, end='', flush=True)")
        say("From anything else:    docs/examples/ (busctl, gdbus, pydbus, dbus-fast, C)")
        say("Read on:               README.md, docs/, man docs/man/stokerctl.1")
        say("Check all of it:       make test")

    def _along(self, style: str) -> None:
        """stokerctl is on no other shell's PATH, and no other one knows this bus."""
        for line in stage.along(self._stoker.address):
            self._screen.say(f"    {line}", style)

    def _break(self, pid: int) -> tuple[StokerClientError, float]:
        """Kill the runner after a few words; the error its caller gets, and when it was."""
        killed_at, words = 0.0, 0
        try:
            with self._stoker.stream(self._story, max_tokens=1024) as stream:
                for record in stream:
                    self._screen.write(record.text)
                    words += bool(record.text)
                    if words >= 12 and not killed_at:
                        self._screen.say("")
                        self._screen.command(["kill", "-9", str(pid)])
                        os.kill(pid, signal.SIGKILL)
                        killed_at = time.monotonic()
        except StokerClientError as error:
            if killed_at:
                return error, killed_at
            raise
        raise EngineFailed("cannot show a killed runner: the answer ended before or in spite of it")

    def _ask_until_answered(self) -> float:
        """When the first word of a new answer came. The step's deadline bounds the tries."""
        while True:
            first_at = 0.0
            try:
                with self._stoker.stream(self._question, max_tokens=64) as stream:
                    for record in stream:
                        if record.text and not first_at:
                            first_at = time.monotonic()
                            self._screen.write("  ")
                        self._screen.write(record.text)
            except StokerClientError as error:
                if not error.retryable:
                    raise
                self._screen.say(f"  (not yet: {error.code})", "dim")
                time.sleep(0.05)
                continue
            self._screen.say("")
            return first_at or time.monotonic()


def _need(status: int, program: str) -> None:
    if status:
        raise EngineFailed(f"cannot show {program}: it ended with status {status}")


def _gvariant(text: str) -> str:
    """gdbus reads arguments as GVariant text; what looks like a string or an option needs it."""
    if text[:1] in "\"'-" or not text:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return text
