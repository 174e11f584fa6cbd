"""What Status and ListModels tell of the memory of the model in use."""

from __future__ import annotations

from stoker.api.inference import memory_use
from stoker.events.inference import MemoryUse
from stoker.units import Bytes

USE = MemoryUse(2048, 2, "q8_0", Bytes(5), Bytes(7), "2 slots instead of 4")


def test_nothing_is_told_of_a_model_that_was_not_planned() -> None:
    assert memory_use(None) == {}


def test_a_list_has_its_context_already_and_status_has_not() -> None:
    listed, whole = memory_use(USE), memory_use(USE, whole=True)
    assert listed["expected_bytes"] == ("t", 7)
    assert "context_tokens" not in listed
    assert whole == listed | {"context_tokens": ("u", 2048)}
