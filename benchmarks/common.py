"""What every benchmark shares: results and goals, tables and JSON, alternating runs, and a Ray to run on.

A benchmark is a program with `main(arguments)`. It measures, prints, and exits 0 whether or not its goals are met; 1
says that it could not measure. Machines are noisy, so cases take turns, medians count, and goals are ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import operator
import os
import platform
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

from rstream.errors import RStreamError, RunError

T = TypeVar("T")
WIDTH = 160
"""Of tables that go to a file, so that no column is cut."""

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.eq,
}


class CannotMeasure(Exception):
    """The benchmark has no figures to give; the text says why."""


@dataclass(frozen=True, slots=True)
class Goal:
    """One figure with what is wanted of it.

    >>> Goal("per_record", 0.31, ">= 0.25").met
    True
    """

    name: str
    value: float
    goal: str
    counts: bool = True
    """False: what the goal takes for granted does not hold, so that it is not met whatever the value is."""

    @property
    def met(self) -> bool:
        """Whether the value is as wanted."""
        comparison, limit = self.goal.split()
        return self.counts and _COMPARISONS[comparison](self.value, float(limit))

    def as_json(self) -> dict[str, Any]:
        """The goal as DESIGN's contract has it."""
        return {"name": self.name, "value": round(self.value, 4), "goal": self.goal, "met": self.met}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a benchmark found: rows of figures, goals, and remarks that a reader needs."""

    benchmark: str
    results: Sequence[Mapping[str, Any]]
    goals: Sequence[Goal] = ()
    notes: Sequence[str] = field(default=())

    def as_json(self) -> dict[str, Any]:
        """One object, as every benchmark prints with `--json`."""
        return {
            "benchmark": self.benchmark,
            "machine": machine(),
            "results": [dict(row) for row in self.results],
            "goals": [goal.as_json() for goal in self.goals],
            "notes": list(self.notes),
        }

    def show(self) -> None:
        """Print the tables."""
        console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
        console.print(_table(self.benchmark, self.results))
        if self.goals:
            console.print(_table("goals", [goal.as_json() for goal in self.goals]))
        for note in self.notes:
            console.print(f"  {note}", highlight=False)


def _table(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    table = Table(title=title, title_justify="left")
    for column in columns:
        numeric = any(isinstance(row.get(column), int | float) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    return table


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) or (isinstance(value, float) and abs(value) >= 1000):
        return f"{value:,.0f}"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def machine() -> str:
    """The machine in a few words; nothing of it identifies the host."""
    return f"{os.cpu_count()} CPUs, {platform.system()} {platform.machine()}, Python {platform.python_version()}"


def parser(description: str, runs: int = 5) -> argparse.ArgumentParser:
    """The options that all benchmarks have."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    options.add_argument("--quick", action="store_true", help="small sizes and one run: shows that it works")
    options.add_argument("--runs", type=_count, default=None, help=f"how often each case runs (default {runs})")
    options.set_defaults(default_runs=runs)
    return options


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"wanted 1 or more, got {number}")
    return number


def runs_of(options: argparse.Namespace) -> int:
    """How often each case runs."""
    return int(options.runs or (1 if options.quick else options.default_runs))


def finish(options: argparse.Namespace, name: str, measure: Callable[[argparse.Namespace], Outcome]) -> int:
    """Measure and print; the exit status of the program."""
    try:
        outcome = measure(options)
    except (CannotMeasure, RStreamError) as error:
        print(f"benchmark {name}: could not measure: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(outcome.as_json()))
    else:
        outcome.show()
    return 0


def alternate(cases: Mapping[str, Callable[[], T]], runs: int) -> dict[str, list[T]]:
    """Run all cases in turn, `runs` times; every other round backwards, so that a drift of the machine evens out.

    >>> order = []
    >>> cases = {name: lambda name=name: order.append(name) for name in "ab"}
    >>> _ = alternate(cases, 2); order
    ['a', 'b', 'b', 'a']
    """
    found: dict[str, list[T]] = {name: [] for name in cases}
    for number in range(runs):
        names = list(cases) if number % 2 == 0 else list(cases)[::-1]
        for name in names:
            progress(f"run {number + 1} of {runs}: {name}")
            found[name].append(cases[name]())
    return found


def progress(text: str) -> None:
    """Say on a terminal what is being measured; programs that read our output are not disturbed."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
        if not text:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def median(values: Sequence[float]) -> float:
    """The middle of an odd number of runs."""
    return float(statistics.median(values))


def quantiles_ms(latencies_s: Sequence[float]) -> dict[str, float]:
    """p50, p95 and p99 in milliseconds."""
    import numpy as np

    if not len(latencies_s):
        raise CannotMeasure("no latency was recorded")
    shares = np.quantile(np.asarray(latencies_s), [0.50, 0.95, 0.99])
    return {name: float(value) * 1000 for name, value in zip(("p50_ms", "p95_ms", "p99_ms"), shares, strict=True)}


def two_node_ray(cpus: int = 4) -> contextlib.AbstractContextManager[str]:
    """A private Ray of two nodes on this machine for as long as the block lasts; gives its address."""
    return many_node_ray(2, cpus)


@contextlib.contextmanager
def many_node_ray(nodes: int, cpus: int) -> Iterator[str]:
    """The same of so many nodes."""
    from rstream.runtime.many_nodes import many_nodes

    workers_find_us()
    with many_nodes(nodes, cpus) as found:
        yield found.address


@contextlib.contextmanager
def one_node_ray(cpus: int = 4) -> Iterator[None]:
    """A private Ray of one node for as long as the block lasts."""
    from rstream.runtime import cluster

    cluster.settings()
    workers_find_us()
    with cluster.private(cpus):
        yield


def workers_find_us() -> None:
    """Let every process started from here import this package and the rstream that it measures."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    others = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != root]
    os.environ["PYTHONPATH"] = os.pathsep.join([root, *others])


def expect(name: str, wanted: Any, got: Any) -> None:
    """A measurement of wrong results is none."""
    if wanted != got:
        raise RunError(f"{name}: wanted {wanted!r}, got {got!r}")
