"""What the monitor costs: the same word count with workers that report twice a second, and with silent ones.

Both cases take turns on one Ray. A report is made on a thread of the worker, so what it takes from the stream is CPU
time and the interpreter lock: the goal compares words for each second of CPU time of the busiest process, which other
work on the machine disturbs less than words a second; the table has both.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial

from benchmarks import common
from benchmarks.common import Goal, Outcome, median
from benchmarks.corpus import Corpus
from benchmarks.throughput import Rate, batched, checked_rate
from rstream import run

CASES = {"reports twice a second": 0.5, "silent": 3600.0}
WORKERS = 2


def counted(interval_s: float, corpus: Corpus, wanted: dict[str, int]) -> Rate:
    """One run, checked."""
    settings = {"stats_interval_s": interval_s, "lease_s": 3600.0}
    report = run(batched(corpus, WORKERS), workers=WORKERS, spares=0, folder="", **settings)
    return checked_rate(report, corpus, wanted, False)


def measure(options: argparse.Namespace) -> Outcome:
    """Both cases in turn, on one private Ray."""
    corpus = Corpus(sentences=options.sentences or (40_000 if options.quick else 800_000))
    wanted = corpus.counts()
    with common.one_node_ray():
        cases = {name: partial(counted, interval_s, corpus, wanted) for name, interval_s in CASES.items()}
        found = common.alternate(cases, common.runs_of(options))
    common.progress("")
    return outcome(found, corpus)


def outcome(found: dict[str, list[Rate]], corpus: Corpus) -> Outcome:
    """The share of throughput that reporting takes."""
    with_reports, silent = (found[name] for name in CASES)
    rows = [
        {
            "case": name,
            "words_per_s": round(median([rate.per_s for rate in rates])),
            "words_per_cpu_s": round(median([rate.per_cpu_s for rate in rates])),
            "runs": len(rates),
        }
        for name, rates in found.items()
    ]
    # Runs of one round are neighbours in time: their ratio says more than that of two medians.
    overhead = 1 - median([one.per_cpu_s / other.per_cpu_s for one, other in zip(with_reports, silent, strict=True)])
    by_time = 1 - median([one.per_s / other.per_s for one, other in zip(with_reports, silent, strict=True)])
    return Outcome(
        "monitor",
        rows,
        [Goal("overhead", overhead, "<= 0.02")],
        [
            f"{corpus.words:,} words a run, all checked. By words a second instead the overhead is {by_time:.3f}; its",
            f"runs differ by {_spread(silent):.3f} among themselves.",
        ],
    )


def _spread(rates: list[Rate]) -> float:
    values = [rate.per_s for rate in rates]
    return (max(values) - min(values)) / median(values)


def main(arguments: list[str]) -> int:
    """Run the benchmark; the status is 1 if it could not measure."""
    options = common.parser(__doc__ or "")
    options.add_argument("--sentences", type=int, help="size of the text, whole thousands (default 800000)")
    return common.finish(options.parse_args(arguments), "monitor", measure)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
