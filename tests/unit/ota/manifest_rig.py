"""A manifest that parses, to be changed by tests."""

from __future__ import annotations

import json


def manifest_value(**changes: object) -> dict[str, object]:
    value: dict[str, object] = {
        "schema": 1,
        "deployment_id": "chat",
        "version": 1,
        "issued_at": "2026-01-02T00:00:00Z",
        "expires": "2026-03-01T00:00:00Z",
        "artifacts": [
            {
                "kind": "model", "name": "smollm2", "version": "1.1", "release_counter": 3,
                "size": 1000, "sha256": "ab" * 32, "full": ["file:objects/ab"],
            }
        ],
    }  # fmt: skip
    return {**value, **changes}


def manifest_payload(**changes: object) -> bytes:
    return json.dumps(manifest_value(**changes)).encode()
