"""Renders chat messages with the model's own template, in a sandbox with limits.

A template comes out of a model file, so it is hostile: immutable sandbox, bounded
source, output, time and memory. No files, no attribute tricks.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NoReturn

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import do_indent
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from stoker.errors import InvalidRequest, ModelUnavailable
from stoker.events.prompt import Message
from stoker.runner import tool_forms, tool_prompt
from stoker.runner.bounds import OutOfBoundsError, bounded
from stoker.runner.reasoning import CLOSE, OPEN, opened_by

MAX_SOURCE_BYTES: Final = 256 * 1024
MAX_OUTPUT_CHARS: Final = 16 * 1024 * 1024
MAX_CPU_S: Final = 3.0
MAX_MEMORY_BYTES: Final = 256 * 1024 * 1024
MAX_INDENT: Final = 16
CHATML: Final = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
# one call of these runs in C, where no timer reaches: "x".ljust(10**9), 9**9**9
_AMPLIFIERS: Final = frozenset(
    {"center", "expandtabs", "format", "format_map", "ljust", "rjust", "translate", "zfill"}
)


class _Sandbox(ImmutableSandboxedEnvironment):
    """Refuses, on top of jinja's own rules, what makes huge values in one call."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**":
            raise OutOfBoundsError("powers are not allowed")
        if operator == "%" and isinstance(left, str):
            raise OutOfBoundsError("formatting with % is not allowed")
        if operator == "*" and _bits(left) + _bits(right) > 256:
            raise OutOfBoundsError("a number or repetition is too large")
        return super().call_binop(context, operator, left, right)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, str) and attr in _AMPLIFIERS:
            return False
        return super().is_safe_attribute(obj, attr, value)


class _Generation(Extension):
    """``{% generation %}`` marks what training counts; here it is as if it were not there."""

    tags = {"generation"}  # noqa: RUF012  # as jinja declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """One compiled template. ``bos`` and ``eos`` are the model's own marker texts.

    ``tool_use`` is the model's second template, for requests with tools.
    """

    def __init__(
        self, source: str, *, bos: str = "", eos: str = "", tool_use: ChatTemplate | None = None
    ) -> None:
        """Raises ModelUnavailable when the source is too large or does not compile."""
        if len(source.encode("utf-8", "replace")) > MAX_SOURCE_BYTES:
            raise ModelUnavailable(
                f"cannot use the chat template: it is over {MAX_SOURCE_BYTES} bytes"
            )
        self._markers = {"bos_token": bos, "eos_token": eos}
        self._thinks = CLOSE in source
        self._tool_use = tool_use
        self._knows_calls = "tool_calls" in source
        try:
            with bounded(cpu_s=MAX_CPU_S, memory_bytes=MAX_MEMORY_BYTES):
                environment = _environment()
                self._asks = meta.find_undeclared_variables(environment.parse(source))
                self._template = environment.from_string(source)
            knows_tools = "tools" in self._asks
            self._form = tool_forms.of_template(source, knows_tools=knows_tools)
        except (jinja2.TemplateError, RecursionError, ValueError, OutOfBoundsError) as error:
            raise ModelUnavailable(f"cannot use the chat template: {error}") from error

    @property
    def tool_form(self) -> tool_forms.Form:
        """How this model writes calls."""
        return self._tool_use.tool_form if self._tool_use else self._form

    def render(
        self,
        messages: Sequence[Message],
        *,
        now: datetime.datetime,
        cpu_s: float = MAX_CPU_S,
        tools: str = "",
        thinking: bool = True,
    ) -> str:
        """The prompt text, ready for the assistant's turn; raises InvalidRequest.

        ``thinking`` false: by the template's own switch, else with an empty thought.
        """
        if tools and self._tool_use:
            return self._tool_use.render(
                messages, now=now, cpu_s=cpu_s, tools=tools, thinking=thinking
            )
        text = self._render(messages, tool_prompt.read_tools(tools), now, cpu_s, thinking)
        if thinking or "enable_thinking" in self._asks:
            return text
        if opened_by(text[-256:]):
            return f"{text.rstrip()}\n\n{CLOSE}\n\n"
        return f"{text}{OPEN}\n\n{CLOSE}\n\n" if self._thinks else text

    def _render(
        self,
        messages: Sequence[Message],
        tools: Sequence[object],
        now: datetime.datetime,
        cpu_s: float,
        thinking: bool,
    ) -> str:
        if "tools" not in self._asks:
            spell = tool_prompt.told if self._writes_calls else tool_prompt.spelled_out
            messages, tools = spell(messages, tools, self._form), ()
        values: dict[str, object] = {
            **self._markers,
            "add_generation_prompt": True,
            # some ask whether there are any, some go through them whatever they are
            **({"tools": list(tools)} if tools else {}),
            **({} if thinking else {"enable_thinking": False}),
            "documents": None,
            "strftime_now": lambda form: now.strftime(str(form)[:200]),
        }
        try:
            return self._generate(messages, values, cpu_s)
        except jinja2.TemplateError as error:
            folded = tool_prompt.folded(messages)
            if folded == list(messages):
                raise _refuse(str(error)) from error
            try:
                return self._generate(folded, values, cpu_s)
            except jinja2.TemplateError:
                raise _refuse(str(error)) from error

    @property
    def _writes_calls(self) -> bool:
        """It shows no tools, but calls in its model's own form."""
        return self._knows_calls and self._form.start == tool_forms.DEEPSEEK.start

    def _generate(
        self, messages: Sequence[Message], values: dict[str, object], cpu_s: float
    ) -> str:
        """Raises InvalidRequest, and TemplateError where the template itself refuses."""
        told = tool_prompt.for_template(messages, self._form)
        try:
            with bounded(cpu_s=cpu_s, memory_bytes=MAX_MEMORY_BYTES):
                return _join(self._template.generate({**values, "messages": told}))
        except (OutOfBoundsError, RecursionError) as error:
            raise _refuse(str(error)) from error
        except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
            raise _refuse(f"{type(error).__name__}: {error}") from error


