"""Keys and the slots they live in.

A key hashes into one of 65,536 slots, and tasks own ranges of slots. The hash is the same in every process and every
run (never Python's salted one), and keys that are equal in Python have the same slot: `1`, `1.0`, `True` and
`Decimal(1)` meet in one task, as they would in one dict.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import numbers
import uuid
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any

import pydantic
from xxhash import xxh3_64_intdigest

from rstream.errors import ValueNotSupported

SLOTS = 65_536

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


def slot_of(key: Any) -> int:
    """The slot of a key.

    >>> slot_of(1) == slot_of(1.0) == slot_of(True)
    True
    >>> slot_of(("a", 1)) == slot_of(("a", 1.0))
    True
    """
    return stable_hash(key) % SLOTS


def stable_hash(key: Any) -> int:
    """64 bits that are equal for equal keys, in every process."""
    if type(key) is str:
        return _hash_text(key)
    if isinstance(key, numbers.Number):
        # Python's hash of numbers is not salted and agrees between the number types, NaN excepted.
        return xxh3_64_intdigest((0 if _is_nan(key) else hash(key)).to_bytes(8, "little", signed=True), 1)
    if isinstance(key, str):
        return _hash_text(str.__str__(key))
    if isinstance(key, bytes):
        return int(xxh3_64_intdigest(key, 2))
    if key is None:
        return 0x9E3779B97F4A7C15
    if isinstance(key, tuple):
        return _hash_parts(map(stable_hash, key), 3)
    if isinstance(key, frozenset):
        return _hash_parts(sorted(map(stable_hash, key)), 4)
    return _hash_object(key)


def _hash_object(key: Any) -> int:
    cls = type(key)
    name = f"{cls.__module__}:{cls.__qualname__}"
    if isinstance(key, enum.Enum):
        return _hash_parts((_hash_text(name), _hash_text(str(key.name))), 5)
    if isinstance(key, uuid.UUID):
        return int(xxh3_64_intdigest(key.bytes, 6))
    if isinstance(key, dt.datetime):
        if key.utcoffset() is None:
            return _hash_text(key.replace(fold=0).isoformat(), 7)
        # As in Python's own hash: in one zone, two times that differ in `fold` alone are equal.
        return stable_hash((8, (key.replace(fold=0) - _EPOCH) // _MICROSECOND))
    if isinstance(key, dt.date):
        return stable_hash((9, key.toordinal()))
    if isinstance(key, dt.timedelta):
        return stable_hash((10, key // _MICROSECOND))
    if dataclasses.is_dataclass(cls):
        compared = [stable_hash(getattr(key, field.name)) for field in dataclasses.fields(cls) if field.compare]
        return _hash_parts([_hash_text(name), *compared], 11)
    if isinstance(key, pydantic.BaseModel):
        parts = [stable_hash((field, item)) for field, item in sorted(key.__dict__.items())]
        return _hash_parts([_hash_text(name), *parts], 12)
    if cls.__module__ == "numpy" and cls.__name__.startswith("bool"):
        return stable_hash(bool(key))  # the one numpy scalar that is not registered as a number
    raise ValueNotSupported(
        f"a key of type {cls.__module__}.{cls.__qualname__} has no stable hash: "
        "key by str, bytes, numbers, None, tuples, frozensets, enums, dates, UUIDs or frozen dataclasses of these"
    )


def _hash_text(text: str, seed: int = 0) -> int:
    return int(xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"), seed))


def _hash_parts(parts: Iterable[int], seed: int) -> int:
    return int(xxh3_64_intdigest(b"".join(part.to_bytes(8, "little") for part in parts), seed))


def _is_nan(key: Any) -> bool:
    return bool(key != key)


@dataclasses.dataclass(frozen=True, slots=True)
class KeyRanges:
    """Who owns which slots: range i is [starts[i], starts[i + 1]) and belongs to task owners[i].

    >>> ranges = KeyRanges.even(4)
    >>> ranges.owner(0), ranges.owner(65_535)
    (0, 3)
    """

    starts: tuple[int, ...]
    owners: tuple[int, ...]

    def __post_init__(self) -> None:
        assert self.starts[:1] == (0,), "ranges start at slot 0"
        assert list(self.starts) == sorted(set(self.starts)), "ranges are in order and none is empty"
        assert len(self.starts) == len(self.owners), "each range has one owner"

    @classmethod
    def even(cls, tasks: int) -> KeyRanges:
        """Equal shares in task order."""
        return cls(tuple(task * SLOTS // tasks for task in range(tasks)), tuple(range(tasks)))

    def owner(self, slot: int) -> int:
        """The task that owns a slot."""
        return self.owners[bisect_right(self.starts, slot) - 1]

    def of(self, task: int) -> Sequence[tuple[int, int]]:
        """The ranges (low, high) of one task.

        >>> KeyRanges.even(2).of(1)
        [(32768, 65536)]
        """
        ends = (*self.starts[1:], SLOTS)
        return [(low, high) for low, high, owner in zip(self.starts, ends, self.owners, strict=True) if owner == task]
