"""The schemas of the OpenAPI document: requests as they are read, answers as they are made."""

from __future__ import annotations

from typing import Any, Final

Json = dict[str, Any]
_NULL: Final = "null"


def _type(kind: str, **more: Any) -> Json:
    return {"type": [kind, _NULL], **more}


def _object(required: tuple[str, ...] = (), **properties: Json) -> Json:
    found: Json = {"type": "object", "properties": properties}
    if required:
        found["required"] = list(required)
    return found


def _list(items: Json, **more: Any) -> Json:
    return {"type": "array", "items": items, **more}


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


_TEXT: Final[Json] = {"type": "string"}
_SOME_TEXT: Final[Json] = {"type": "string", "minLength": 1}
_COUNT: Final[Json] = {"type": "integer", "minimum": 0}
_END: Final[Json] = {**_SOME_TEXT, "maxLength": 256, "description": "at most 256 bytes"}
_STOP: Final[Json] = {"anyOf": [_END, _list(_END, maxItems=16), {"type": _NULL}]}
_NAME: Final[Json] = {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,64}$"}

_TOKENS: Final = _type(
    "integer", minimum=1, maximum=2**31 - 1, description="at most the device's max_tokens_limit"
)

_SETTINGS: Final[Json] = {
    "model": _type("string", description="a name of /v1/models; absent = the one in use"),
    "max_tokens": _TOKENS,
    "temperature": _type("number", minimum=0, maximum=5),
    "top_p": _type("number", minimum=0, maximum=1),
    "min_p": _type("number", minimum=0, maximum=1),
    "top_k": _type("integer", minimum=0, maximum=1_000_000),
    "repeat_penalty": _type("number", minimum=0.1, maximum=10),
    "frequency_penalty": _type("number", minimum=-2, maximum=2),
    "presence_penalty": _type("number", minimum=-2, maximum=2),
    "seed": _type(
        "integer", minimum=-(2**63), maximum=2**63 - 1, description="choice i of n gets seed + i"
    ),
    "stop": _STOP,
    "stream": _type("boolean"),
    "stream_options": _type("object", properties={"include_usage": _type("boolean")}),
    "n": _type("integer", minimum=1, maximum=16),
    "service_tier": _type(
        "string", description="flex = background, default = normal, priority = interactive"
    ),
    "grammar": _type("string", description="GBNF"),
    "reasoning_tokens": _type(
        "integer", minimum=-1, maximum=2**20, description="then thinking ends; -1 = free"
    ),
    "overflow": {"enum": ["", "error", "truncate-oldest", "shift", None]},
    "lora": _type(
        "object",
        additionalProperties={"type": "number", "minimum": -16, "maximum": 16},
        maxProperties=8,
    ),
}

_PART: Final = _object(
    ("type",),
    type={"enum": ["text", "input_text", "output_text", "refusal"]},
    text=_type("string"),
)
_MADE_CALL: Final = _object(
    ("function",),
    function=_object(("name",), name=_TEXT, arguments={"type": ["string", "object"]}),
)


def _message(role: Json, calls: Json) -> Json:
    return _object(
        ("role",),
        role=role,
        content={"anyOf": [_TEXT, _list(_PART), {"type": _NULL}]},
        tool_calls=calls,
        tool_call_id=_type("string"),
        name=_type("string"),
    )


_MESSAGE: Final[Json] = {
    "anyOf": [
        _message({"const": "assistant"}, _type("array", items=_MADE_CALL, maxItems=64)),
        _message(
            {"enum": ["system", "developer", "user", "tool", "function"]},
            _type("array", maxItems=0),
        ),
    ]
}
_FORMAT: Final[Json] = {
    "anyOf": [
        _object(("type",), type={"enum": ["text", "json_object"]}),
        _object(
            ("type", "json_schema"),
            type={"const": "json_schema"},
            json_schema=_object(schema={"type": ["object", "boolean"]}),
        ),
        {"type": _NULL},
    ]
}
_TOOL: Final = _object(
    ("function",),
    type={"const": "function"},
    function=_object(("name",), name=_NAME, parameters={"type": "object"}),
)
_LOGPROBS: Final[Json] = {"type": ["object", _NULL]}
_REASON: Final[Json] = {"enum": ["stop", "length", "tool_calls"]}
_CALL: Final = _object(
    ("id", "type", "function"),
    id=_TEXT,
    type={"const": "function"},
    function=_object(("name", "arguments"), name=_TEXT, arguments=_TEXT),
)
_ANSWER_MESSAGE: Final = _object(
    ("role", "content"),
    role={"const": "assistant"},
    content=_type("string"),
    reasoning_content=_TEXT,
    tool_calls=_list(_CALL),
)

