"""Es-Stream's way to rescale a stateful operator: holders split their backups for the new owners, upstream replays.

The live rescale hands ranges of slots over in-band (the `core` package); this is the paper's variant, used to restart
a savepoint at another parallelism and to compare with the paper. Who owns a key is an argument on both sides, because
the paper takes hash mod m and rstream ranges of slots.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
Owner = Callable[[Any], int]


@dataclass(frozen=True)
class Repartition(Generic[K]):
    """What happens to each key when the owners change; all lists sorted."""

    split: dict[int, dict[int, list[K]]]
    """For each old owner, the parts that its backup is split into, by new owner."""
    merged: dict[int, list[K]] = field(default_factory=dict)
    """For each new owner, the keys that it has in the end."""
    moves: dict[K, tuple[int, int]] = field(default_factory=dict)
    """The keys whose owner changes: (old, new)."""
    stay: list[K] = field(default_factory=list)
    """The keys whose owner stays: these need not be touched."""


def repartition(
    keys: Iterable[K], old_owners: Iterable[int], new_owners: Iterable[int], old_of: Owner, new_of: Owner
) -> Repartition[K]:
    """Split every old owner's keys for the new owners and merge them there; only keys with another owner move.

    >>> plan = repartition([4, 5, 6], range(2), range(3), lambda key: key % 2, lambda key: key % 3)
    >>> plan.split, plan.moves, plan.stay
    ({0: {1: [4], 0: [6]}, 1: {2: [5]}}, {4: (0, 1), 5: (1, 2)}, [6])
    """
    plan: Repartition[K] = Repartition({old: {} for old in old_owners}, {new: [] for new in new_owners})
    for key in sorted(keys):  # type: ignore[type-var]
        old, new = old_of(key), new_of(key)
        plan.split[old].setdefault(new, []).append(key)
        plan.merged[new].append(key)
        if old == new:
            plan.stay.append(key)
        else:
            plan.moves[key] = (old, new)
    return plan


@dataclass(frozen=True)
class Cached(Generic[K]):
    """A tuple in an upstream task's cache: its number on that task's way to the operator, and its key."""

    upstream: str
    seq: int
    key: K


def replay(
    cache: Iterable[Cached[K]],
    covered: Mapping[str, Mapping[int, int]],
    new_owners: Iterable[int],
    old_of: Owner,
    new_of: Owner,
) -> dict[int, list[Cached[K]]]:
    """What each new owner gets sent again: exactly what the snapshot of the old owner does not cover.

    `covered[upstream][old owner]` is the last number that the old owner's snapshot has from that upstream task. The
    old owner decides whether a tuple is covered, the new one gets it: so nothing is lost and nothing counts twice.

    >>> cache = [Cached("u", seq, key) for seq, key in enumerate([4, 5, 4, 5], start=1)]
    >>> again = replay(cache, {"u": {0: 1, 1: 2}}, range(3), lambda key: key % 2, lambda key: key % 3)
    >>> {owner: [each.seq for each in tuples] for owner, tuples in again.items()}
    {0: [], 1: [3], 2: [4]}
    """
    again: dict[int, list[Cached[K]]] = {new: [] for new in new_owners}
    for each in sorted(cache, key=lambda cached: (cached.upstream, cached.seq)):
        if each.seq > covered.get(each.upstream, {}).get(old_of(each.key), 0):
            again[new_of(each.key)].append(each)
    return again
