"""What a request asks of its answer beyond sampling: grammar, tools, likelihoods, reasoning.

One for each job that asks for any of it; other jobs do without and pay nothing. It is asked
once a token and talks to the engine and the job; it never sees a batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from stoker.errors import InvalidRequest
from stoker.events.prompt import NO_BUDGET, NO_LOGPROBS, Shape
from stoker.events.runner import Delta, Generate
from stoker.runner import gbnf, reasoning, schema, tool_forms, tool_prompt, tool_tags
from stoker.runner.gather import joined
from stoker.runner.grammar_rules import Grammar
from stoker.runner.tool_forms import Form

if TYPE_CHECKING:
    from stoker.runner.engine import Engine
    from stoker.runner.jobs import Job

MAX_LOGPROBS: Final = 20
END_OF_THINKING: Final = f"\n{reasoning.CLOSE}\n\n"
PLAIN: Final = Shape()

Acting = tuple[tuple[str, float], ...]


def adapters_key(shape: Shape, keys: Mapping[str, str]) -> Acting:
    """Which adapters act, in one order; () = the model alone. Jobs of one key may share a step."""
    acting = (item for item in shape.adapters if item.scale)
    return tuple(sorted((keys.get(item.name, item.name), item.scale) for item in acting))


@dataclass(slots=True)
class Shaping:
    """``offered`` are the tools (name → schema) when calls are to be taken out of the text."""

    grammar: Grammar | None = None
    logprobs: int = NO_LOGPROBS
    budget: int = NO_BUDGET
    form: Form | None = None
    offered: Mapping[str, object] = field(default_factory=dict)
    _bound: bool = field(default=False)
    _forced: bool = field(default=False)

    def begin(self, engine: Engine, job: Job) -> None:
        """The job has a sequence. Reasoning is free: the grammar begins with the answer."""
        if self.grammar is not None and not job.thinking:
            engine.constrain(job.seq, self.grammar)
            self._bound = True

    def taken(self, engine: Engine, job: Job, token: int, now_s: float) -> Delta:
        """The job takes a sampled token; what goes out of it."""
        piece = engine.piece(token)
        if piece is None and job.thinking and self.grammar is not None and not self._forced:
            forced = self._end_thought(engine, job)  # an answer is owed
            if forced is not None:
                self.begin(engine, job)
                return forced
        answering = not job.thinking
        told = None
        if self.logprobs >= 0 and answering and piece is not None:
            told = {"content": [_chances(engine, job.seq, token, self.logprobs)]}
        last = self._bound and piece is not None and engine.exhausted(job.seq)
        delta = job.take(token, piece, now_s, last=last)
        if told is not None and (answering and not job.thinking):
            delta = replace(delta, lp=told)
        if delta.done is not None:
            return delta
        more = self._stop_thinking(engine, job)
        if self.grammar is not None and not self._bound and not job.thinking:
            self.begin(engine, job)
        return delta if more is None else joined(delta, more)

    def _stop_thinking(self, engine: Engine, job: Job) -> Delta | None:
        over = 0 <= self.budget <= job.reasoning_tokens
        if not (over and job.thinking) or self._forced:
            return None
        return self._end_thought(engine, job)

    def _end_thought(self, engine: Engine, job: Job) -> Delta | None:
        """None when the context has no room for it."""
        self._forced = True
        tokens = engine.tokenize(END_OF_THINKING, special=True)
        return job.force([(token, engine.piece(token) or b"") for token in tokens])


def of(request: Generate, engine: Engine) -> Shaping | None:
    """None for a plain request. Raises InvalidRequest and GrammarInvalid."""
    shape = request.shape
    if shape == PLAIN:
        return None
    if shape.logprobs > MAX_LOGPROBS:
        raise _wrong("logprobs", f"{shape.logprobs} is more than {MAX_LOGPROBS}")
    if shape.schema and shape.grammar:
        raise _wrong("grammar", "give a schema or a grammar, not both")
    known = engine.adapters().reasons() if shape.adapters else {}
    for item in shape.adapters:
        if known.get(item.name, "unknown") or not math.isfinite(item.scale):
            reason = known.get(item.name) or f"this model has {', '.join(known) or 'none'}"
            raise _wrong(f"lora.{item.name}"[:80], f"cannot be used: {reason}")
    if replace(shape, adapters=()) == PLAIN:
        return None
    tools = tool_prompt.read_tools(shape.tools)
    calling = bool(tools) and shape.tool_choice != "none"
    form = engine.tool_form() if calling else None
    offered = tool_prompt.functions(tools) if calling else {}
    grammar = _grammar(shape)
    if calling and shape.tool_choice != "auto":
        if grammar is not None:
            raise _wrong("tool_choice", "a call that must be made leaves no place for a schema")
        assert form is not None
        grammar = calls_grammar(form, offered, shape.tool_choice)
    return Shaping(grammar, shape.logprobs, shape.reasoning_tokens, form, offered)


def calls_grammar(form: Form, offered: dict[str, object], choice: str) -> Grammar:
    """Calls of any tool (``required``), or of the one that is named."""
    if choice != "required":
        if choice not in offered:
            raise _wrong("tool_choice", f"there is no tool {choice!r}")
        offered = {choice: offered[choice]}
    made = [schema.Rules(parameters, f"t{n}r") for n, parameters in enumerate(offered.values())]
    visit = tool_tags.arguments if form is tool_forms.TAGS else _json_arguments
    calls = [
        (name, visit(rules, parameters, f"tools.{name}.parameters"))
        for (name, parameters), rules in zip(offered.items(), made, strict=True)
    ]
    text = schema.document(tool_forms.write(form, calls), made)
    return gbnf.parse(text, max_bytes=gbnf.MAX_MADE_BYTES)


def _json_arguments(rules: schema.Rules, parameters: object, path: str) -> str:
    return rules.visit(parameters, path, 0)


def _grammar(shape: Shape) -> Grammar | None:
    if shape.grammar:
        return gbnf.parse(shape.grammar)
    if shape.schema:
        return gbnf.parse(schema.to_gbnf(shape.schema), max_bytes=gbnf.MAX_MADE_BYTES)
    return None


def _chances(engine: Engine, seq: int, token: int, top: int) -> dict[str, object]:
    own, others = engine.chances(seq, token, top)
    return {
        **_said(engine, token, own),
        "top_logprobs": [_said(engine, number, value) for number, value in others],
    }


def _said(engine: Engine, token: int, logprob: float) -> dict[str, object]:
    piece = engine.piece(token) or b""
    return {
        "token": piece.decode("utf-8", "replace"),
        "logprob": round(max(logprob, -9999.0), 6),
        "bytes": list(piece),
    }


def _wrong(path: str, reason: str) -> InvalidRequest:
    return InvalidRequest(f"cannot generate: {path}: {reason}", details={"path": path})
