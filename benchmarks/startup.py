"""Startup: from a command to its first result, embedded and on a Ray of its own, and the memory of a worker.

The commands are those that a user types, not for the first time: the interpreter has its bytecode, whatever this
environment says of that. The topology's sink writes the time down when the first value arrives.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from benchmarks import common
from benchmarks.common import CannotMeasure, Outcome, median
from rstream import Topology, run
from rstream.clock import SystemClock
from rstream.operators import sinks, sources

TIMEOUT_S = 120.0
Figures = dict[str, float]
clock = SystemClock()

TARGET = """
import os, time
from rstream import Topology

MARK = os.path.join(os.path.dirname(os.path.abspath({path!r})), "mark")

def note(value):
    if not os.path.exists(MARK):
        with open(MARK + ".new", "w") as file:
            file.write(repr(time.time()))
        os.rename(MARK + ".new", MARK)

def build():
    topology = Topology("startup")
    topology.source("numbers", list(range(100))).map("double", lambda n: 2 * n).sink("note", note)
    return topology
"""


def first_result(*flags: str) -> Figures:
    """Seconds from starting `rstream run` to the first value at the sink, and to the command's end."""
    common.workers_find_us()
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "first.py")
        target.write_text(TARGET.format(path=str(target)))
        start_s = clock.now()
        command = [sys.executable, "-m", "rstream", "run", str(target), "--json", *flags]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise CannotMeasure(f"rstream run did not end within {TIMEOUT_S:.0f} s") from None
        end_s = clock.now()
        mark = Path(folder, "mark")
        if done.returncode != 0 or not mark.exists():
            raise CannotMeasure(f"rstream run ended with status {done.returncode}: {done.stderr.strip()[-300:]}")
        return {"first_result_s": float(mark.read_text()) - start_s, "end_s": end_s - start_s}


def python_start() -> Figures:
    """Seconds that the interpreter takes to start and end: what no program can go below."""
    start_s = clock.now()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return {"first_result_s": clock.now() - start_s, "end_s": clock.now() - start_s}


def worker_memory() -> Figures:
    """Megabytes of each worker of a small running topology on Ray: shared pages counted in full, and shared out."""
    topology = Topology("memory")
    source = sources.Rate(lambda number: f"word{number % 1000}", per_s=2000, limit=6000)
    topology.source("words", source, parallelism=2).key_by("word").count("count", parallelism=2).sink(
        "latest", sinks.Latest()
    )
    seen: list[tuple[float, float]] = []

    def look(status: dict[str, Any]) -> None:
        for worker in status["workers"]:
            if status["emitted"] > 1000 and status["state"] == "ACTIVE" and not worker["spare"]:
                try:
                    memory = psutil.Process(worker["pid"]).memory_full_info()
                except psutil.Error:
                    continue
                seen.append((memory.rss / 1e6, memory.pss / 1e6))

    with common.one_node_ray():
        run(topology, workers=2, spares=0, folder="", on_status=look)
    if not seen:
        raise CannotMeasure("no worker was seen while the topology ran")
    return {"rss_mb": median([rss for rss, _ in seen]), "pss_mb": median([pss for _, pss in seen])}


def measure(options: argparse.Namespace) -> Outcome:
    """All cases in turn."""
    with tempfile.TemporaryDirectory() as bytecode:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = bytecode
        first_result("--local")
        return measure_all(options)


def measure_all(options: argparse.Namespace) -> Outcome:
    """All cases in turn, with the bytecode of what they have in common."""
    cases: dict[str, Callable[[], Figures]] = {
        "python -c pass": python_start,
        "rstream run --local": partial(first_result, "--local"),
        "rstream run (starts a Ray)": first_result,
    }
    found = common.alternate(cases, common.runs_of(options))
    memory = worker_memory()
    common.progress("")
    return outcome(found, memory)


def outcome(found: dict[str, list[Figures]], memory: Figures) -> Outcome:
    """Medians, as multiples of an empty Python program too."""
    medians = {case: {name: median([run[name] for run in runs]) for name in runs[0]} for case, runs in found.items()}
    reference = medians["python -c pass"]["first_result_s"]
    rows: list[dict[str, Any]] = [
        {
            "case": case,
            **{name: round(value, 3) for name, value in figures.items()},
            "vs_python": round(figures["first_result_s"] / reference, 1),
            "runs": len(found[case]),
        }
        for case, figures in medians.items()
    ]
    rows.append({"case": "memory of a worker on Ray", **{name: round(value, 1) for name, value in memory.items()}})
    return Outcome("startup", rows, notes=["rss_mb counts pages shared with other processes in full, pss_mb by share."])


def main(arguments: list[str]) -> int:
    """Run the benchmark; the status is 1 if it could not measure."""
    return common.finish(common.parser(__doc__ or "").parse_args(arguments), "startup", measure)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
