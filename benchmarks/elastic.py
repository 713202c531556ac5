"""Elasticity: the papers' load profiles on real processes under policies, against a fixed size and against restarts.

Profiles E10, R6 and P0, scaled to one machine with several Ray nodes (`benchmarks/varying.py`); all policies of a
profile get the same topology, load, workers and first size, and only the policy differs. The counts are held against an
independent count, except where a policy loses tuples by design (`dabs`), whose losses are input minus output. The part
`stall` changes a keyed step by hand, live and by a restart.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from benchmarks import common, rescale
from benchmarks.common import CannotMeasure, Goal, Outcome, median
from benchmarks.stateful import read_arrivals, written
from benchmarks.varying import PROFILES, Profile, Trace
from rstream import submit
from rstream.client import Handle
from rstream.clock import SystemClock, sleep
from rstream.core.records import OVER
from rstream.schedulers import registry
from rstream.schedulers.psps import score

NODES, SLOTS_PER_NODE = 4, 2
INTERVAL_S = 2.0
LOOK_EVERY_S = 0.5
READY_TIMEOUT_S = 240.0
OVERTIME_S = 90.0
"""So long after the load's end a run may work off what waits."""
EQUAL = 1.1
"""Latencies that differ by less than this are equal."""
RESTART = "es, restart"
PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "es": {"adjust_interval_s": INTERVAL_S, "beta": 0.25},
    "ra": {"cooldown_s": INTERVAL_S},
    "psps": {"benchmark_s": 2 * INTERVAL_S, "benchmark_sample_s": 1.0},
    "me": {"cooldown_s": INTERVAL_S},
    "sl": {"pause_s": 0.2},
    "drs": {"intervals_between": 1},
    "sp-ant": {"ants": 2, "iterations": 2},
    "dabs": {"window_s": 2 * INTERVAL_S, "sample_s": 1.0, "downtime_s": INTERVAL_S},
}
"""What the papers give in minutes, in the seconds of these loads; E10's price of an instance."""
QUICK = {"e10": ("static", "es", RESTART), "r6": ("even", "ra"), "p0": ("static", "psps", "dabs")}
PARTS = (*PROFILES, "stall")
_clock = SystemClock()