_CHOSEN: Final = _object(("function",), function=_object(("name",), name=_SOME_TEXT))


def _answer(kind: str, **choice: Json) -> Json:
    needed = ("index", "finish_reason", *choice)
    one = _object(needed, index=_COUNT, finish_reason=_REASON, logprobs=_LOGPROBS, **choice)
    return _object(
        ("id", "object", "created", "model", "choices", "usage"),
        id=_TEXT,
        object={"const": kind},
        created=_COUNT,
        model=_TEXT,
        choices=_list(one),
        usage=_ref("Usage"),
    )


SCHEMAS: Final[Json] = {
    "ChatRequest": _object(
        ("messages",),
        messages=_list(_MESSAGE, minItems=1, maxItems=1024),
        **_SETTINGS,
        max_completion_tokens=_TOKENS,
        logprobs=_type("boolean"),
        top_logprobs=_type("integer", minimum=0, maximum=20),
        response_format=_FORMAT,
        tools=_type("array", items=_TOOL, maxItems=128),
        tool_choice={
            "anyOf": [_TEXT, _CHOSEN, {"type": _NULL}],
            "description": "auto, none, required or the name of one of tools",
        },
    ),
    "CompletionRequest": _object(
        ("prompt",),
        prompt={"anyOf": [_SOME_TEXT, _list(_SOME_TEXT, minItems=1, maxItems=16)]},
        **_SETTINGS,
        logprobs=_type("integer", minimum=0, maximum=20),
        echo=_type("boolean"),
    ),
    "EmbeddingRequest": _object(
        ("input",),
        input={"anyOf": [_SOME_TEXT, _list(_SOME_TEXT, minItems=1, maxItems=2048)]},
        model=_type("string"),
        encoding_format={"enum": ["float", "base64", None]},
        dimensions=_type(
            "integer", minimum=1, maximum=2**20, description="must be what the model has"
        ),
    ),
    "ChatAnswer": _answer("chat.completion", message=_ANSWER_MESSAGE),
    "CompletionAnswer": _answer("text_completion", text=_TEXT),
    "EmbeddingAnswer": _object(
        ("object", "data", "model", "usage"),
        object={"const": "list"},
        data=_list(
            _object(
                ("object", "index", "embedding"),
                object={"const": "embedding"},
                index=_COUNT,
                embedding={"anyOf": [_list({"type": "number"}), _TEXT]},
            )
        ),
        model=_TEXT,
        usage=_object(("prompt_tokens", "total_tokens"), prompt_tokens=_COUNT, total_tokens=_COUNT),
    ),
    "Usage": _object(
        ("prompt_tokens", "completion_tokens", "total_tokens"),
        prompt_tokens=_COUNT,
        completion_tokens=_COUNT,
        total_tokens=_COUNT,
        prompt_tokens_details=_object(cached_tokens=_COUNT),
    ),
    "Model": _object(
        ("id", "object", "created", "owned_by"),
        id=_TEXT,
        object={"const": "model"},
        created=_COUNT,
        owned_by=_TEXT,
        aliases=_list(_TEXT),
        state=_TEXT,
        description=_TEXT,
        context_tokens=_COUNT,
    ),
    "ModelList": _object(("object", "data"), object={"const": "list"}, data=_list(_ref("Model"))),
    "Health": _object(
        ("status",), status={"const": "ok"}, model=_TEXT, queue_depth=_COUNT, active_jobs=_COUNT
    ),
    "Document": {"type": "object"},
    "Problem": _object(
        ("type", "title", "status", "detail", "error"),
        type=_TEXT,
        title=_TEXT,
        status={"type": "integer"},
        detail=_TEXT,
        instance=_TEXT,
        hint=_TEXT,
        error=_object(
            ("message", "type", "param", "code"),
            message=_TEXT,
            type=_TEXT,
            param=_type("string"),
            code=_TEXT,
        ),
    ),
}
