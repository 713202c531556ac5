"""The conformance kit for sources: what the engine relies on when it deals out splits and reads on from an offset.

`check_source(make)` builds sources with `make()` and raises an AssertionError that says which promise is broken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle

from rstream import values
from rstream.api import Reader, Source

Make = Callable[[], Source]

READ_SIZES = (1, 2, 3, 7, 100)


def check_source(make: Make, *, values_max: int = 10_000, patience: int = 100_000) -> None:
    """Run every check against the sources that `make()` gives; each must hold the same data.

    At most `values_max` values of a split are read, so that endless sources can be checked too. `patience` is how
    often in a row a reader may give nothing; its `now_s` moves on by its `idle_s` each time.

    >>> from rstream.operators.sources import FromIterable
    >>> check_source(lambda: FromIterable(range(20)))
    """
    source = make()
    _same(type(source.replayable), bool, "replayable is True or False")
    names = _splits_are_stable(make)
    for split in names:
        if source.replayable:
            _replays(make, split, values_max, patience)
        else:
            _read(make().reader(split, None), 7, values_max, patience)


def _splits_are_stable(make: Make) -> Sequence[str]:
    """Every worker asks for the splits itself, so all must get the same names, each once."""
    for parallelism in (3, 1):
        names = list(make().splits(parallelism))
        _same(list(make().splits(parallelism)), names, "splits are the same each time")
        _same(len(set(names)), len(names), f"no split is named twice, in {names}")
        _same([type(name) for name in names], [str] * len(names), "splits are named by str")
        travelled = cloudpickle.loads(cloudpickle.dumps(make()))
        _same(list(travelled.splits(parallelism)), names, "splits are the same on another worker")
    return names


def _replays(make: Make, split: str, values_max: int, patience: int) -> None:
    """The same values come again, however they are read and from whatever offset."""
    whole, _ = _read(make().reader(split, None), READ_SIZES[-1], values_max, patience)
    offsets: list[tuple[Any, int]] = []
    for size in READ_SIZES:
        came, after = _read(make().reader(split, None), size, len(whole), patience)
        _same(came, whole, f"split {split!r}: reading {size} at a time gives the same values")
        offsets += after
    step = max(1, len(offsets) // 50)  # every offset of a small split, some of a large one
    for offset, position in offsets[::step]:
        rest, _ = _read(make().reader(split, offset), 7, len(whole) - position, patience)
        _same(rest, whole[position:], f"split {split!r}: reading on from offset {offset!r} gives the rest")
    travelled = cloudpickle.loads(cloudpickle.dumps(make()))
    came, _ = _read(travelled.reader(split, None), 7, len(whole), patience)
    _same(came, whole, f"split {split!r}: the source gives the same values on another worker")


def _read(reader: Reader, size: int, values_max: int, patience: int) -> tuple[list[Any], list[tuple[Any, int]]]:
    """Up to `values_max` values, and after each read the offset with the number of values so far."""
    came: list[Any] = []
    offsets = [(_travelled(reader.offset), 0)]
    idle = 0
    reader.now_s = 1_000_000.0
    while len(came) < values_max:
        some = reader.read(min(size, values_max - len(came)))
        if some is None:
            _same(reader.read(size), None, "after the end, a reader stays at its end")
            break
        _same(type(some), list, "a read gives a list, or None at the end")
        if len(some) > size:
            raise AssertionError(f"source: a read of up to {size} values gave {len(some)}")
        came += some
        values.encode(some)  # raises with the type where one cannot travel
        offsets.append((_travelled(reader.offset), len(came)))
        idle = 0 if some else idle + 1
        if idle > patience:
            raise AssertionError(f"source: gave nothing {patience} times in a row, after {len(came)} values")
        reader.now_s += 0.0 if some else reader.idle_s
    reader.close()
    return came, offsets


def _travelled(offset: Any) -> Any:
    """The offset as a snapshot gives it back."""
    came = values.decode_one(values.encode_one(offset))
    _same(came, offset, "an offset survives a snapshot")
    return came


def _same(came: Any, wanted: Any, what: str) -> None:
    if came != wanted:
        raise AssertionError(f"source: {what}: wanted {wanted!r:.300}, got {came!r:.300}")
