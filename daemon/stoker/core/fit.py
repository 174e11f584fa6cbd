"""What of a model fits this device: context, slots, cache and key-value type, or a refusal.

Pure. What the configuration leaves open is chosen; what must give way does so in one order
(cache, parked slots, context, key-value type, slots) and is said. Never more is promised
than ``core.memory_size`` expects to fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from stoker.core import memory_size
from stoker.core.memory_size import KV_TYPES, Parts, Shape
from stoker.events.memory import MemoryFacts
from stoker.events.model_facts import ModelFacts

DEFAULT_CONTEXT: Final = 4096
LEAST_CONTEXT: Final = 256  # llama.cpp makes none smaller
STEP: Final = 256


@dataclass(frozen=True, slots=True)
class Wishes:
    """As configured. ``context_tokens`` 0 and ``kv_type`` "auto" leave the choice to us."""

    model: str = ""
    context_tokens: int = 0
    slots: int = 4
    parked_slots: int = 1
    cached_prefixes: int = 0
    cache_tokens: int = 0
    kv_type: str = "auto"
    batch_tokens: int = 512
    flash_attention: str = "auto"
    mmap: bool = True
    mlock: bool = False
    least_context: int = 1024
    reserve_bytes: int = 0  # left to everybody else
    state_bytes: int = 0  # most bytes of conversations saved to disk; 0 = none is
    adapter_bytes: int = 0  # of its adapters' files, which are read into memory whole
    mode: str = "auto"  # auto | strict (as wished or not at all) | off (as wished, unchecked)

    @property
    def beside_bytes(self) -> int:
        """What the model itself does not get."""
        return self.reserve_bytes + self.adapter_bytes


@dataclass(frozen=True, slots=True)
class Plan:
    """What to load. ``said`` tells what gave way, each in a few words."""

    context_tokens: int
    slots: int
    parked_slots: int
    cached_prefixes: int
    cache_tokens: int
    kv_type: str
    parts: Parts
    said: tuple[str, ...] = ()

    @property
    def cells(self) -> int:
        return self.context_tokens * (self.slots + self.parked_slots) + self.cache_tokens

    def text(self) -> str:
        more = f" + {self.parked_slots} parked" if self.parked_slots else ""
        return (
            f"{self.slots}{more} slots of {self.context_tokens} tokens, {self.kv_type} keys and "
            f"values: {amount(self.parts.total)}"
        )


@dataclass(frozen=True, slots=True)
class Refusal:
    reason: str
    hint: str
    needed_bytes: int
    available_bytes: int


def plan(facts: ModelFacts, memory: MemoryFacts, wishes: Wishes) -> Plan | Refusal:
    """The best that fits, or why nothing does. The first wish that fits wins."""
    wanted = _wanted(facts, wishes)
    if wishes.mode == "off":
        return wanted
    free = memory.available_bytes - wishes.beside_bytes
    if wanted.parts.total <= free:
        return wanted
    if wishes.mode == "auto":
        for choice in _choices(facts, wishes, wanted, free):
            return replace(choice, said=_differences(wanted, choice))
    return _refusal(facts, memory, wishes, wanted)


@dataclass(frozen=True, slots=True)
class Shortage:
    """A model that is not here yet fits in no way. ``hopeless``: not into this device at all."""

    needed_bytes: int
    available_bytes: int  # with what the model in use would give back
    hopeless: bool = False


def shortage(
    file_bytes: int, memory: MemoryFacts, *, beside_bytes: int, reserve_bytes: int, held_bytes: int
) -> Shortage | None:
    """Of a file of which only the size is known; None = it may fit. ``beside_bytes``: of its
    adapters; ``held_bytes``: what ends with the model in use, which then gives way. Counted so
    that it never refuses what ``plan`` would take; that has the last word.
    """
    needed = memory_size.least_bytes(file_bytes) + beside_bytes
    total = memory.total_bytes or needed
    free = min(max(0, memory.available_bytes - reserve_bytes) + held_bytes, total)
    if needed <= free:
        return None
    return Shortage(needed, free, hopeless=needed > total)


def smaller(facts: ModelFacts, wishes: Wishes, now: Plan) -> Plan | None:
    """The next step down under memory pressure: about half the cells; None at the bottom.

    An explicit context stays what it is; slots give way instead. The type stays too: a
    context is made anew, a model is not loaded anew.
    """
    least = _least(facts, wishes)
    together = now.slots + now.parked_slots
    target = max(now.cells // 2, least)
    if now.cache_tokens or now.parked_slots:
        bare = _with(facts, wishes, now, parked_slots=0, cache_tokens=0)
        if bare.cells <= target:
            return bare
        now = bare
    context = max(least, min(now.context_tokens, target // now.slots // STEP * STEP))
    if wishes.context_tokens:
        context = now.context_tokens
    slots = max(1, min(now.slots, target // context))
    after = _with(facts, wishes, now, context_tokens=context, slots=slots)
    unchanged = (now.context_tokens, together) == (after.context_tokens, after.slots)
    return None if unchanged else after


def amount(count: float) -> str:
    """Bytes for people: "1.9 GiB", "377 MiB"."""
    gib = count / (1 << 30)
    return f"{gib:.1f} GiB" if gib >= 1 else f"{count / (1 << 20):.0f} MiB"


def shape(wishes: Wishes, chosen: Plan) -> Shape:
    """The context the runner makes of a plan; one sequence more is for scoring."""
    return Shape(
        cells=chosen.cells,
        sequences=chosen.slots + chosen.parked_slots + chosen.cached_prefixes + 1,
        kv_type=chosen.kv_type,
        batch_tokens=wishes.batch_tokens,
        flash_attention=wishes.flash_attention != "off",
        mmap=wishes.mmap,
        saved_tokens=chosen.context_tokens if wishes.state_bytes else 0,
        saved_bytes=wishes.state_bytes,
    )


def _wanted(facts: ModelFacts, wishes: Wishes) -> Plan:
    bare = Plan(
        context_tokens=_context(facts, wishes),
        slots=wishes.slots,
        parked_slots=wishes.parked_slots,
        cached_prefixes=wishes.cached_prefixes,
        cache_tokens=wishes.cache_tokens,
        kv_type="f16" if wishes.kv_type == "auto" else wishes.kv_type,
        parts=Parts(0, 0, 0, 0, 0),
    )
    return _with(facts, wishes, bare)


def _context(facts: ModelFacts, wishes: Wishes) -> int:
    """As the runner's loader reads it: never beyond what the model was trained for."""
    wanted = wishes.context_tokens or min(
        facts.training_context or DEFAULT_CONTEXT, DEFAULT_CONTEXT
    )
    trained = facts.training_context
    return max(LEAST_CONTEXT, min(wanted, trained) if trained else wanted)


