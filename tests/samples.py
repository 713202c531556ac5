"""Classes whose values travel in the tests of values and keys, and a strategy for every supported value."""

from __future__ import annotations

import datetime as dt
import enum
import math
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pydantic
from hypothesis import strategies as st


class Colour(enum.Enum):
    RED = 1
    GREEN = "g"


class Weekday(enum.StrEnum):
    MONDAY = "monday"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Right(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()
    RUN = enum.auto()


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass
class Reading:
    sensor: str
    values: list[Any]
    tags: dict[str, Any] = field(default_factory=dict)
    seen: int = field(default=0, init=False)


@dataclass(frozen=True, slots=True)
class Place:
    lat: float
    lon: Any
    note: str = field(default="", compare=False)


class Order(pydantic.BaseModel):
    number: int
    lines: list[tuple[str, int]] = []
    placed: dt.datetime | None = None
    _checked: list[int] = pydantic.PrivateAttr(default_factory=list)

    def checked(self, by: int) -> Order:
        """The same, with something in a private attribute."""
        self._checked.append(by)
        return self


class FrozenOrder(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    number: int
    name: str = "none"


class LooseOrder(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    number: int = pydantic.Field(alias="no")


class Version:
    """A class that no one knows how to send, until a codec is registered."""

    def __init__(self, major: int, minor: int) -> None:
        self.major, self.minor = major, minor

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and (self.major, self.minor) == (other.major, other.minor)

    def __hash__(self) -> int:
        return hash((self.major, self.minor))


ZONES = [None, dt.UTC, dt.timezone(dt.timedelta(hours=5, minutes=30)), ZoneInfo("Europe/Berlin")]

atoms = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(st.characters(), max_size=8),  # lone surrogates included
    st.binary(max_size=8),
)
flat_tuples = st.lists(atoms, max_size=4).map(tuple)


def _numpy_scalars() -> st.SearchStrategy[Any]:
    return st.one_of(
        st.integers(-128, 127).map(np.int8),
        st.integers(-(2**63), 2**63 - 1).map(np.int64),
        st.floats().map(np.float64),
        st.floats(width=32).map(np.float32),
        st.booleans().map(np.bool_),
        st.integers(-(2**40), 2**40).map(lambda n: np.datetime64(n, "ms")),
        st.text("abc", max_size=3).map(np.str_),
    )


def _numpy_arrays() -> st.SearchStrategy[Any]:
    dtypes = st.sampled_from(["<i8", ">i4", "<f4", "?", "<c16", "<M8[ns]", "<U3", "S2", [("a", "<i4"), ("b", "<f8")]])
    shapes = st.sampled_from([(), (0,), (3,), (2, 3), (2, 0, 1)])

    def make(dtype: Any, shape: tuple[int, ...], fortran: bool) -> Any:
        count = math.prod(shape)
        kind = np.dtype(dtype)
        array = np.frombuffer(bytes(range(1, 129)) * 2, dtype="u1")[:count].astype("i8")
        if kind.names:
            made = np.zeros(count, dtype=kind)
            made["a"] = array
        else:
            made = array.astype(kind)
        return made.reshape(shape, order="F" if fortran else "C")

    return st.builds(make, dtypes, shapes, st.booleans())


others = st.one_of(
    st.floats().map(lambda n: Decimal(repr(n))),
    st.decimals(),
    st.uuids() | st.just(uuid.UUID(int=0)),
    st.datetimes(timezones=st.sampled_from(ZONES)),
    st.times(timezones=st.sampled_from(ZONES)),
    st.dates(),
    st.timedeltas(),
    st.complex_numbers(),
    st.sampled_from([*Colour, *Weekday, *Size, *Right, Right.READ | Right.RUN, Right(0)]),
    st.binary(max_size=4).map(bytearray),
    _numpy_scalars(),
    _numpy_arrays(),
)
hashable = st.one_of(atoms, flat_tuples, st.uuids(), st.dates(), st.sampled_from([*Colour, *Size]))


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner, max_size=3)
    return st.one_of(
        some,
        some.map(tuple),
        st.dictionaries(hashable, inner, max_size=3),
        st.sets(hashable, max_size=3),
        st.frozensets(hashable, max_size=3),
        st.builds(Point, inner, inner),
        st.builds(Reading, st.text(max_size=3), some),
        st.builds(Place, st.floats(), inner),
        st.builds(Order, number=st.integers(), lines=st.just([("a", 1)])).map(lambda order: order.checked(7)),
        st.builds(FrozenOrder, number=st.integers()),
        st.integers().map(lambda n: LooseOrder(no=n, more=[n])),
    )


anything = st.recursive(st.one_of(atoms, others), _nested, max_leaves=6)


def same(left: Any, right: Any) -> bool:
    """Equal in type and value, all the way down; NaN is the same as NaN, and -0.0 is not 0.0."""
    if type(left) is not type(right):
        return False
    by_type: dict[type, Callable[[Any, Any], bool]] = {
        float: lambda a, b: (a == b and math.copysign(1, a) == math.copysign(1, b)) or (a != a and b != b),
        complex: lambda a, b: same(a.real, b.real) and same(a.imag, b.imag),
        Decimal: lambda a, b: str(a) == str(b),
        list: lambda a, b: len(a) == len(b) and all(map(same, a, b)),
        dict: lambda a, b: same(list(a.items()), list(b.items())),
        set: lambda a, b: same(sorted(map(repr, a)), sorted(map(repr, b))),
        frozenset: lambda a, b: same(sorted(map(repr, a)), sorted(map(repr, b))),
        Reading: lambda a, b: same([a.sensor, a.values, a.tags, a.seen], [b.sensor, b.values, b.tags, b.seen]),
        Place: lambda a, b: same([a.lat, a.lon, a.note], [b.lat, b.lon, b.note]),
        dt.datetime: lambda a, b: (
            a.replace(tzinfo=None) == b.replace(tzinfo=None) and (a.fold, a.tzinfo) == (b.fold, b.tzinfo)
        ),
        dt.time: lambda a, b: (
            a.replace(tzinfo=None) == b.replace(tzinfo=None) and (a.fold, a.tzinfo) == (b.fold, b.tzinfo)
        ),
        np.ndarray: lambda a, b: (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes()),
    }
    if isinstance(left, tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, np.generic):
        return (left.dtype, left.tobytes()) == (right.dtype, right.tobytes())
    if isinstance(left, pydantic.BaseModel):
        return bool(left == right) and left.model_fields_set == right.model_fields_set
    return by_type.get(type(left), lambda a, b: bool(a == b))(left, right)
