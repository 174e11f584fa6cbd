"""What ``chat`` remembers, and what a typed line means. Does no I/O.

Without a session the messages stay on this side; with one the agent keeps them, and only
the question that waits for its answer is here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

HELP: Final = """\
/help          this text
/reset         forget the conversation
/system TEXT   how to behave from now on (alone: show it)
/quit          leave (or Ctrl-D)
Ctrl-C         stop an answer"""


@dataclass(frozen=True, slots=True)
class Say:
    """Print this; nothing is asked."""

    text: str


@dataclass(frozen=True, slots=True)
class Ask:
    """Send the conversation, which now ends with the person's words."""


@dataclass(frozen=True, slots=True)
class Leave:
    """End the program."""


@dataclass(slots=True)
class Conversation:
    system: str = ""
    turns: list[dict[str, str]] = field(default_factory=list)
    kept: bool = False
    sent_system: str = ""  # what the agent's session has

    @property
    def question(self) -> str:
        """The words that wait for an answer."""
        return self.turns[-1]["content"]

    def take(self, line: str) -> Say | Ask | Leave | None:
        """What to do with a typed line; None = nothing. ``//`` asks with one slash."""
        line = line.strip()
        if not line:
            return None
        if line.startswith("/") and not line.startswith("//"):
            return self._command(line)
        self.turns.append({"role": "user", "content": line.removeprefix("/")})
        return Ask()

    def messages(self) -> list[dict[str, str]]:
        head = [{"role": "system", "content": self.system}] if self.system else []
        return head + self.turns

    def answered(self, text: str) -> None:
        """Keep the answer, even a part of one; no answer at all takes the question back."""
        if self.kept:
            self.turns.clear()
        elif text:
            self.turns.append({"role": "assistant", "content": text})
        elif self.turns and self.turns[-1]["role"] == "user":
            self.turns.pop()

    def _command(self, line: str) -> Say | Leave:
        word, _, rest = line.partition(" ")
        match word:
            case "/help" | "/?":
                return Say(HELP)
            case "/reset" if self.kept:
                return Say("The agent keeps this one: leave, and stokerctl chat --new.")
            case "/reset":
                self.turns.clear()
                return Say("Forgotten.")
            case "/system" if not rest.strip():
                return Say(self.system or "No system message is set.")
            case "/system":
                self.system = rest.strip()
                return Say("Set.")
            case "/quit" | "/exit" | "/q":
                return Leave()
        return Say(f"There is no {word}. /help shows the commands.")