def _environment() -> _Sandbox:
    extensions = [loopcontrols, _Generation]
    environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
    for name in ("center", "format", "pprint", "random", "wordwrap", "xmlattr"):
        environment.filters.pop(name, None)
    environment.filters["tojson"] = _tojson
    environment.filters["indent"] = _indent
    environment.globals.pop("lipsum", None)
    environment.globals["raise_exception"] = _raise
    return environment


def _join(pieces: Iterable[str]) -> str:
    out: list[str] = []
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > MAX_OUTPUT_CHARS:
            raise OutOfBoundsError(f"it makes more than {MAX_OUTPUT_CHARS} characters")
        out.append(piece)
    return "".join(out)


def _refuse(reason: str) -> InvalidRequest:
    return InvalidRequest(
        f"cannot render messages: the model's chat template: {reason}"[:2000],
        details={"path": "messages"},
    )


def _raise(message: object = "refused") -> NoReturn:
    raise jinja2.TemplateError(str(message)[:1000])


def _bits(value: object) -> int:
    """How much a factor of ``*`` may blow up the other one; lists and texts weigh most."""
    if isinstance(value, int):
        return min(value.bit_length(), 1024)
    return 246 if isinstance(value, str | bytes | list | tuple) else 0


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As templates from Hugging Face expect it: plain JSON, not escaped for HTML."""
    if indent is not None and not 0 <= indent <= MAX_INDENT:
        raise OutOfBoundsError(f"an indent of more than {MAX_INDENT}")
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
        sort_keys=sort_keys, default=_listed,
    )  # fmt: skip


def _listed(value: object) -> list[object]:
    """``map`` and ``select`` give generators; the limits of time and memory hold in here too."""
    if isinstance(value, Iterator):
        return list(value)
    raise TypeError(f"{type(value).__name__} is no JSON")


def _indent(text: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    if (len(width) if isinstance(width, str) else width) > MAX_INDENT:
        raise OutOfBoundsError(f"an indent of more than {MAX_INDENT}")
    return do_indent(text, width, first, blank)
