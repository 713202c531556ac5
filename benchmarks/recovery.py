"""Recovery: how long a killed worker delays results, with backups on other workers and with checkpoints in a store.

Real processes on a Ray of two nodes, SIGKILL, real bytes; after each run the counts are held against the truth, and a
wrong one is no figure. Both backends have the same spares, failure detection, load and cap on bytes: what a node sends,
what it receives, and what the store sends and receives, 12.5 MB/s each (the papers' 100 Mbit/s). Experiments by the
numbers of the papers' figures (docs/benchmarks.md): E13, E15, S5; S8 to S10 are the coder alone.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from benchmarks import common, throughput
from benchmarks.common import Goal, Outcome, median
from benchmarks.corpus import Corpus
from benchmarks.failing import Case, run_case
from rstream import run
from rstream.clock import SystemClock
from rstream.state.erasure import Label, decode, encode

CAP_BYTES_PER_S = 12.5e6
BACKENDS = ("upstream", "checkpoint")
PARTS = ("e15", "e13", "s5", "coder", "share")
CODER_BYTES = 10_000_000
CODER_RUNS = 9
"""The least of so many counts: whatever else the machine does only adds to it."""


def cases(part: str, quick: bool, capped: bool) -> list[Case]:
    """What is run for a part, without the backends."""
    cap = CAP_BYTES_PER_S if capped else None
    if part == "e15":
        intervals = [2.0] if quick or not capped else [2.0, 5.0]
        return [Case("E15", "", 4.0 if quick else 42.0, each, 1800.0, bytes_per_s=cap) for each in intervals]
    if part == "e13":
        growing = [1.0] if quick else [10.0, 42.0, 84.0]
        return [Case("E13", "", size, 5.0, 900.0, bytes_per_s=cap) for size in growing] if capped else []
    if part == "s5":
        sizes = [2.0] if quick else [40.0, 200.0] if capped else [200.0]
        return [Case("S5", "", size, 2.0, 500.0, bytes_per_s=cap, on_one=True) for size in sizes]
    return []


def coder(quick: bool) -> list[dict[str, Any]]:
    """S8 to S10: encode and decode 10 MB, by raw and check fragments, and by how many of which kind are lost."""
    data = os.urandom(CODER_BYTES // 10 if quick else CODER_BYTES)
    grid: list[tuple[str, int, int, int, bool]] = [("S8", r, 3, 3, True) for r in (6, 8, 10, 12, 14, 16)]
    grid += [("S9", 8, c, c, True) for c in range(2, 9)]
    grid += [("S10", 8, 8, lost, raw) for raw in (True, False) for lost in range(1, 9)]
    rows = []
    for experiment, r, c, lost, raw in grid[:: 6 if quick else 1]:
        encode_s, fragments = _timed(lambda r=r, c=c: encode(data, r, c, Label("task/0", (1, 1))))  # type: ignore[misc]
        kept = fragments[lost:] if raw else fragments[: len(fragments) - lost]
        decode_s, back = _timed(lambda kept=kept, r=r: decode(kept[:r]))  # type: ignore[misc]
        common.expect(f"{experiment}: bytes", True, back == data)
        rows.append(
            {
                "experiment": experiment,
                "r": r,
                "c": c,
                "lost": f"{lost} {'raw' if raw else 'check'}",
                "encode_ms": 1000 * encode_s,
                "decode_ms": 1000 * decode_s,
            }
        )
    return rows


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    took = []
    for _ in range(CODER_RUNS):
        start_s = SystemClock.monotonic()
        answer = call()
        took.append(SystemClock.monotonic() - start_s)
    return min(took), answer


def share(quick: bool, runs: int) -> list[dict[str, Any]]:
    """Throughput with exactly-once over that with at-most-once: WordCount at full speed on two workers."""
    corpus = Corpus(sentences=20_000 if quick else 200_000)
    wanted = corpus.counts()

    def rate(delivery: str) -> float:
        report = run(throughput.per_record(corpus, 2), workers=2, spares=0, folder="", delivery=delivery)
        return throughput.checked_rate(report, corpus, wanted, equal_work=True).per_s

    modes = ("at_most_once", "exactly_once")
    found = common.alternate({mode: lambda mode=mode: rate(mode) for mode in modes}, runs)  # type: ignore[misc]
    return [
        {"experiment": "share", "delivery": mode, "words_per_s": median(found[mode]), "runs": runs} for mode in modes
    ]


def failures(parts: Iterable[str], quick: bool, runs: int, seed: int) -> list[dict[str, Any]]:
    """Every case with both backends in turn, as often as asked; medians."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="rstream-recovery-") as name:
        chance = random.Random(seed)
        for part in parts:
            for case in [*cases(part, quick, True), *cases(part, quick, False)]:
                turns = {
                    backend: partial(run_case, replace(case, backend=backend), Path(name), chance)
                    for backend in BACKENDS
                }
                many = runs if (part, case.interval_s, case.bytes_per_s) == ("e15", 2.0, CAP_BYTES_PER_S) else 1
                for found in common.alternate(turns, many).values():
                    rows.append({**_medians(found), "runs": len(found)})
    return rows


