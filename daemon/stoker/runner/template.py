"""Renders chat messages with the model's own template, in a sandbox with limits.

A template comes out of a model file, so it is hostile: immutable sandbox, bounded
source, output, time and memory. No files, no attribute tricks.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn

import jinja2
from jinja2 import meta
from jinja2.ext import loopcontrols
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


class ChatTemplate:
    """One compiled template. ``bos`` and ``eos`` are the model's own marker texts."""

    def __init__(self, source: str, *, bos: str = "", eos: str = "") -> None:
        """Raises ModelUnavailable when the source is too large or does not compile."""
        if len(source.encode("utf-8", "replace")) > MAX_SOURCE_BYTES:
            raise ModelUnavailable(
                f"cannot use the chat template: it is over {MAX_SOURCE_BYTES} bytes"
            )
        self._markers = {"bos_token": bos, "eos_token": eos}
        self._thinks = CLOSE in source
        self._taught = tool_forms.of_template(source)
        try:
            with bounded(cpu_s=MAX_CPU_S, memory_bytes=MAX_MEMORY_BYTES):
                environment = _environment()
                self._asks = meta.find_undeclared_variables(environment.parse(source))
                self._template = environment.from_string(source)
        except (jinja2.TemplateError, RecursionError, ValueError, OutOfBoundsError) as error:
            raise ModelUnavailable(f"cannot use the chat template: {error}") from error

    @property
    def tool_form(self) -> tool_forms.Form:
        """How this model writes calls."""
        return self._taught if "tools" in self._asks else tool_forms.HERMES

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
            messages, tools = tool_prompt.spelled_out(messages, tools), ()
        values: dict[str, object] = {
            **self._markers,
            "messages": tool_prompt.for_template(messages, self.tool_form),
            "add_generation_prompt": True,
            "tools": list(tools) or None,
            **({} if thinking else {"enable_thinking": False}),
            "documents": None,
            "strftime_now": lambda form: now.strftime(str(form)[:200]),
        }
        try:
            with bounded(cpu_s=cpu_s, memory_bytes=MAX_MEMORY_BYTES):
                return _join(self._template.generate(values))
        except (jinja2.TemplateError, OutOfBoundsError, RecursionError) as error:
            raise _refuse(str(error)) from error
        except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
            raise _refuse(f"{type(error).__name__}: {error}") from error


def _environment() -> _Sandbox:
    environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    for name in ("center", "format", "indent", "pprint", "random", "wordwrap", "xmlattr"):
        environment.filters.pop(name, None)
    environment.filters["tojson"] = _tojson
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
    if indent is not None and not 0 <= indent <= 16:
        raise OutOfBoundsError("an indent of more than 16")
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
