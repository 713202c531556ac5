"""Snapshots of a large state under load: how long one turn of the worker's loop takes while they are packed and sent.

One worker holds a keyed state of 200 MB and updates it at a steady rate; the workers of its source hold the fragments,
erasure-coded. The first snapshot is the base, all 200 MB of it; deltas follow every second. Real processes on a Ray of
two nodes. A turn is what lies between two looks at the sockets, waiting left out: no tuple can be taken meanwhile.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from benchmarks import common
from benchmarks.common import CannotMeasure, Goal, Outcome
from rstream import Bolt, Topology, submit
from rstream.api import Context, Out
from rstream.clock import SystemClock, sleep
from rstream.operators import sinks, sources

STATE_BYTES = 200_000_000
VALUE_BYTES = {"large cells": 1000, "small cells": 100}
PER_S = 4000.0
INTERVAL_S = 1.0
PRIME = 1_000_003
"""Steps through the keys so that each is met before one comes again."""


class Filled(Bolt):
    """Holds a large state from the start, and gives one key after the other a new value."""

    def __init__(self, keys: int, value_bytes: int) -> None:
        self.keys, self.value_bytes = keys, value_bytes

    def open(self, ctx: Context) -> None:
        self._cells = ctx.state.value("cells", default="")
        keys = range(self.keys)
        cells = ctx.state.writable("cells", keys)
        for key in keys:
            cells[key] = f"{key:012d}".ljust(self.value_bytes, "x")

    def process(self, value: int, out: Out) -> None:
        self._cells.set(f"{value:012d}".ljust(self.value_bytes, "y"))
        out.emit(value)


class KeyAt:
    """The key of the n-th tuple."""

    def __init__(self, keys: int) -> None:
        self.keys = keys

    def __call__(self, n: int) -> int:
        return n * PRIME % self.keys


def build(name: str, keys: int, value_bytes: int, seconds: float, interval_s: float) -> Topology:
    """Three source tasks, each in a worker that then holds fragments, and the state in a fourth."""
    topology = Topology(name, backup={"interval_s": interval_s}, stats_interval_s=0.5)
    limit = int(PER_S * seconds)
    numbers = topology.source("numbers", sources.Rate(KeyAt(keys), per_s=PER_S, limit=limit), parallelism=3)
    held = numbers.key_by("key").process("state", Filled(keys, value_bytes), parallelism=1)
    held.sink("out", sinks.Discard())
    return topology


def measure_case(name: str, state_bytes: int, value_bytes: int, seconds: float, snapshots: bool) -> dict[str, Any]:
    """One run; the figures of the worker with the state and of its busiest holder."""
    keys = state_bytes // value_bytes
    interval_s = INTERVAL_S if snapshots else 3600.0
    title = name.replace(" ", "-") + ("" if snapshots else "-idle")
    config: dict[str, Any] = {} if snapshots else {"delivery": "at_most_once"}
    handle = submit(build(title, keys, value_bytes, seconds, interval_s), workers=4, spares=0, folder="", **config)
    clock = SystemClock()
    end_s = clock.monotonic() + 300.0 + seconds
    status = handle.status()
    last = status
    healed_s = None
    started_s = clock.monotonic()
    while status["state"] in ("ACTIVE", "INACTIVE") and clock.monotonic() < end_s:
        last = status
        if status["emitted"] == 0:
            started_s = clock.monotonic()
        elif status["healed"] and healed_s is None:
            healed_s = clock.monotonic() - started_s
        sleep(0.5)
        status = handle.status()
    if status["state"] != "FINISHED":
        raise CannotMeasure(f"{title}: the run ended {status['state']}")
    if snapshots and healed_s is None:
        raise CannotMeasure(f"{title}: no base was safe within {seconds:g} s; give it longer")
    common.expect("tuples processed", int(PER_S * seconds), status["operators"][1]["processed"])
    gaps = {bool({"state#0"} & set(worker["tasks"])): 0.0 for worker in last["workers"]}
    for worker in last["workers"]:
        mine = "state#0" in worker["tasks"]
        gaps[mine] = max(gaps[mine], worker["loop_gap_ms_p999"] or 0.0)
    return {
        "case": name if snapshots else f"{name}, no snapshots",
        "state_mb": state_bytes / 1e6,
        "keys": keys,
        "tuples_per_s": PER_S,
        "gap_ms_p999": gaps[True],
        "holder_gap_ms_p999": gaps[False],
        "base_safe_s": healed_s,
        "latency_ms_p99": last["p99_ms"],
    }


def outcome(rows: list[dict[str, Any]]) -> Outcome:
    """The table, and the goal over the cases with snapshots."""
    worst = max(row["gap_ms_p999"] for row in rows if row["base_safe_s"] is not None)
    return Outcome(
        "snapshot",
        rows,
        [Goal("loop_gap_ms_p999", worst, "<= 10")],
        ["gap: the longest turn of the loop in a thousand, over the whole run, base and deltas included"],
    )


def measure(options: argparse.Namespace) -> Outcome:
    """All cases, on a Ray of two nodes."""
    state_bytes = 10_000_000 if options.quick else STATE_BYTES
    seconds = 8.0 if options.quick else 40.0
    rows = []
    with common.two_node_ray():
        for name, value_bytes in VALUE_BYTES.items():
            for snapshots in (False, True):
                common.progress(f"{name}, {'with' if snapshots else 'without'} snapshots")
                rows.append(measure_case(name, state_bytes, value_bytes, seconds, snapshots))
    common.progress("")
    return outcome(rows)


def main(arguments: list[str]) -> int:
    """Run it."""
    options = common.parser(__doc__.splitlines()[0] if __doc__ else "", runs=1).parse_args(arguments)
    return common.finish(options, "snapshot", measure)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
