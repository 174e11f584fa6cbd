"""Steps: a conversation that the agent keeps, over a restart and over an upgrade.

Asked as a person without rights, through the packaged client library.
"""

from __future__ import annotations

import json
from typing import Any

from tests.system.vm.field import ANSWER_S, USER, Field
from tests.system.vm.report import expect
from tests.system.vm.table import Step

NOTE = "conversation"
_ASK = """
import json
from stoker_client import Stoker

stoker = Stoker()
session = stoker.session({key})
*_, last = session.stream({question!r})
turns = list(session.turns())
print(json.dumps([session.id, len(turns), turns[0]["question"], dict(last.inner("usage"))]))
"""


def _turn(field: Field, key: str, question: str) -> tuple[str, int, str, dict[str, Any]]:
    script = _ASK.format(key=repr(key) if key else "title='field test'", question=question)
    done = field.guest.run(
        ["/usr/bin/python3", "-"], user=USER, stdin=script, timeout_s=ANSWER_S + 60
    ).must(f"ask {question!r} in a conversation")
    found = json.loads(done.out)
    return found[0], found[1], found[2], found[3]


def conversation(field: Field) -> str:
    """Two turns with a restart of everything between them."""
    first = "My name is Ada. " + "I like steam engines and clear mornings. " * 8
    key, turns, _, _ = _turn(field, "", first)
    expect(turns == 1, f"after one turn the agent keeps {turns}")
    field.restart()
    field.ready()
    again, turns, question, usage = _turn(field, key, "Who am I?")
    expect((again, turns, question) == (key, 2, first), f"kept {turns} turns of {again}")
    field.notes[NOTE] = key
    cached = int(usage.get("cached_tokens", 0))
    return f"2 turns; {cached} of {usage.get('prompt_tokens')} tokens were not read again"


def after_upgrade(field: Field) -> str:
    """The same conversation, two package versions later."""
    key, turns, question, _ = _turn(field, field.notes[NOTE], "And now?")
    expect(turns == 3, f"the agent keeps {turns} turns instead of 3")
    expect(question.startswith("My name is Ada."), "its first question is another one")
    field.guest.run(["stokerctl", "sessions", "delete", key], user=USER).must("delete it")
    return "3 turns; deleted by its owner"


STEPS: tuple[Step[Field], ...] = (
    Step("conversation", "a conversation goes on after a restart", conversation, ("configure",)),
)
AFTER_UPGRADE: Step[Field] = Step(
    "conversation-kept", "… and after an upgrade", after_upgrade, ("conversation", "upgrade")
)
