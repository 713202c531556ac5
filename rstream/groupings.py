"""How the tuples of an edge are shared out over the receiving tasks: every grouping that Storm has, and PSPS's.

These are values that say what is wanted; `rstream.core.router` does it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Grouping:
    """The base of all groupings."""

    @property
    def label(self) -> str:
        """The name shown in `status`."""
        return {"All": "all", "Global": "global", "LocalOrShuffle": "local-or-shuffle", "NoGrouping": "none"}.get(
            type(self).__name__, type(self).__name__.lower()
        )


@dataclass(frozen=True, slots=True)
class Shuffle(Grouping):
    """Every task in turn."""


@dataclass(frozen=True, slots=True)
class LocalOrShuffle(Grouping):
    """The tasks on the sender's own worker in turn, if there are any; else every task in turn."""


@dataclass(frozen=True, slots=True)
class NoGrouping(Grouping):
    """The sender does not care; the same as shuffle."""


@dataclass(frozen=True, slots=True)
class Key(Grouping):
    """Equal keys to the same task. The key is the value itself, or what `of` makes of it."""

    of: Callable[[Any], Any] | None = None


@dataclass(frozen=True, slots=True)
class PartialKey(Grouping):
    """Each key to one of two tasks, whichever got less so far: for skewed keys with a later merge."""

    of: Callable[[Any], Any] | None = None


@dataclass(frozen=True, slots=True)
class All(Grouping):
    """Every tuple to every task."""


@dataclass(frozen=True, slots=True)
class Global(Grouping):
    """Every tuple to the first task."""


@dataclass(frozen=True, slots=True)
class Direct(Grouping):
    """The sender names the task, with `out.emit_direct`."""


@dataclass(frozen=True, slots=True)
class Custom(Grouping):
    """`choose(value, tasks)` gives the index of the receiving task, or several; it must be deterministic."""

    choose: Callable[[Any, int], int | Sequence[int]]


@dataclass(frozen=True, slots=True)
class LoadBalanced(Grouping):
    """PSPS: the task with the least predicted use, round robin when all are full."""


def field_key(fields: Sequence[str], available: Sequence[str]) -> Callable[[Any], Any]:
    """A key function that picks named fields of a tuple.

    >>> field_key(["word"], ["word", "count"])(("a", 1))
    'a'
    """
    positions = [list(available).index(field) for field in fields]
    return FieldKey(tuple(positions))


@dataclass(frozen=True, slots=True)
class FieldKey:
    """Picks one position of a tuple, or several as a tuple."""

    positions: tuple[int, ...]

    def __call__(self, value: Any) -> Any:
        if len(self.positions) == 1:
            return value[self.positions[0]]
        return tuple(value[position] for position in self.positions)
