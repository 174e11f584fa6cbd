"""What the update engine can say, the agent can say too: one code, one class on each side."""

from __future__ import annotations

import pytest

from stoker import errors
from stoker.services.update_engine import typed
from stoker_ota import errors as ota

ONLY_AUTHORS = {"bad-gguf", "delta-too-large"}
"""Codes of the build host."""


@pytest.mark.parametrize("cls", ota.all_errors(), ids=lambda cls: cls.code)
def test_an_error_of_the_engine_keeps_its_code(cls: type[ota.OtaError]) -> None:
    with pytest.raises(errors.StokerError) as caught, typed():
        raise cls("cannot do it: no", hint="do that", details={"free": 3})
    expected = "internal" if cls.code in ONLY_AUTHORS else cls.code
    assert caught.value.code == expected
    assert (caught.value.hint, caught.value.details) == ("do that", {"free": 3})
    assert caught.value.retryable == cls.retryable
