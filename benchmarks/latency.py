"""Latency: WordCount at 3,000 sentences/s, from the making of a sentence to each of its updates at the sink.

Every tier of rstream, Bytewax with one worker and with two processes, and a bare pipe between two processes, all in
turn and with the same stamps. On the process and the node tier every word goes from the worker with source and split to
the one with count and sink: the words are chosen so that all belong to the second task of `count`. Bytewax routes
by its own hash, so about half of the words stay in its first process.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import pickle
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from benchmarks import common
from benchmarks.common import CannotMeasure, Goal, Outcome, median
from benchmarks.paced import Notes, Pacer, Sentence, Word, latencies, now, split
from rstream import Bolt, Topology, run
from rstream.api import Context, Out, Reader, Source
from rstream.clock import sleep

PER_S = 3000.0
Figures = dict[str, float]


class Paced(Source):
    """Sentences at a steady rate, from one task."""

    def __init__(self, per_s: float, seconds: float) -> None:
        self.per_s, self.seconds = per_s, seconds

    def splits(self, parallelism: int) -> Sequence[str]:
        return ["all"]

    def reader(self, split: str, offset: Any) -> Reader:
        return PacedReader(Pacer(self.per_s, self.seconds))


class PacedReader(Reader):
    """Asks to be called again when the next sentence is due."""

    def __init__(self, pacer: Pacer) -> None:
        self._pacer = pacer

    def read(self, limit: int) -> list[Any] | None:
        if self._pacer.ended:
            return None
        sentences = self._pacer.take(limit)
        self.idle_s = max(0.0, self._pacer.next_due_s - now())
        return list(sentences)

    @property
    def offset(self) -> int:
        return self._pacer.given


class CountWords(Bolt):
    """A running count for each word, with the stamps of what changed it."""

    def open(self, ctx: Context) -> None:
        self._count = ctx.state.value("count", default=0)

    def process(self, value: Word, out: Out) -> None:
        word, created_s, due_s = value
        count = self._count.get() + 1
        self._count.set(count)
        out.emit((word, count, created_s, due_s))


class NotesSink(Bolt):
    """Notes every update."""

    def __init__(self) -> None:
        self._notes = Notes()

    def process(self, value: tuple[str, int, float, float], out: Out) -> None:
        self._notes.note(*value)

    def results(self) -> list[Any]:
        """The notes, if there are any."""
        return [self._notes.packed()] if self._notes.latest else []


def topology(parallelism: int, per_s: float, seconds: float) -> Topology:
    """With a parallelism of 2, source and split are on the first worker and all words belong to the second."""
    topology = Topology("latency")
    (
        topology.source("sentences", Paced(per_s, seconds))
        .flat_map("split", split, fields=("word", "created_s", "due_s"))
        .key_by("word", "word")
        .process("count", CountWords(), parallelism=parallelism)
        .sink("notes", NotesSink(), parallelism=parallelism)
    )
    return topology


def engine(tier: str, per_s: float, seconds: float) -> Figures:
    """One run on the Ray that is there, on one tier."""
    workers = 1 if tier == "thread" else 2
    report = run(
        topology(workers, per_s, seconds), workers=workers, nodes=2 if tier == "node" else 1, spares=0, folder=""
    )
    [used] = [edge["tier"] for edge in report.status["edges"] if edge["to"] == f"count#{workers - 1}"]
    if used != tier:
        raise CannotMeasure(f"wanted the {tier} tier between split and count, got the {used} tier")
    return figures(report.results["notes"], per_s, seconds)


def figures(packed: list[Any], per_s: float, seconds: float) -> Figures:
    """Quantiles since the making of a sentence, and the median since it was due."""
    created, due = latencies(packed, per_s, seconds)
    return {**common.quantiles_ms(created), "due_p50_ms": common.quantiles_ms(due)["p50_ms"]}


def bytewax(processes: int, per_s: float, seconds: float) -> Figures:
    """The same pipeline on Bytewax, started as its documentation says."""
    with tempfile.TemporaryDirectory() as folder:
        notes = os.path.join(folder, "notes")
        environment = {
            **os.environ,
            "BENCH_RATE": str(per_s),
            "BENCH_SECONDS": str(seconds),
            "BENCH_NOTES": notes,
        }
        command = [sys.executable, "-m", "bytewax.run", "benchmarks.bytewax_flow"]
        addresses = ";".join(f"localhost:{port}" for port in free_ports(processes))
        commands = [[*command, "-i", str(number), "-a", addresses] for number in range(processes)]
        if processes == 1:
            commands = [command]
        started = [
            subprocess.Popen(each, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            for each in commands
        ]
        try:
            for process in started:
                _, text = process.communicate(timeout=seconds + 60)
                if process.returncode != 0:
                    last = text.decode(errors="replace").strip().splitlines()[-1:]
                    raise CannotMeasure(f"Bytewax ended with status {process.returncode}: {' '.join(last)}")
        except subprocess.TimeoutExpired:
            raise CannotMeasure(f"Bytewax did not end within {seconds + 60:.0f} s") from None
        finally:
            for process in started:
                process.kill()
        packed = []
        for number in range(processes):
            with open(f"{notes}.{number}", "rb") as file:
                packed.append(pickle.load(file))
    return figures(packed, per_s, seconds)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def pipe(per_s: float, seconds: float) -> Figures:
    """What two processes and a pipe take, with nothing in between: the reference."""
    context = multiprocessing.get_context("spawn")
    words_out, words_in = context.Pipe()
    notes_out, notes_in = context.Pipe()
    sender = context.Process(target=_pipe_sender, args=(words_in, per_s, seconds))
    receiver = context.Process(target=_pipe_receiver, args=(words_out, notes_in))
    sender.start()
    receiver.start()
    try:
        if not notes_out.poll(seconds + 60):
            raise CannotMeasure(f"the pipe did not end within {seconds + 60:.0f} s")
        packed = [notes_out.recv()]
        receiver.join()
        sender.join()
    finally:
        sender.kill()
        receiver.kill()
    return figures(packed, per_s, seconds)


def _pipe_sender(words_in: Any, per_s: float, seconds: float) -> None:
    pacer = Pacer(per_s, seconds)
    while not pacer.ended:
        sentences: list[Sentence] = pacer.take(1024)
        if sentences:
            words_in.send([word for sentence in sentences for word in split(sentence)])
        wait_s = pacer.next_due_s - now()
        if wait_s > 0:
            sleep(wait_s)
    words_in.send(None)


def _pipe_receiver(words_out: Any, notes_in: Any) -> None:
    counts: dict[str, int] = {}
    notes = Notes()
    while (words := words_out.recv()) is not None:
        for word, created_s, due_s in words:
            counts[word] = counts.get(word, 0) + 1
            notes.note(word, counts[word], created_s, due_s)
    notes_in.send(notes.packed())


THREAD, PROCESS, NODE = "rstream, thread tier", "rstream, process tier", "rstream, node tier"
BYTEWAX_1, BYTEWAX_2, PIPE = "Bytewax, 1 worker", "Bytewax, 2 processes", "pipe between 2 processes"


def measure(options: argparse.Namespace) -> Outcome:
    """All contenders in turn; those of rstream on one private Ray of two nodes."""
    seconds = options.seconds or (5.0 if options.quick else 30.0)
    cases: dict[str, Callable[[], Figures]] = {
        THREAD: partial(engine, "thread", PER_S, seconds),
        BYTEWAX_1: partial(bytewax, 1, PER_S, seconds),
        PROCESS: partial(engine, "process", PER_S, seconds),
        BYTEWAX_2: partial(bytewax, 2, PER_S, seconds),
        PIPE: partial(pipe, PER_S, seconds),
        NODE: partial(engine, "node", PER_S, seconds),
    }
    with common.two_node_ray():
        found = common.alternate(cases, common.runs_of(options))
    common.progress("")
    return outcome(found, seconds)


def outcome(found: dict[str, list[Figures]], seconds: float) -> Outcome:
    """Medians of the runs, and ratios to the contender of the same shape."""
    medians = {case: {name: median([run[name] for run in runs]) for name in runs[0]} for case, runs in found.items()}
    rows = [
        {
            "case": case,
            **{name: round(value, 3) for name, value in figures.items()},
            "p50_vs_pipe": round(figures["p50_ms"] / medians[PIPE]["p50_ms"], 2),
            "p99_vs_pipe": round(figures["p99_ms"] / medians[PIPE]["p99_ms"], 2),
            "runs": len(found[case]),
        }
        for case, figures in medians.items()
    ]
    pairs = {"thread_p50_vs_bytewax": (THREAD, BYTEWAX_1), "process_p50_vs_bytewax": (PROCESS, BYTEWAX_2)}
    goals = [
        Goal(name, medians[ours]["p50_ms"] / medians[theirs]["p50_ms"], "<= 1")
        for name, (ours, theirs) in pairs.items()
    ]
    return Outcome(
        "latency",
        rows,
        goals,
        [
            f"{PER_S:,.0f} sentences/s of 10 words for {seconds:g} s, the first left out; every update counts.",
            "From the making of a sentence in the source to the sink; due_p50_ms: from when it was due, so that a",
            "source that wakes up late counts too. On the process and node tiers all words cross; of Bytewax's half.",
        ],
    )


def main(arguments: list[str]) -> int:
    """Run the benchmark; the status is 1 if it could not measure."""
    options = common.parser(__doc__ or "")
    options.add_argument("--seconds", type=float, help="how long each run lasts (default 30)")
    return common.finish(options.parse_args(arguments), "latency", measure)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
