"""How fast the data jobs run, how they grow with partitions, and that the driver holds no rows.

Growth is measured in one Java, warmed up by a first round of both jobs, with 1, 2 and 4 task threads in turn: a fresh
Java compiles for half a minute on any core that is free, so that one partition on two cores would look faster than two.
Spark's start is not counted. The reference is one plain Python loop that parses and checks the same lines.

Memory is that of the driver alone, in a process of its own: the executors of a local cluster are other processes. The
smaller of its two runs has a tenth of the rows of the larger one.

The replay is measured by the rate that it achieved against the one that it was asked for (`replaying.py`).

    python -m benchmarks.pipeline [--rows N] [--memory-rows N] [--set NAME] [--only PART] [--json] [--quick] [--runs N]
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import common, replaying
from benchmarks.common import CannotMeasure, Goal, Outcome

PARTITIONS = (1, 2, 4)
MEMORY_GROWTH_MAX = 1.25
WARM_UP_ROWS = 300_000
QUICK_ROWS = 20_000
REPLAY_ROWS = 160_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if something could not be measured."""
    parser = common.parser("Rows per second of synth, ingest and replay, and the driver's memory.", runs=3)
    parser.add_argument("--rows", type=int, default=2_000_000, help="rows for the rates")
    parser.add_argument("--memory-rows", type=int, default=10_000_000, help="rows of the larger run for the memory")
    parser.add_argument("--set", dest="name", default="tianchi", help="data set")
    parser.add_argument("--only", choices=("growth", "memory", "replay"), help="measure this part alone")
    parser.add_argument("--child", nargs=3, metavar=("WHAT", "ROWS", "RUNS"), help="one measurement, as JSON")
    options = parser.parse_args(arguments)
    if options.child:
        what, rows, runs = options.child
        print(json.dumps(PARTS[what](options.name, int(rows), int(runs))))
        return 0
    if options.quick:
        options.rows = options.memory_rows = QUICK_ROWS
    return common.finish(options, "pipeline", measure)


