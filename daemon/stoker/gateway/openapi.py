"""The OpenAPI 3.1 document of the door. Pure: made from small tables, printed by --openapi.

It tells what is accepted and what comes back; schemathesis holds the door to it.
"""

from __future__ import annotations

from typing import Any, Final

from stoker import __version__
from stoker.gateway import schemas

Json = dict[str, Any]

_ERRORS: Final[dict[str, str]] = {
    "400": "The request is wrong; a prompt that is too long says context_length_exceeded.",
    "401": "A bearer token is needed.",
    "403": "Not allowed: a class above your own, or a web page that may not ask.",
    "404": "No such model.",
    "408": "The request's body, or the reader of the answer, was too slow.",
    "413": "The body is too large.",
    "415": "The body is neither JSON nor msgpack.",
    "421": "The Host header is not one of ours.",
    "429": "Your quota is used up; Retry-After says for how long.",
    "499": "Somebody cancelled the job.",
    "500": "A fault of ours.",
    "502": "The engine died; ask again.",
    "503": "Busy, loading, or too hot; Retry-After may say for how long.",
    "504": "The deadline passed.",
    "507": "No room to store what must be stored.",
}
_READING: Final = ("401", "403", "421", "500", "502", "503", "504")


def document() -> Json:
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Stoker's REST door",
            "version": __version__,
            "description": "The language model of this device, as OpenAI's clients speak it. "
            "Bodies and answers may be application/msgpack instead of JSON.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "http://127.0.0.1:8470"}],
        "security": [{}, {"bearer": []}],
        "paths": _paths(),
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": schemas.SCHEMAS,
            "responses": {
                f"Problem{status}": {
                    "description": text,
                    "content": _content("Problem", "application/problem+json"),
                }
                for status, text in _ERRORS.items()
            },
        },
    }


def _paths() -> Json:
    return {
        "/v1/chat/completions": _post(
            "createChatCompletion", "Answer a conversation", "ChatRequest", "ChatAnswer", True
        ),
        "/v1/completions": _post(
            "createCompletion", "Continue a text, without the model's chat template",
            "CompletionRequest", "CompletionAnswer", True,
        ),
        "/v1/embeddings": _post(
            "createEmbedding", "A vector for each text", "EmbeddingRequest", "EmbeddingAnswer",
            False,
        ),
        "/v1/models": _get("listModels", "The models that may be asked", "ModelList"),
        "/v1/models/{model}": {
            **_get("retrieveModel", "One of them", "Model", "404"),
            "parameters": [
                {"name": "model", "in": "path", "required": True,
                 "schema": {"type": "string", "minLength": 1}},
            ],
        },
        "/health": _get("health", "Whether an answer can be had now", "Health"),
        "/openapi.json": _get("openapi", "This document", "Document"),
    }  # fmt: skip


def _post(name: str, summary: str, body: str, answer: str, streams: bool) -> Json:
    content = _content(answer)
    if streams:
        content["text/event-stream"] = {
            "schema": {
                "type": "object",
                "required": ["data"],
                "properties": {"data": {"type": "string"}},
            },
        }
    return {
        "post": {
            "operationId": name,
            "summary": summary,
            "requestBody": {"required": True, "content": _content(body)},
            "responses": _responses(content, _ERRORS),
        }
    }


def _get(name: str, summary: str, answer: str, *errors: str) -> Json:
    return {
        "get": {
            "operationId": name,
            "summary": summary,
            "responses": _responses(_content(answer), (*_READING, *errors)),
        }
    }


def _responses(content: Json, errors: Any) -> Json:
    found: Json = {"200": {"description": "The answer.", "content": content}}
    for status in sorted(errors):
        found[status] = {"$ref": f"#/components/responses/Problem{status}"}
    return found


def _content(schema: str, media_type: str = "application/json") -> Json:
    reference = {"schema": {"$ref": f"#/components/schemas/{schema}"}}
    return {media_type: reference, "application/msgpack": reference}
