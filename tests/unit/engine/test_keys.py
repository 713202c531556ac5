"""Equal keys have the same slot, in every process and every version."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rstream.errors import ValueNotSupported
from rstream.keys import SLOTS, KeyRanges, slot_of, stable_hash
from tests import samples
from tests.samples import Colour, FrozenOrder, Place, Point, Reading, Right, Size, Weekday

BERLIN, KOLKATA = ZoneInfo("Europe/Berlin"), dt.timezone(dt.timedelta(hours=5, minutes=30))
NOON = dt.datetime(2026, 7, 1, 12, tzinfo=dt.UTC)
FOLDED = dt.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN)


@pytest.mark.parametrize(
    "keys",
    [
        [1, 1.0, True, Decimal(1), Decimal("1.00"), Fraction(1), 1 + 0j, Size.SMALL],
        [1, np.int64(1), np.uint8(1), np.float32(1), np.bool_(True), np.complex128(1)],
        [0, 0.0, -0.0, False, Decimal("-0"), np.float64(-0.0)],
        [2**100, 2.0**100, Decimal(2**100), Fraction(2**100)],
        [-(10**30), Decimal(-(10**30))],
        [2**61 - 1 + 5, np.uint64(2**61 - 1 + 5)],
        [float("inf"), Decimal("Infinity"), np.float32("inf")],
        [NOON, NOON.astimezone(BERLIN), NOON.astimezone(KOLKATA)],
        [FOLDED, FOLDED.replace(fold=1)],
        [dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 1, fold=1)],
        [(1, "a"), Point(1.0, "a"), (True, np.str_("a"))],
        ["monday", Weekday.MONDAY, np.str_("monday")],
        [b"x", np.bytes_(b"x")],
        [frozenset([1, 2, 3]), frozenset([3.0, 2, True])],
        [Place(1.0, 2, "here"), Place(1, 2.0, "there")],
        [FrozenOrder(number=1), FrozenOrder(number=1, name="none")],
        [dt.timedelta(days=1), dt.timedelta(hours=24)],
        [uuid.UUID(int=5), uuid.UUID(bytes=bytes(15) + b"\x05")],
    ],
    ids=lambda keys: repr(keys[0])[:30],
)
def test_keys_that_are_equal_in_python_have_the_same_slot(keys: list[Any]) -> None:
    first = keys[0]
    for key in keys[1:]:
        assert key == first, "the test's own premise"
        assert stable_hash(key) == stable_hash(first), key
        assert slot_of(("nested", key)) == slot_of(("nested", first))


numbers = st.one_of(
    st.integers(),
    st.integers(-5, 5),
    st.floats(allow_nan=False),
    st.integers(-5, 5).map(float),
    st.integers(-(2**70), 2**70).map(Decimal),
    st.fractions(),
    st.booleans(),
    st.integers(-5, 5).map(np.float64),  # numpy integers cannot be compared with a Decimal, so not in one dict
)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.one_of(numbers, samples.atoms, st.tuples(numbers), st.frozensets(numbers, max_size=3)), max_size=8))
def test_whatever_meets_in_a_dict_meets_in_a_slot(keys: list[Any]) -> None:
    first_by_key: dict[Any, Any] = {}
    for key in keys:
        met = first_by_key.setdefault(key, key)
        assert slot_of(met) == slot_of(key)
        assert 0 <= slot_of(key) < SLOTS


@pytest.mark.parametrize(
    ("key", "slot"),
    [
        ("", 38082),
        ("a", 19999),
        ("word", 23637),
        ("straße", 12988),
        (1, 24245),
        (-1, 22027),
        (2**80, 21199),
        (1.5, 43329),
        (None, 31765),
        (b"x", 6722),
        (("a", 1), 63201),
        (frozenset({1, 2}), 12523),
        (dt.date(2026, 1, 1), 51982),
        (dt.datetime(2026, 1, 1, tzinfo=dt.UTC), 61494),
        (dt.datetime(2026, 1, 1), 55573),
        (dt.timedelta(seconds=1), 21405),
        (uuid.UUID(int=1), 29686),
        (Colour.RED, 56892),
        (Right.READ, 55202),
        (Right(0), 134),
        (Place(1.0, 2.0), 30979),
        (FrozenOrder(number=7), 18762),
    ],
    ids=repr,
)
def test_slots_never_change_because_snapshots_hold_them(key: Any, slot: int) -> None:
    assert slot_of(key) == slot


def test_all_nans_share_a_slot() -> None:
    assert len({slot_of(nan) for nan in (float("nan"), Decimal("NaN"), np.float32("nan"), complex("nan"))}) == 1


def test_keys_spread_over_all_tasks() -> None:
    ranges = KeyRanges.even(4)
    for keys in ([f"user{n}" for n in range(4000)], list(range(4000)), [(n, "x") for n in range(4000)]):
        owners = [ranges.owner(slot_of(key)) for key in keys]
        assert all(850 < owners.count(task) < 1150 for task in range(4))


@pytest.mark.parametrize(
    "key", [[1], {"a": 1}, {1}, object(), Reading("s", [1]), ("a", [1]), np.datetime64(1, "s")], ids=repr
)
def test_a_key_without_a_stable_hash_is_refused_by_the_name_of_its_type(key: Any) -> None:
    kind = type(key[1] if isinstance(key, tuple) else key.values if isinstance(key, Reading) else key)
    with pytest.raises(ValueNotSupported, match=f"{kind.__name__} has no stable hash: key by str"):
        slot_of(key)


@given(st.integers(1, 300))
@settings(max_examples=30, deadline=None)
def test_even_ranges_give_every_slot_one_owner_and_equal_shares(tasks: int) -> None:
    ranges = KeyRanges.even(tasks)
    shares = [sum(high - low for low, high in ranges.of(task)) for task in range(tasks)]
    assert sum(shares) == SLOTS
    assert max(shares) - min(shares) <= 1
    for task in {0, tasks // 2, tasks - 1}:
        for low, high in ranges.of(task):
            assert ranges.owner(low) == ranges.owner(high - 1) == task