def _least(facts: ModelFacts, wishes: Wishes) -> int:
    if wishes.context_tokens:
        return _context(facts, wishes)
    return max(LEAST_CONTEXT, min(wishes.least_context, _context(facts, wishes)))


def _with(facts: ModelFacts, wishes: Wishes, chosen: Plan, **changes: object) -> Plan:
    changed = replace(chosen, **changes)  # type: ignore[arg-type]
    return replace(changed, parts=memory_size.parts(facts, shape(wishes, changed)))


def _choices(facts: ModelFacts, wishes: Wishes, wanted: Plan, free: int) -> Iterator[Plan]:
    """What fits, the dearest sacrifice last."""

    def fits(choice: Plan) -> bool:
        return choice.parts.total <= free

    for tokens in (wanted.cache_tokens // 2, 0):
        choice = _with(facts, wishes, wanted, cache_tokens=tokens)
        if fits(choice):
            yield choice
    bare = _with(facts, wishes, wanted, cache_tokens=0)
    for parked in range(wanted.parked_slots - 1, -1, -1):
        choice = _with(facts, wishes, bare, parked_slots=parked)
        if fits(choice):
            yield choice
    bare = _with(facts, wishes, bare, parked_slots=0)
    least = _least(facts, wishes)
    kinds = _kinds(facts, wishes)
    for slots in range(wanted.slots, 0, -1):
        for kind in kinds if slots == wanted.slots else kinds[-1:]:
            base = _with(facts, wishes, bare, slots=slots, kv_type=kind)
            yield from _longest(facts, wishes, base, least, free)


def _longest(
    facts: ModelFacts, wishes: Wishes, base: Plan, least: int, free: int
) -> Iterator[Plan]:
    """The plan with the longest context that fits, if one of ``least`` does."""
    low = _with(facts, wishes, base, context_tokens=least)
    if low.parts.total > free:
        return
    floor, ceiling = least // STEP, base.context_tokens // STEP
    best = low
    while floor < ceiling:
        middle = (floor + ceiling + 1) // 2
        choice = _with(facts, wishes, base, context_tokens=middle * STEP)
        if choice.parts.total <= free:
            floor, best = middle, choice
        else:
            ceiling = middle - 1
    full = _with(facts, wishes, base)
    yield full if full.parts.total <= free else best


def _kinds(facts: ModelFacts, wishes: Wishes) -> tuple[str, ...]:
    if wishes.kv_type != "auto":
        return (wishes.kv_type,)
    if wishes.flash_attention == "off":  # llama.cpp keeps no quantised values without it
        return ("f16",)
    return tuple(kind for kind in KV_TYPES if memory_size.fits_type(facts, kind))


def _differences(wanted: Plan, chosen: Plan) -> tuple[str, ...]:
    names = (
        ("cache_tokens", "cached prefixes: {} instead of {} tokens"),
        ("parked_slots", "{} of {} parked slots"),
        ("context_tokens", "a context of {} tokens instead of {}"),
        ("kv_type", "{} keys and values instead of {}"),
        ("slots", "{} of {} slots"),
    )
    return tuple(
        text.format(getattr(chosen, name), getattr(wanted, name))
        for name, text in names
        if getattr(chosen, name) != getattr(wanted, name)
    )


def _refusal(facts: ModelFacts, memory: MemoryFacts, wishes: Wishes, wanted: Plan) -> Refusal:
    free = max(0, memory.available_bytes - wishes.beside_bytes)
    open_wishes = replace(wishes, context_tokens=0, kv_type="auto", mode="auto")
    if wishes.context_tokens:
        open_wishes = replace(open_wishes, least_context=min(wishes.least_context, DEFAULT_CONTEXT))
    loosened = _wanted(facts, open_wishes)
    other = next(_choices(facts, open_wishes, loosened, free), None)
    kept = f", {amount(wishes.reserve_bytes)} of them kept for others" * bool(wishes.reserve_bytes)
    kept += f", {amount(wishes.adapter_bytes)} for its adapters" * bool(wishes.adapter_bytes)
    reason = (
        f"cannot load model {wishes.model}: it needs {amount(wanted.parts.total)}, "
        f"{amount(memory.available_bytes)} are free ({memory.source}{kept})"
    )
    if other is not None:
        hint = (
            f"{_slots(other.slots)} with a context of {other.context_tokens} and {other.kv_type} "
            f"keys and values would fit ({amount(other.parts.total)})"
        )
    else:
        weights = wanted.parts.mapped + wanted.parts.weights
        hint = f"its weights alone take {amount(weights)}: free memory, or choose a smaller model"
    if wishes.mode == "strict":
        hint += '; fit = "auto" would choose what fits' * (other is not None)
    return Refusal(reason, hint, wanted.parts.total, max(0, memory.available_bytes))


def _slots(count: int) -> str:
    return "1 slot" if count == 1 else f"{count} slots"
