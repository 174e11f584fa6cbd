"""Recipes: the documented one, and what is refused before anything is signed."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from stoker_ota.cli.recipe_words import EXAMPLE
from stoker_ota.core import manifest, recipe
from stoker_ota.core.recipe import Measured, MeasuredDelta
from stoker_ota.errors import BadDocument, OtaError

SHA = {name: digit * 64 for name, digit in (("v2.gguf", "a"), ("terse-lora.gguf", "b"))}
FILES = {name: Measured(10, sha) for name, sha in SHA.items()}
DELTA = MeasuredDelta(5, "c" * 64, "d" * 64, "e" * 64, SHA["v2.gguf"])
TIMES = {"issued_at": "2026-01-31T12:00:00Z", "expires": "2026-04-30T12:00:00Z"}


def _payload(text: str = EXAMPLE) -> bytes:
    value = {**tomllib.loads(text), **TIMES}
    return recipe.payload(recipe.parse(value), FILES, {"v1-v2.delta": DELTA})


def test_the_documented_recipe_makes_a_manifest_that_a_device_reads() -> None:
    found = manifest.parse_manifest(_payload())
    assert found.roles == ("release",)
    assert [item.kind for item in found.artifacts] == ["model", "adapter"]
    assert found.artifacts[1].base_sha256 == SHA["v2.gguf"]
    assert found.health.canaries[0].expect == ("Paris",)
    assert found.targets.labels == {"ring": "canary"}
    assert _payload() == _payload()


def test_the_page_shows_it() -> None:
    root = Path(__file__).parents[3]
    assert EXAMPLE in (root / "docs/ota.md").read_text()


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('base = "v2.gguf"', "", "must name the model"),
        ('kind = "adapter"', 'kind = "model"', "at most one model"),
        ('name = "terse"', 'name = "chat"', "one name"),
        ('name = "terse"', 'name = "set.json"', "cannot be a name"),
        ('expect = ["Paris"]', "expect = []", "must name what"),
        ('expect = ["Paris"]', 'expect = [""]', "must name what"),
        ("soak_s = 600", "soke_s = 600", "did you mean soak_s"),
        ("version = 2 ", "version = 0 ", "outside"),
        ('["file:blobs/{sha256}"]', '["ftp://a/b"]', "no file:, https: or mqtt:"),
        ('["file:blobs/{sha256}"]', '["https://[/x"]', "Invalid IPv6"),
        ('["file:blobs/{sha256}"]', '["https://user:word@a/x"]', "must not hold a password"),
        ('["file:blobs/{sha256}"]', '["https:///x"]', "no https address"),
        ('["file:blobs/{sha256}"]', '["https://a/{sha25}"]', "not of {sha256}"),
    ],
)
def test_what_a_device_refuses_is_never_published(old: str, new: str, reason: str) -> None:
    assert old in EXAMPLE
    with pytest.raises(BadDocument, match=reason):
        _payload(EXAMPLE.replace(old, new))


def test_two_policies_and_a_runtime_s_folder_s_name_are_refused() -> None:
    def artifacts(*kinds: tuple[str, str]) -> bytes:
        head = 'deployment_id = "x"\nversion = 1\n'
        return _payload(
            head
            + "".join(
                f'[[artifacts]]\nkind = "{kind}"\nname = "{name}"\nversion = "1"\n'
                'file = "v2.gguf"\n'
                for kind, name in kinds
            )
        )

    with pytest.raises(OtaError, match="at most one policy"):
        artifacts(("policy", "a"), ("policy", "b"))
    with pytest.raises(OtaError, match="cannot be a name"):
        artifacts(("runtime", "rt"), ("model", "rt.d"))
    assert manifest.parse_manifest(artifacts(("policy", "a"))).roles == ("policy",)
