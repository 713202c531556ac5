"""Operator state without keys: a list of parts, dealt out over the tasks of an operator.

A source's splits with their offsets are such parts, and so is any state that an operator keeps per task. A part is
whole wherever it is. The first deal follows from the ids alone; at another number of tasks the parts are dealt again,
and as many as possible stay where they are. Both are pure functions, so every recovery computes the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from rstream.errors import TopologyError


@dataclass(frozen=True)
class Part:
    """One indivisible piece of operator state: an id that never changes, and its contents."""

    id: str
    contents: Any


def deal(parts: Sequence[Part], tasks: int) -> list[list[Part]]:
    """Deal parts out in turn, ordered by id; sizes differ by one at most.

    >>> [[part.id for part in hand] for hand in deal([Part(c, None) for c in "dacb"], 3)]
    [['a', 'd'], ['b'], ['c']]
    """
    if tasks < 1:
        raise TopologyError(f"operator state: parts need at least 1 task, got {tasks}")
    ordered = sorted(parts, key=lambda part: part.id)
    for one, other in pairwise(ordered):
        if one.id == other.id:
            raise TopologyError(f"operator state: two parts are called {one.id!r}; give each part its own id")
    return [ordered[task::tasks] for task in range(tasks)]


def redeal(hands: Sequence[Sequence[Part]], tasks: int) -> list[list[Part]]:
    """Deal what some tasks hold over another number of tasks, moving as few parts as an even deal allows.

    >>> hands = deal([Part(c, None) for c in "abcd"], 2)
    >>> [[part.id for part in hand] for hand in redeal(hands, 3)]
    [['a', 'c'], ['b'], ['d']]
    """
    deal([part for hand in hands for part in hand], tasks)  # refuses what cannot be dealt
    total = sum(len(hand) for hand in hands)
    room = [total // tasks + (task < total % tasks) for task in range(tasks)]
    dealt: list[list[Part]] = []
    loose: list[Part] = []
    for task, hand in enumerate(hands):
        ordered = sorted(hand, key=lambda part: part.id)
        stay = room[task] if task < tasks else 0
        loose += ordered[stay:]
        if task < tasks:
            dealt.append(ordered[:stay])
    dealt += [[] for _ in range(tasks - len(dealt))]
    waiting = iter(sorted(loose, key=lambda part: part.id))
    for task, hand in enumerate(dealt):
        hand += [next(waiting) for _ in range(room[task] - len(hand))]
    return [sorted(hand, key=lambda part: part.id) for hand in dealt]


class OperatorState:
    """The parts that one task holds.

    >>> state = OperatorState([Part("split-0", {"offset": 10})])
    >>> state.put("split-0", {"offset": 12})
    >>> state.get("split-0")
    {'offset': 12}
    """

    def __init__(self, parts: Sequence[Part] = ()) -> None:
        self._parts = {part.id: part for part in parts}

    def get(self, part_id: str, default: Any = None) -> Any:
        """The contents of a part, or `default`."""
        part = self._parts.get(part_id)
        return default if part is None else part.contents

    def put(self, part_id: str, contents: Any) -> None:
        """Set the contents of a part; a new id is a new part of this task."""
        part = self._parts.get(part_id)
        self._parts[part_id] = Part(part_id, contents) if part is None else replace(part, contents=contents)

    def remove(self, part_id: str) -> None:
        """Drop a part, if it is here."""
        self._parts.pop(part_id, None)

    def export(self) -> list[tuple[str, Any]]:
        """All parts as plain values, ordered by id."""
        return [(part_id, self._parts[part_id].contents) for part_id in sorted(self._parts)]

    @classmethod
    def load(cls, exported: Sequence[tuple[str, Any]]) -> OperatorState:
        """The state that `export` gave."""
        return cls([Part(part_id, contents) for part_id, contents in exported])

    def parts(self) -> list[Part]:
        """All parts, ordered by id."""
        return [self._parts[part_id] for part_id in sorted(self._parts)]
