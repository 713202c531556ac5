"""What exists ten thousand times in a View, kept as numpy columns: tasks, and the channels between them.

Also the small names that both the View and the Plan speak of: a load, a slot, a task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rstream.errors import PolicyError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

DIMENSIONS = ("cpu", "mem", "io")


class Load(NamedTuple):
    """Use of one node in its three dimensions, each a fraction of that node.

    >>> Load(0.2, 0.5).peak
    0.5
    """

    cpu: float = 0.0
    mem: float = 0.0
    io: float = 0.0

    @property
    def peak(self) -> float:
        """The busiest dimension: the scalar load R of Es-Stream (eq 6)."""
        return max(self)

    def plus(self, other: Load) -> Load:
        """The sum, dimension by dimension."""
        return Load(self.cpu + other.cpu, self.mem + other.mem, self.io + other.io)


class Slot(NamedTuple):
    """One process of one node; a worker runs there, for one topology."""

    node: str
    process: int


class TaskId(NamedTuple):
    """A task within its topology."""

    operator: str
    instance: int


#: The measured columns of a task table.
MEASURES = (
    "processed",
    "received",
    "queue",
    "busy_s",
    "cpu",
    "mem",
    "io",
    "execute_ms",
    "process_ms",
    "state_bytes",
)


@dataclass(frozen=True, slots=True, eq=False)
class TaskTable:
    """All tasks of one topology, as columns. `operator` and `node` are positions in the topology's operators and the
    view's nodes; node and process are -1 for a task that runs nowhere.
    """

    operator: Ints
    index: Ints
    active: Bools
    node: Ints
    process: Ints
    processed: Floats
    received: Floats
    queue: Floats
    busy_s: Floats
    cpu: Floats
    mem: Floats
    io: Floats
    execute_ms: Floats
    process_ms: Floats
    state_bytes: Floats

    @classmethod
    def columns(
        cls,
        operator: npt.ArrayLike,
        index: npt.ArrayLike,
        node: npt.ArrayLike,
        process: npt.ArrayLike,
        active: npt.ArrayLike | None = None,
        **measured: npt.ArrayLike,
    ) -> TaskTable:
        """Build from columns; measures that are left out are zero, `active` is true.

        >>> table = TaskTable.columns(operator=[0, 1], index=[0, 0], node=[0, 0], process=[0, 0], processed=[5, 7])
        >>> len(table), float(table.processed.sum())
        (2, 12.0)
        """
        unknown = set(measured) - set(MEASURES)
        if unknown:
            raise PolicyError(f"task table: unknown columns {sorted(unknown)}; there are {', '.join(MEASURES)}")
        places = [np.array(column, dtype=np.int64) for column in (operator, index, node, process)]
        size = len(places[0])
        on = np.ones(size, dtype=np.bool_) if active is None else np.array(active, dtype=np.bool_)
        values = [
            np.array(measured[name], dtype=np.float64) if name in measured else np.zeros(size) for name in MEASURES
        ]
        for column in (*places, on, *values):
            if column.shape != (size,):
                raise PolicyError(f"task table: every column needs {size} entries, got one of shape {column.shape}")
            column.flags.writeable = False
        return cls(places[0], places[1], on, places[2], places[3], *values)

    def __len__(self) -> int:
        return len(self.operator)

    @property
    def loads(self) -> Floats:
        """The (tasks, 3) matrix of cpu, mem and io use."""
        return np.column_stack((self.cpu, self.mem, self.io))


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """Tuples per second from task to task, with one column per sample of the window.

    `source` and `target` are rows of the task table.
    """

    source: Ints
    target: Ints
    samples: Floats

    @classmethod
    def columns(cls, source: npt.ArrayLike, target: npt.ArrayLike, samples: npt.ArrayLike) -> Traffic:
        """Build from columns; a flat `samples` is one sample per channel."""
        ends = [np.array(column, dtype=np.int64) for column in (source, target)]
        rates = np.asarray(samples, dtype=np.float64)
        if rates.flags.writeable:  # a caller that froze its array is taken at its word: this one is large
            rates = rates.copy()
        if rates.ndim == 1:
            rates = rates.reshape(-1, 1) if len(rates) else rates.reshape(0, 1)
        if not len(ends[0]) == len(ends[1]) == len(rates):
            raise PolicyError(f"traffic: {len(ends[0])} sources, {len(ends[1])} targets, {len(rates)} rates")
        for column in (*ends, rates):
            column.flags.writeable = False
        return cls(ends[0], ends[1], rates)

    @classmethod
    def none(cls) -> Traffic:
        """No channel at all."""
        return cls.columns([], [], np.zeros((0, 1)))

    def __len__(self) -> int:
        return len(self.source)


def table_of(rows: Sequence[Mapping[str, Any]]) -> TaskTable:
    """A task table from one mapping per task, for small views and tests.

    >>> table_of([{"operator": 0, "index": 0, "node": 0, "process": 0, "queue": 3}]).queue.tolist()
    [3.0]
    """
    names = {name for row in rows for name in row} | {"operator", "index", "node", "process"}
    defaults: dict[str, Any] = {"active": True}
    return TaskTable.columns(**{name: [row.get(name, defaults.get(name, 0)) for row in rows] for name in names})
