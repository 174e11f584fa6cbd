"""Whatever fails on the way, the owner's value is back in the slot in the end."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes.cap_slot import STEPS, TOP, Device, Killed

from stoker.units import KiloHertz

owners = st.sampled_from([*STEPS[3:], KiloHertz(1_250_000)])
between = st.sampled_from([KiloHertz(khz + 50_000) for khz in STEPS[:-1]] + [TOP])
ticks = st.tuples(
    st.just("tick"),
    st.tuples(st.sampled_from([40.0, 76.0, 79.0, 84.0]), st.sampled_from([35.0, 0.3, 1.5, 8.0])),
)
lives = st.tuples(st.sampled_from(["stop", "kill"]), st.none())
faults = st.one_of(
    st.tuples(st.just("online"), st.booleans()),
    st.tuples(st.just("readable"), st.booleans()),
    st.tuples(st.just("late"), st.integers(0, 3)),
    st.tuples(
        st.just("write"), st.sampled_from(["", "refused", "lies", "dies before", "dies after"])
    ),
    st.tuples(st.just("journal"), st.sampled_from(["", "refused", "lies", "unreadable"])),
)
plain_faults = faults.filter(lambda step: step[0] != "late" and step[1] != "lies")
limits = st.tuples(st.just("limit_khz"), between)
owner_writes = st.tuples(st.just("khz"), between)
Step = tuple[str, object]


def live(device: Device, course: list[Step]) -> None:
    for name, value in course:
        try:
            if isinstance(value, tuple):
                device.run(*value)
            elif name == "stop":
                device.service.stop()
                device.start()
            elif name == "kill":
                device.start()
            elif name == "journal":
                device.journal.fault = str(value)
            else:
                setattr(device.slot, name, value)
        except Killed:
            device.slot.write = ""
            device.start()


@given(owners, st.lists(st.one_of(ticks, faults, lives), max_size=30))
@settings(max_examples=150, deadline=None)
def test_whatever_fails_the_owners_value_is_back_in_the_end(
    owner: KiloHertz, course: list[Step]
) -> None:
    device = Device(owner)
    live(device, course)
    device.recover()
    assert device.slot.khz == owner
    assert device.journal.records == ()


@given(st.lists(st.one_of(ticks, limits, lives, plain_faults), max_size=30))
@settings(max_examples=150, deadline=None)
def test_no_other_limit_ever_gets_into_the_slot(course: list[Step]) -> None:
    device = Device()
    live(device, course)
    device.recover()
    assert device.slot.khz == TOP


@given(owners, st.lists(st.one_of(ticks, owner_writes, lives, plain_faults), max_size=30))
@settings(max_examples=150, deadline=None)
def test_what_the_owner_wrote_last_is_there_in_the_end(
    owner: KiloHertz, course: list[Step]
) -> None:
    device = Device(owner)
    live(device, course)
    wrote = [value for name, value in course if name == "khz"]
    device.recover()
    assert device.slot.khz == (wrote[-1] if wrote else owner)
