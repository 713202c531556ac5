"""Rescale: a keyed step with 42 MB of state from 2 tasks to 8 under load (E14), live and by a restart.

Real processes on a Ray of two nodes. *live* is `state.backend: upstream` and `rebalance`, *restart* is `checkpoint` and
Storm's way: stop, save, start with another parallelism. Both have the same load, workers, spares and cap on bytes (what
a node sends and receives, and the store of checkpoints, 12.5 MB/s each; the savepoint of the restart has none). After
each run the counts are held against an independent count, and a wrong one is no figure.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from benchmarks import common
from benchmarks.common import CannotMeasure, Goal, Outcome, median
from benchmarks.recovery import CAP_BYTES_PER_S
from benchmarks.stateful import (
    CELL_BYTES,
    PRIME,
    READY_TIMEOUT_S,
    WARM_S,
    Scheduled,
    delayed_s,
    end,
    start,
    wait_calm,
    wait_ready,
)
from rstream.client import Handle
from rstream.clock import SystemClock, sleep
from rstream.core.versions import SlotMap, Version
from rstream.keys import slot_of

FROM, TO = 2, 8
PER_S = 1800.0
INTERVAL_S = 2.0
LOOK_EVERY_S = 0.01
_clock = SystemClock()


@dataclass(frozen=True)
class Way:
    """How the parallelism is changed."""

    name: str
    backend: str
    change: Callable[[Handle], None]
    is_done: Callable[[dict[str, Any]], bool]
    after: Version
    """Who owns what in the end."""


FIRST = Version.first(FROM)
WAYS = (
    Way(
        "live",
        "upstream",
        lambda handle: handle.rebalance({"count": TO}),
        lambda status: status["state"] == "ACTIVE",
        FIRST.shared_by(range(TO), 1),
    ),
    Way(
        "restart",
        "checkpoint",
        lambda handle: handle.restart({"count": TO}),
        lambda status: status["state"] == "ACTIVE" and status["restarts"] == 1,
        Version.first(TO),
    ),
)


def moved(keys: Sequence[int], before: Version, after: Version) -> list[bool]:
    """For each key, whether it is another task's afterwards.

    >>> round(sum(moved(range(10_000), FIRST, FIRST.shared_by(range(8), 1))) / 10_000, 1)
    0.7
    """
    old, new = SlotMap(before.spans), SlotMap(after.spans)
    return [old[slot][0] != new[slot][0] for slot in map(slot_of, keys)]


def run_way(way: Way, state_mb: float, calm_s: float, folder: Path, numbers: Iterator[int]) -> dict[str, Any]:
    """Gather the state, change the parallelism under load, and give the times; wrong counts are an error."""
    keys = int(state_mb * 1e6 / CELL_BYTES)
    path = folder / f"{way.name}-{next(numbers)}.arrivals"
    source = Scheduled(_clock.now() + WARM_S, keys, PER_S)
    handle = start(f"e14-{way.name}", source, path, FROM, INTERVAL_S, way.backend, CAP_BYTES_PER_S)
    wait_ready(handle, path, source)
    sleep(calm_s)
    asked_s = _clock.now()
    way.change(handle)
    change_s, processes_s = _wait_done(handle, way, asked_s)
    status = wait_calm(handle, path, source, way.is_done)
    (counting,) = [step for step in status["operators"] if step["name"] == "count"]
    common.expect(f"{handle.name}: tasks", (TO, TO), (counting["parallelism"], counting["active"]))
    arrivals = end(handle, path, source)
    delay_s = delayed_s(arrivals, source, asked_s)
    return {
        "way": way.name,
        "state_mb": state_mb,
        "change_s": change_s,
        "delayed_s": delay_s,
        "repartition_s": max(change_s, delay_s),
        "processes_s": processes_s,
        **latencies(arrivals, source, way, asked_s, max(change_s, delay_s), calm_s),
    }


def latencies(
    arrivals: dict[int, float], source: Scheduled, way: Way, asked_s: float, took_s: float, calm_s: float
) -> dict[str, float]:
    """p99 of the time from when a tuple was due until it arrived: before and during the change, by whether it moves."""
    moves = moved(source.items, FIRST, way.after)
    found: dict[tuple[str, str], list[float]] = {}
    for n, arrived_s in arrivals.items():
        due_s = source.due_s(n)
        if n >= source.keys and asked_s - calm_s <= due_s < asked_s + took_s:
            kind = "moved" if moves[n * PRIME % source.keys] else "unmoved"
            found.setdefault((kind, "before" if due_s < asked_s else "during"), []).append(arrived_s - due_s)
    row = {}
    for kind, time in (("unmoved", "before"), ("unmoved", "during"), ("moved", "during")):
        row[f"{kind}_{time}_ms"] = common.quantiles_ms(found.get((kind, time), ()))["p99_ms"]
    return row


def _wait_done(handle: Handle, way: Way, asked_s: float) -> tuple[float, float]:
    """Wait until the engine says that the change is made: how long that took, and of it the start of processes."""
    end_s = _clock.monotonic() + READY_TIMEOUT_S
    stopped_s = there_s = None
    while not way.is_done(status := handle.status()):
        now_s = _clock.now()
        if stopped_s is None and status["restarts"]:
            stopped_s = now_s
        if stopped_s is not None and there_s is None and all(w["pid"] for w in status["workers"] if not w["spare"]):
            there_s = now_s
        if _clock.monotonic() > end_s:
            raise CannotMeasure(f"{handle.name}: the change was not made within {READY_TIMEOUT_S:g} s")
        sleep(LOOK_EVERY_S)
    done_s = _clock.now()
    return done_s - asked_s, 0.0 if stopped_s is None else (there_s or done_s) - stopped_s


def outcome(found: dict[str, list[dict[str, Any]]]) -> Outcome:
    """Medians, and the goals."""
    rows = []
    for runs in found.values():
        figures = {key: median([run[key] for run in runs]) for key in runs[0] if key.endswith(("_s", "_ms"))}
        rows.append({**runs[0], **figures, "runs": len(runs)})
    live, restart = (next(row for row in rows if row["way"] == way.name) for way in WAYS)
    without = live["repartition_s"] / (restart["repartition_s"] - restart["processes_s"])
    unmoved = [run["unmoved_during_ms"] / run["unmoved_before_ms"] for run in found["live"]]
    return Outcome(
        "rescale",
        rows,
        [
            Goal("unmoved_p99_ratio", median(unmoved), "<= 1.5"),
            Goal("repartition_ratio", live["repartition_s"] / restart["repartition_s"], "<= 0.38"),
        ],
        [
            f"{FROM} to {TO} tasks at {PER_S:g} tuples/s. change: from the request until the engine says it is made;",
            "delayed: until the last tuple that it delayed by more than 0.3 s has arrived; repartition: the later of",
            "both, of which processes: until the new ones were there. Over a restart without that time the ratio would",
            f"be {without:.3g}. Milliseconds: p99 from when a tuple was due until it arrived, in",
            "the seconds before the request and during the repartition, of keys that stay with their task, and others.",
        ],
    )


def measure(options: argparse.Namespace) -> Outcome:
    """Both ways in turn, on one Ray."""
    state_mb, calm_s = (4.0, 2.0) if options.quick else (42.0, 5.0)
    numbers = count()
    with tempfile.TemporaryDirectory(prefix="rstream-rescale-") as name, common.two_node_ray():
        turns = {way.name: partial(run_way, way, state_mb, calm_s, Path(name), numbers) for way in WAYS}
        found = common.alternate(turns, common.runs_of(options))
    common.progress("")
    return outcome(found)


def main(arguments: list[str]) -> int:
    """Run it."""
    options = common.parser(__doc__.splitlines()[0] if __doc__ else "", runs=3)
    return common.finish(options.parse_args(arguments), "rescale", measure)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