def measure(options: Namespace) -> Outcome:
    """All measurements, each part in a process of its own."""
    results: list[dict[str, Any]] = []
    goals: list[Goal] = []
    if options.only in (None, "growth"):
        results += spawn(options.name, "growth", options.rows, common.runs_of(options))
    if options.only in (None, "memory"):
        small, large = (
            spawn(options.name, "memory", max(1, size), 1)[0]
            for size in (options.memory_rows // 10, options.memory_rows)
        )
        results += [small, large]
        for process in ("python", "java"):
            grown = large[f"{process}_peak_mb"] / small[f"{process}_peak_mb"]
            goals.append(Goal(f"driver_{process}_memory_growth", grown, f"<= {MEMORY_GROWTH_MAX}"))
    if options.only in (None, "replay"):
        replayed = spawn("tianchi", "replay", QUICK_ROWS if options.quick else REPLAY_ROWS, 1)
        results += replayed
        goals += [
            Goal("replay_share_at_3600", row["share"], ">= 0.95") for row in replayed if row["asked_per_s"] == 3_600
        ]
    return Outcome("pipeline", results, goals, [f"data set {options.name}"])


def spawn(name: str, what: str, rows: int, runs: int) -> list[dict[str, Any]]:
    """One part in a fresh process."""
    common.progress(f"{what}: {rows:,} rows")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.pipeline", "--set", name, "--child", what, str(rows), str(runs)],
        cwd=Path(__file__).resolve().parents[1],
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode != 0:
        raise CannotMeasure(f"the measurement of {what} ended with status {done.returncode}")
    measured: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return measured


def growth(name: str, rows: int, runs: int) -> list[dict[str, Any]]:
    """Rates with 1, 2 and 4 threads that work on as many partitions, in turn, and that of the plain loop."""
    with started("local[2]") as first, tempfile.TemporaryDirectory(prefix="rstream-bench-") as directory:
        settings = dict(first.sparkContext.getConf().getAll())
        folder = Path(directory)
        both_jobs(first, name, min(rows, WARM_UP_ROWS), 2, folder / "warm")
        reference = plain_python(folder / "warm" / "raw")
        first.stop()

        def with_threads(partitions: int) -> tuple[float, float]:
            session = type(first).builder.config(map=settings | {"spark.master": f"local[{partitions}]"}).getOrCreate()
            try:
                with tempfile.TemporaryDirectory(dir=directory) as fresh:
                    return both_jobs(session, name, rows, partitions, Path(fresh))
            finally:
                session.stop()

        cases = {str(n): lambda n=n: with_threads(n) for n in PARTITIONS}  # type: ignore[misc]
        found = common.alternate(cases, runs)
    table = [{"case": "plain Python loop", "ingest_rows_per_s": reference}]
    for case, rates in found.items():
        row: dict[str, Any] = {"case": f"local[{case}], {case} partitions", "rows": rows, "runs": runs}
        for job, index in (("synth", 0), ("ingest", 1)):
            alone = common.median([rate[index] for rate in found[str(PARTITIONS[0])]])
            row[f"{job}_rows_per_s"] = round(common.median([rate[index] for rate in rates]))
            row[f"{job}_growth"] = round(row[f"{job}_rows_per_s"] / alone, 3)
        table.append(row | {"ingest_vs_loop": round(row["ingest_rows_per_s"] / reference, 3)})
    return table


def memory(name: str, rows: int, runs: int) -> list[dict[str, Any]]:
    """Rates and the driver's peaks with executors in other processes."""
    from pyspark import SparkContext

    with started("local-cluster[2,1,1024]") as session, tempfile.TemporaryDirectory(prefix="rstream-bench-") as folder:
        rates = both_jobs(session, name, rows, 4, Path(folder))
        java_peak_mb = peak_mb(SparkContext._gateway.proc.pid)
    return [
        {
            "case": "driver of local-cluster[2,1,1024]",
            "rows": rows,
            "runs": runs,
            "synth_rows_per_s": round(rates[0]),
            "ingest_rows_per_s": round(rates[1]),
            "python_peak_mb": peak_mb("self"),
            "java_peak_mb": java_peak_mb,
        }
    ]


def replay(name: str, rows: int, runs: int) -> list[dict[str, Any]]:
    """Rates of the replay into a running COMMCount."""
    with (
        started(f"local[{replaying.READERS + 1}]") as session,
        tempfile.TemporaryDirectory(prefix="rstream-bench-") as folder,
    ):
        both_jobs(session, name, rows, 2, Path(folder))
        return replaying.measure(session, Path(folder, "table"), quick=rows == QUICK_ROWS)


PARTS = {"growth": growth, "memory": memory, "replay": replay}


@contextmanager
def started(master: str) -> Iterator[Any]:
    """A Spark with a small driver; what it has to say goes to stderr."""
    from rstream.spark.session import SparkOptions, spark_session

    with spark_session(
        SparkOptions(master, driver_memory="512m"), lambda line: print(line, file=sys.stderr)
    ) as session:
        yield session


def both_jobs(session: Any, name: str, rows: int, partitions: int, folder: Path) -> tuple[float, float]:
    """Synthesise and ingest; rows per second of each. A run whose counts differ gives no figure."""
    from rstream.spark.catalogue import find
    from rstream.spark.ingest import ingest
    from rstream.spark.location import Location
    from rstream.spark.synth import synth

    raw, table = (Location.parse(str(folder / part)) for part in ("raw", "table"))
    start_s = time.monotonic()
    said = synth(session, find(name), raw, rows, 1, partitions)
    made_s = time.monotonic()
    found = ingest(session, find(name), raw, table)
    done_s = time.monotonic()
    common.expect("rows ingested", said["rows"], found["rows"])
    common.expect("status", "ingested", found["status"])
    return rows / (made_s - start_s), rows / (done_s - made_s)


def peak_mb(pid: int | str) -> float:
    """The most memory that a process has held at once."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return round(int(line.split()[1]) / 1024, 1)
    raise CannotMeasure(f"/proc/{pid}/status names no peak")


def plain_python(raw: Path) -> int:
    """Lines per second of one loop that splits and checks every line, and keeps nothing."""
    lines, start_s = 0, time.monotonic()
    for file in sorted(raw.iterdir()):
        if file.name.startswith("_"):
            continue
        with file.open(encoding="utf-8", errors="replace") as stream:
            for line in stream:
                fields = line.rstrip("\n").split(",")
                all(field.isdigit() for field in fields)
                lines += 1
    return round(lines / (time.monotonic() - start_s))


if __name__ == "__main__":
    sys.exit(main())
