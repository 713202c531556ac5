"""Me-Stream's rules: how long an item takes, which delays are bottlenecks, who ranks where, and by how much to grow.

Each equation stands on its own; the policy that joins them is in `me`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rstream.schedulers.rates import Line

Executor = TypeVar("Executor")

# Counts are products of ratios: noise in the last digit must not add an executor.
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Work:
    """What one element of a chain has to do; a missing link has no bandwidth (Me-3)."""

    work: float
    speed: float
    bytes: float
    bw_in: float | None
    bw_out: float | None


@dataclass(frozen=True, slots=True)
class Transfer:
    """Compute and transfer time of every element, and of the chain (eqs 1 to 3)."""

    compute: list[float]
    transfer: list[float]

    @property
    def compute_sum(self) -> float:
        """All computing."""
        return math.fsum(self.compute)

    @property
    def transfer_half(self) -> float:
        """Half of all transfers, for each link is counted at both its ends."""
        return math.fsum(self.transfer) / 2.0

    @property
    def total(self) -> float:
        """T: whichever of the two is longer."""
        return max(self.compute_sum, self.transfer_half)


def transfer(chain: Sequence[Work]) -> Transfer:
    """Eqs 1 to 3 for a chain of elements.

    >>> transfer([Work(10, 2, 100, None, 50), Work(6, 2, 100, 50, None)]).total
    8.0
    """
    compute = [element.work / element.speed for element in chain]
    moving = [sum(element.bytes / bw for bw in (element.bw_in, element.bw_out) if bw) for element in chain]
    return Transfer(compute, moving)


def effective(times: Sequence[float], delays: Sequence[float], line: Line, tolerance: float) -> list[int]:
    """The samples that lie above the line by more than the tolerance: signed, never the square (Me-5).

    >>> effective([0, 1, 2], [2.0, 9.0, 2.0], Line(0.0, 2.0, ()), 0.5)
    [1]
    """
    pairs = enumerate(zip(times, delays, strict=True))
    return [at for at, (time, delay) in pairs if delay - line.at(time) > tolerance]


def same_magnitude(time: float, reference: float | None) -> bool:
    """Whether a time is within a factor of ten of the reference bottleneck, either way (Me-6).

    >>> same_magnitude(5, 1), same_magnitude(50, 4.9), same_magnitude(1, None)
    (True, False, False)
    """
    return reference is not None and reference > 0 and 0.1 < time / reference < 10


def levels(times: Mapping[str, float]) -> dict[str, int]:
    """Rank n for the longest time down to 1 for the shortest; of equal times the earlier ranks higher (Me-7).

    >>> levels({"a": 2.0, "b": 2.0, "c": 5.0})
    {'a': 2, 'b': 1, 'c': 3}
    """
    order = sorted(times, key=lambda name: -times[name])
    rank = {name: len(order) - at for at, name in enumerate(order)}
    return {name: rank[name] for name in times}


@dataclass(frozen=True, slots=True)
class Growth:
    """New size of an item."""

    executors: int
    tasks: int


def grow(executors: int, tasks: int, level: int, phi: float) -> Growth:
    """Eq 7 with phi inside the bracket (Me-8).

    >>> grow(8, 16, 4, 1.0), grow(5, 10, 1, 0.5)
    (Growth(executors=12, tasks=24), Growth(executors=6, tasks=11))
    """
    exact = executors + phi * level
    return Growth(math.ceil(exact - ROUNDING), math.ceil(tasks * exact / executors - ROUNDING))


@dataclass(frozen=True, slots=True)
class Migration(Generic[Executor]):
    """Who changes slot, and whether separate maps of nodes and of ports could have said so (Me-11)."""

    moved: tuple[Executor, ...]
    splittable: bool


def migration(old: Mapping[Executor, tuple[str, Any]], new: Mapping[Executor, tuple[str, Any]]) -> Migration[Executor]:
    """Compare two assignments executor by executor; an executor that is only in one of them does not move.

    >>> migration({"e1": ("a", 1), "e2": ("a", 2)}, {"e1": ("a", 1), "e2": ("b", 2)})
    Migration(moved=('e2',), splittable=False)
    """
    common = [name for name in old if name in new]
    moved = tuple(name for name in common if tuple(old[name]) != tuple(new[name]))
    functions = all(
        len({(old[name][part], new[name][part]) for name in common}) == len({old[name][part] for name in common})
        for part in (0, 1)
    )
    return Migration(moved, functions)
