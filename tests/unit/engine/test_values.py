"""Values come out of every tier with the type and value that went in, and always as the same bytes."""

from __future__ import annotations

import datetime as dt
import threading
from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rstream import values
from rstream.errors import ValueNotSupported
from tests import samples
from tests.samples import Place, Point, Right, Version, same

quick = settings(max_examples=80, deadline=None)


def travelled(batch: list[Any]) -> list[Any]:
    kind, body = values.encode(batch)
    return values.decode(kind, len(batch), body)


@quick
@given(samples.anything)
@example(10**5000)
@example(-(2**63) - 1)
@example(2**64)
@example("\ud800")
@example(Right.READ | Right.WRITE)
@example(np.array([], dtype="<f8"))
@example(np.zeros(2, dtype=[("a", "<i4"), ("b", "<f8", (2,))]))
@example(np.zeros(1, dtype=[("a", "<i4"), ("b", "<f8")])[0])
@example(np.str_(""))
@example(dt.datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=samples.ZONES[3]))
def test_every_supported_value_comes_out_with_its_type_and_value(value: Any) -> None:
    assert same(travelled([value]), [value])
    assert same(values.decode_one(values.encode_one(value)), value)
    assert same(travelled([(value, [value])]), [(value, [value])])


@pytest.mark.parametrize(
    ("batch", "kind"),
    [
        ([], values.PLAIN),
        (["a", 1, 2.5, None, True, b"x"], values.PLAIN),
        ([("a", 1), ()], values.FLAT),
        ([("a", 1), ("b", 2)], values.FLAT),
        ([("a", 1), ("b", 2.5)], values.FLAT),
        ([("a", 1, 2.5), ("b", 2, 3.5)], values.FLAT),
        ([("a", 1, 2.5), ("b", 2, None)], values.FLAT),
        ([("a", 1, 2.5, None), ("b", 2, 3.5, None)], values.FLAT),
        ([("a", 1, 2.5), ("b", 2), ("c",)], values.FLAT),
        ([("a", 1, 2, 3, 4)], values.FLAT),
        ([("a", 1), ("b", [2])], values.GENERAL),
        ([("a", 1, 2), ("b", 2, [2])], values.GENERAL),
        ([("a", 1, 2, 3), ("b", 2, 3, [2])], values.GENERAL),
        ([("a", 1), ["b", 2]], values.GENERAL),
        ([("a", 1), ("b", np.int64(2))], values.GENERAL),
        ([("a", [1])], values.GENERAL),
        (["a", ("b",)], values.GENERAL),
        ([Point(1, 2)], values.GENERAL),
        ([np.float64(1.0)], values.GENERAL),
    ],
)
def test_each_kind_of_batch_is_recognised_and_travels(batch: list[Any], kind: int) -> None:
    assert values.kind_of(batch) == kind
    assert values.encode(batch)[0] == kind
    assert same(travelled(batch), batch)


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 65_535, 65_536, 65_537])
def test_batches_of_every_header_size_travel(count: int) -> None:
    for value in (7, ("a",), [1]):
        if not isinstance(value, list) or count < 100:
            assert travelled([value] * count) == [value] * count


@quick
@given(st.lists(st.one_of(samples.atoms, samples.flat_tuples, samples.anything), max_size=6), st.data())
def test_the_bytes_of_a_channel_do_not_depend_on_where_its_batches_are_cut(batch: list[Any], data: Any) -> None:
    singles = [values.encode([value])[1] for value in batch]
    assert values.encode(batch)[1] == b"".join(singles)
    cut = data.draw(st.integers(0, len(batch)))
    assert values.encode(batch[:cut])[1] + values.encode(batch[cut:])[1] == b"".join(singles)


@quick
@given(st.lists(st.one_of(samples.atoms, samples.flat_tuples), max_size=6))
def test_a_batch_of_the_fast_kinds_can_also_be_read_as_general(batch: list[Any]) -> None:
    assert same(values.decode(values.GENERAL, len(batch), values.encode(batch)[1]), batch)


def test_equal_sets_give_equal_bytes_however_they_were_made() -> None:
    left: set[int] = set()
    right: set[int] = set()
    for first, second in ((0, 8), (64, 128)):
        left |= {first}
        left |= {second}
    for first, second in ((128, 64), (8, 0)):
        right |= {first}
        right |= {second}
    assert list(left) != list(right), "the test's own premise: these collide, so the order of insertion shows"
    assert values.encode_one(left) == values.encode_one(right)
    assert values.encode_one(frozenset(left)) == values.encode_one(frozenset(right))


def test_what_comes_out_is_new_and_can_be_changed() -> None:
    kind, body = values.encode([[1], {"a": [2]}, np.zeros(2)])
    first, second = values.decode(kind, 3, body), values.decode(kind, 3, body)
    first[0].append(9)
    first[1]["a"].append(9)
    first[2][0] = 9
    assert second[:2] == [[1], {"a": [2]}]
    assert second[2].tolist() == [0.0, 0.0]


@dataclass
class Countdown:
    """Has an `__init__` that must not run again on arrival."""

    left: int

    def __post_init__(self) -> None:
        self.left -= 1


def test_a_dataclass_arrives_without_its_init_running_again() -> None:
    assert travelled([Countdown(5)]) == [Countdown(5)]
    assert travelled([Countdown(5)])[0].left == 4


def test_a_codec_lets_a_class_of_the_users_travel() -> None:
    with pytest.raises(ValueNotSupported, match=r"samples\.Version cannot travel .*register_codec"):
        values.encode([Version(1, 2)])
    values.register_codec(Version, lambda v: (v.major, v.minor), lambda pair: Version(*pair))
    try:
        assert travelled([{"v": Version(1, 2)}]) == [{"v": Version(1, 2)}]
    finally:
        del values._codecs[Version]


class Text(str):
    __slots__ = ()


class Pair(tuple[int, int]):
    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (object(), r"builtins\.object"),
        (threading.Lock(), r"_thread\.lock"),
        (lambda: 1, r"builtins\.function"),
        (Text("a"), r"test_values\.Text"),
        (Pair((1, 2)), r"test_values\.Pair"),
        (OrderedDict(a=1), r"collections\.OrderedDict"),
        (defaultdict(int), r"collections\.defaultdict"),
        (np.array([object()]), "dtype object"),
        (np.zeros(1, dtype=[("a", object)]), "dtype .*O"),
        (np.zeros(1, dtype=[("a", "<i4")]).view(np.recarray), "recarray"),
        (np.zeros(1, dtype=[("a", "<i4")]).view(np.recarray)[0], r"numpy\.record"),
        (np.zeros(3).view(np.memmap), "memmap"),
        (np.ma.masked_array([1], [True]), "MaskedArray"),
        (iter([]), r"builtins\.list_iterator"),
    ],
)
def test_a_value_that_cannot_travel_is_refused_by_the_name_of_its_type(value: Any, named: str) -> None:
    for batch in ([value], [("ok", value)], [{"deep": [value]}]):
        with pytest.raises(ValueNotSupported, match=named):
            values.encode(batch)
    with pytest.raises(ValueNotSupported, match=named):
        values.encode_one(value)


def test_a_class_inside_a_function_is_refused_with_the_remedy() -> None:
    @dataclass
    class Local:
        x: int

    with pytest.raises(ValueNotSupported, match="move it to the top level of its module"):
        values.encode([Local(1)])


def test_a_frozen_dataclass_keeps_fields_that_comparison_leaves_out() -> None:
    assert travelled([Place(1.0, 2, note="kept")])[0].note == "kept"
