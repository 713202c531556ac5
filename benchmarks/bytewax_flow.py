"""The latency benchmark's pipeline as a Bytewax dataflow; `python -m bytewax.run benchmarks.bytewax_flow` runs it.

Rate, duration and the path for the notes come from the environment, because Bytewax's processes start from a shell.
"""

from __future__ import annotations

import os
import pickle
from datetime import UTC, datetime
from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition

from benchmarks.paced import Notes, Pacer, Sentence, Word, split

RATE, SECONDS, NOTES = "BENCH_RATE", "BENCH_SECONDS", "BENCH_NOTES"


class PacedPartition(StatelessSourcePartition[Sentence]):  # type: ignore[misc]
    """Sentences as they become due."""

    def __init__(self) -> None:
        self._pacer = Pacer(float(os.environ[RATE]), float(os.environ[SECONDS]))

    def next_batch(self) -> list[Sentence]:
        if self._pacer.ended:
            raise StopIteration
        return self._pacer.take(1024)

    def next_awake(self) -> datetime:
        return datetime.fromtimestamp(self._pacer.next_due_s, UTC)


class NoPartition(StatelessSourcePartition[Sentence]):  # type: ignore[misc]
    """Nothing: only the first worker reads."""

    def next_batch(self) -> list[Sentence]:
        raise StopIteration


class PacedSource(DynamicSource[Sentence]):  # type: ignore[misc]
    """One paced partition, on the first worker."""

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Any:
        return PacedPartition() if worker_index == 0 else NoPartition()


class NotesPartition(StatelessSinkPartition[Any]):  # type: ignore[misc]
    """Notes every update, and writes the notes down at the end."""

    def __init__(self, worker: int) -> None:
        self._worker, self._notes = worker, Notes()

    def write_batch(self, items: list[Any]) -> None:
        for word, (count, created_s, due_s) in items:
            self._notes.note(word, count, created_s, due_s)

    def close(self) -> None:
        with open(f"{os.environ[NOTES]}.{self._worker}", "wb") as file:
            pickle.dump(self._notes.packed(), file)


class NotesSink(DynamicSink[Any]):  # type: ignore[misc]
    """A sink on every worker."""

    def build(self, step_id: str, worker_index: int, worker_count: int) -> NotesPartition:
        return NotesPartition(worker_index)


def count(so_far: int | None, word: Word) -> tuple[int, tuple[int, float, float]]:
    """The running count of a word, with the stamps of what changed it."""
    _, created_s, due_s = word
    number = (so_far or 0) + 1
    return number, (number, created_s, due_s)


def build() -> Any:
    """Paced source, flat_map, key_on, stateful_map, sink."""
    flow = Dataflow("latency")
    words = op.flat_map("split", op.input("sentences", flow, PacedSource()), split)
    keyed = op.key_on("word", words, lambda word: word[0])
    op.output("notes", op.stateful_map("count", keyed, count), NotesSink())
    return flow


if RATE in os.environ:
    flow = build()
