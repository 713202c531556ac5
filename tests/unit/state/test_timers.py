"""Timers fire once, in order, and survive snapshots and moves."""

from __future__ import annotations

from random import Random

from rstream.state.keyed import SLOTS, KeyedState
from rstream.state.timers import Timer, Timers
from tests.unit.state.model import KEYS, slot_of


def test_timers_fire_by_time_then_name_then_key_however_they_were_set() -> None:
    wanted = [(at_s, name, key) for at_s in (1.0, 2.0) for name in ("a", "b") for key in sorted(KEYS, key=repr)]
    for seed in range(5):
        timers = Timers(KeyedState(slot_of))
        for at_s, name, key in Random(seed).sample(wanted, len(wanted)):
            timers.set(key, at_s, name)
        assert timers.due(1.5) + timers.due(9.0) == wanted


def test_a_timer_set_twice_fires_once_and_a_cancelled_one_never() -> None:
    timers = Timers(KeyedState(slot_of))
    timers.set("x", 1.0)
    timers.set("x", 1.0)
    timers.set("x", 2.0)
    timers.cancel("x", 2.0)
    timers.cancel("y", 2.0)
    assert len(timers) == 1
    assert timers.due(5.0) == [Timer(1.0, "", "x")]
    timers.set("x", 2.0)
    assert timers.due(5.0) == [Timer(2.0, "", "x")]
    assert timers.next_s() is None


def test_timers_come_back_from_base_and_delta() -> None:
    state = KeyedState(slot_of)
    timers, chain = Timers(state), []
    for full in (True, False):
        for number, key in enumerate(KEYS):
            timers.set(key, number + 10.0 * full, "n")
        timers.due(13.0 if full else 5.0)
        cut = state.begin_snapshot(full)
        while (entries := cut.next_slice(3)) is not None:
            chain += entries
    restored = KeyedState(slot_of)
    restored.restore(chain)
    again = Timers(restored)
    assert len(again) > 0
    assert again.due(99.0) == timers.due(99.0)


def test_the_timers_of_a_range_move_with_it() -> None:
    state, other = KeyedState(slot_of), KeyedState(slot_of)
    timers, others = Timers(state), Timers(other)
    for number, key in enumerate(KEYS):
        timers.set(key, float(number))
    middle = sorted(map(slot_of, KEYS))[4]
    other.import_range(list(state.export_range(middle, SLOTS)))
    state.drop_range(middle, SLOTS)
    others.adopt(middle, SLOTS)
    stayed, moved = timers.due(99.0), others.due(99.0)
    assert [timer.key for timer in stayed] == [key for key in KEYS if slot_of(key) < middle]
    assert [timer.key for timer in moved] == [key for key in KEYS if slot_of(key) >= middle]