@dataclass(frozen=True)
class Run:
    """One profile under one policy, as it is run."""

    profile: Profile
    case: str
    folder: Path
    numbers: Iterator[int]

    @property
    def policy(self) -> str:
        """The policy of the case."""
        return self.case.partition(",")[0]

    @property
    def loses(self) -> bool:
        """Whether tuples are lost by design."""
        return self.policy == "dabs"

    @property
    def sizes(self) -> dict[str, int]:
        """What it starts with; a fixed size in P0 is the one that suffices for the peak."""
        steps = self.profile.sizes
        widest = self.policy == "static" and self.profile.id == "P0"
        return {step: self.profile.most // len(steps) if widest else size for step, size in steps.items()}

    def flags(self) -> dict[str, Any]:
        """Its settings."""
        flags: dict[str, Any] = {
            "control.interval_s": 2 * INTERVAL_S if self.policy == "dabs" else INTERVAL_S,
            "control.parameters": dict(PARAMETERS.get(self.policy, {})),
            "control.slots_per_node": SLOTS_PER_NODE,
            "control.tasks_per_slot": 8,
            "control.restart_uri": str(self.folder),
        }
        if self.case == RESTART:
            flags["control.execute"] = "restart"
        if self.loses:
            flags["delivery"] = "at_most_once"
        if self.policy == "psps":
            each = self.profile.most // len(self.sizes)
            flags["pools"] = {s: each - self.sizes[s] for s, _, keyed in self.profile.steps if not keyed}
        return flags

    def measure(self) -> dict[str, Any]:
        """Run it to its end; gives the figures. Wrong counts are an error."""
        number = next(self.numbers)
        path = self.folder / f"{number}.arrivals"
        trace = Trace(self.folder / f"{number}.gate", self.profile.phases)
        name = f"{self.profile.id}-{self.case.replace(', ', '-')}".lower()
        topology = self.profile.build(name, trace, path, self.sizes)
        settings = {"workers": self.profile.workers, "spares": 0, "folder": "", **self.flags()}
        handle = submit(topology, policy=self.policy, **settings)
        _wait_running(handle)
        start_s = _clock.now()
        trace.begin(start_s)
        looks = list(_looks(handle, start_s + trace.seconds))
        if handle.state() not in OVER:
            handle.kill(drain=True)
        handle.wait(READY_TIMEOUT_S)
        arrived = read_arrivals(path)
        common.expect(f"{name}: tuples that came twice", 0, written(path) - len(arrived))
        if not self.loses:
            common.expect(f"{name}: counts", [self.profile.truth(arrived)], handle.results("arrivals"))
        return {**self._figures(trace, start_s, arrived), **self._used(looks), **_changes(handle)}

    def _figures(self, trace: Trace, start_s: float, arrived: Mapping[int, float]) -> dict[str, Any]:
        due_s = [start_s + after_s for after_s in trace.due_after_s()]
        waited = common.quantiles_ms([at_s - due_s[n] for n, at_s in arrived.items()])
        seconds = int(trace.seconds)
        came = [sum(second <= at_s - start_s < second + 1 for at_s in due_s) for second in range(seconds)]
        went = [sum(second <= at_s - start_s < second + 1 for at_s in arrived.values()) for second in range(seconds)]
        rated = score(came, went, [], 1.0, len(arrived) / trace.limit)
        return {
            "profile": self.profile.id,
            "case": self.case,
            "p50_ms": waited["p50_ms"],
            "p99_ms": waited["p99_ms"],
            "degradation": rated.degradation,
            "processed": rated.processed,
            "lost": trace.limit - len(arrived),
        }

    def _used(self, looks: list[tuple[int, int]]) -> dict[str, float]:
        replicas = sum(active for active, _ in looks) / len(looks)
        nodes = sum(nodes for _, nodes in looks) / len(looks)
        return {"replicas": replicas, "nodes": nodes, "saved": 1 - replicas / self.profile.most}


def _wait_running(handle: Handle) -> None:
    end_s = _clock.monotonic() + READY_TIMEOUT_S
    while not ((status := handle.status())["state"] == "ACTIVE" and all(w["pid"] for w in status["workers"])):
        if _clock.monotonic() > end_s:
            raise CannotMeasure(f"{handle.name}: not running within {READY_TIMEOUT_S:g} s")
        sleep(LOOK_EVERY_S)


def _looks(handle: Handle, load_end_s: float) -> Iterator[tuple[int, int]]:
    """Active replicas and used nodes, twice a second while the load lasts; ends when what waits is worked off."""
    while (status := handle.status())["state"] not in OVER and _clock.now() < load_end_s + OVERTIME_S:
        if _clock.now() < load_end_s:
            bolts = [step["active"] for step in status["operators"] if step["kind"] == "bolt" and step["name"] != "one"]
            yield sum(bolts), len({worker["node"] for worker in status["workers"] if worker["tasks"]})
        sleep(LOOK_EVERY_S)


def _changes(handle: Handle) -> dict[str, Any]:
    """How often the topology was changed, and how long what had to wait for a change waited, on average."""
    done = [entry for entry in handle.explain() if entry["state"] == "done" and entry["steps"]]
    paused = [entry["paused_ms"] for entry in done]
    return {"changes": len(done), "stall_ms": sum(paused) / len(paused) if paused else None}


def outcome(rows: list[dict[str, Any]]) -> Outcome:
    """The table, and the goals for which there are figures."""
    by = {(row["profile"], row["case"]): row for row in rows}
    goals = []
    if {("E10", "es"), ("E10", "static")} <= by.keys():
        goals.append(Goal("es_p99_vs_static", by["E10", "es"]["p99_ms"] / by["E10", "static"]["p99_ms"], "< 1"))
    if ("P0", "psps") in by:
        goals.append(Goal("psps_lost", by["P0", "psps"]["lost"], "= 0"))
    if {("P0", "psps"), ("P0", "dabs")} <= by.keys():
        processed = by["P0", "psps"]["processed"] / by["P0", "dabs"]["processed"]
        goals.append(Goal("psps_processed_vs_dabs", processed, "> 1"))
    if {("R6", "ra"), ("R6", "even")} <= by.keys():
        ra, even = by["R6", "ra"], by["R6", "even"]
        as_quick = ra["p50_ms"] <= EQUAL * even["p50_ms"]
        goals.append(Goal("ra_nodes_vs_even", ra["nodes"] / even["nodes"], "< 1", as_quick))
    if {("stall", "live"), ("stall", "restart")} <= by.keys():
        stall = by["stall", "live"]["stall_ms"] / by["stall", "restart"]["stall_ms"]
        goals.append(Goal("moved_stall_vs_restart", stall, "<= 0.2"))
    return Outcome(
        "elastic",
        rows,
        goals,
        [
            "Latencies from when a tuple was due. degradation: mean of |in - out| / in over seconds; replicas, nodes:",
            "mean over the load; saved: replicas not used, of those that suffice for the peak; stall: what waits for a",
            "change waits so long, on average over the changes; in the part stall, p99 of keys that changed hands.",
            f"ra_nodes_vs_even counts only where ra's p50 is at most {EQUAL:g} times even's.",
        ],
    )


def stalls(folder: Path, numbers: Iterator[int], runs: int) -> list[dict[str, Any]]:
    """A keyed step from 2 to 8 tasks by hand, live and by a restart."""
    turns = {way.name: partial(rescale.run_way, way, 1.0, 2.0, folder, numbers) for way in rescale.WAYS}
    return [
        {"profile": "stall", "case": name, "stall_ms": median([run["moved_during_ms"] for run in found])}
        for name, found in common.alternate(turns, runs).items()
    ]


def measure(options: argparse.Namespace) -> Outcome:
    """The parts asked for, each on a Ray of several nodes."""
    rows: list[dict[str, Any]] = []
    numbers, runs = count(), common.runs_of(options)
    everybody = (*registry.names(), RESTART)
    with tempfile.TemporaryDirectory(prefix="rstream-elastic-") as name:
        for part in options.only or PARTS:
            if part == "stall":
                with common.two_node_ray():
                    rows += stalls(Path(name), numbers, runs)
                continue
            profile = PROFILES[part](options.quick)
            cases = options.case or (QUICK[part] if options.quick else everybody)
            turns = {case: Run(profile, case, Path(name), numbers).measure for case in cases}
            with common.many_node_ray(NODES, profile.cpus):
                rows += [_medians(found) for found in common.alternate(turns, runs).values()]
    common.progress("")
    return outcome(rows)


def _medians(found: list[dict[str, Any]]) -> dict[str, Any]:
    """One row of several runs."""
    row = dict(found[0])
    for key in row:
        values = [run[key] for run in found if run[key] is not None]
        if values and not isinstance(values[0], str):
            row[key] = median(values)
    return row


def main(arguments: list[str]) -> int:
    """Run it."""
    options = common.parser(__doc__.splitlines()[0] if __doc__ else "", runs=1)
    options.add_argument("--only", action="append", choices=PARTS, help="only this part; may be repeated")
    options.add_argument("--case", action="append", choices=[*registry.names(), RESTART], help="only this policy")
    return common.finish(options.parse_args(arguments), "elastic", measure)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