def _medians(found: list[dict[str, Any]]) -> dict[str, Any]:
    row = dict(found[0])
    for key, value in row.items():
        if key.endswith("_s") and key not in ("interval_s", "mb_per_s") and isinstance(value, float):
            row[key] = median([each[key] for each in found if each[key] is not None])
    return row


def outcome(rows: list[dict[str, Any]]) -> Outcome:
    """The table, and the goals for which there are figures."""
    goals = []
    for goal, experiment, wanted in (("e15_ratio", "E15", "<= 0.45"), ("s5_200mb_ratio", "S5", "<= 0.83")):
        times = {
            row["backend"]: row["recovery_s"]
            for row in rows
            if row["experiment"] == experiment and row["mb_per_s"] and row["interval_s"] == 2.0
            if experiment == "E15" or row["state_mb"] == max(r["state_mb"] for r in rows if r["experiment"] == "S5")
        }
        if len(times) == len(BACKENDS):
            goals.append(Goal(goal, times["upstream"] / times["checkpoint"], wanted))
    rates = {row["delivery"]: row["words_per_s"] for row in rows if row["experiment"] == "share"}
    if rates:
        goals.append(Goal("exactly_once_share", rates["exactly_once"] / rates["at_most_once"], ">= 0.80"))
    return Outcome(
        "recovery",
        rows,
        goals,
        [
            "recovery: from SIGKILL until the last tuple that it delayed by more than 0.3 s has arrived at the sink;",
            "detect, start, restore (fetch, decode and load overlap in it) and replay are its phases as the engine",
            "measures them; what is left is tuples that are read again and caught up with. mb_per_s: the cap, if any.",
        ],
    )


def measure(options: argparse.Namespace) -> Outcome:
    """The parts asked for."""
    parts = options.only or list(PARTS)
    rows: list[dict[str, Any]] = coder(options.quick) if "coder" in parts else []
    failing = [part for part in parts if cases(part, options.quick, True)]
    runs = common.runs_of(options)
    if failing:
        with common.two_node_ray():
            rows += failures(failing, options.quick, runs, options.seed)
    if "share" in parts:
        with common.one_node_ray():
            rows += share(options.quick, runs)
    common.progress("")
    return outcome(rows)


def main(arguments: list[str]) -> int:
    """Run it."""
    options = common.parser(__doc__.splitlines()[0] if __doc__ else "", runs=3)
    options.add_argument("--only", action="append", choices=PARTS, help="only this part; may be repeated")
    options.add_argument("--seed", type=int, default=1, help="of the moments at which is killed")
    return common.finish(options.parse_args(arguments), "recovery", measure)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
