"""A step 100 times slower than its source: memory stays flat, queues have their limit, nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import psutil
import pytest

from rstream import Bolt, Topology, submit
from rstream.api import Context, Out
from rstream.client import Handle
from rstream.config import load
from rstream.operators import sinks
from tests.deadline import wait_until

WINDOW = BATCH = 256
CHANNELS = 4
"""Two tasks of the slow step, with a channel in and one out; each holds a window and the batch that filled it."""
TUPLE_BYTES = 1_000
GROWTH_BYTES_MAX = 40 << 20
"""Far below what the source makes in the time of the test, above what an allocator does by itself."""


class Slow(Bolt):
    """A millisecond for each tuple, as a slow service would take."""

    def open(self, ctx: Context) -> None:
        self.ctx = ctx

    def process(self, value: Any, out: Out) -> None:
        self.ctx.occupy(1.0)
        out.emit(len(value))


def numbered() -> Iterator[str]:
    for n in count():
        yield f"{n:<{TUPLE_BYTES}}"


def memory_of(handle: Handle) -> int:
    return sum(psutil.Process(worker["pid"]).memory_info().rss for worker in handle.status()["workers"])


def queued(status: dict[str, Any]) -> int:
    return sum(operator["queue"] for operator in status["operators"])


def processed(status: dict[str, Any], step: str) -> int:
    return next(int(operator["processed"]) for operator in status["operators"] if operator["name"] == step)


@pytest.mark.usefixtures("two_nodes")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_slow_step_slows_its_source_and_holds_memory_flat(workers: int) -> None:
    topology = Topology(f"pressed-{workers}")
    # Shuffled over two tasks, so that with two workers half of the tuples cross nodes.
    lines = topology.source("fast", numbered)
    lines.process("slow", Slow(), parallelism=2).sink("out", sinks.Discard())
    settings = load(flags={"batch.window": WINDOW, "batch.max_tuples": BATCH, "workers": workers, "spares": 0})
    handle = submit(topology, settings=settings, folder="")
    wait_until(lambda: processed(handle.status(), "slow") > 1_000, "the stream to be steady", timeout_s=60)
    before = memory_of(handle)
    target = processed(handle.status(), "slow") + 5_000

    def further() -> bool:
        status = handle.status()
        assert queued(status) <= CHANNELS * (WINDOW + BATCH)
        return processed(status, "slow") > target

    wait_until(further, "5,000 tuples to pass", timeout_s=60)
    assert memory_of(handle) - before < GROWTH_BYTES_MAX
    handle.kill(drain=True)
    assert handle.wait(60) == "KILLED"
    status = handle.status()
    assert status["emitted"] == processed(status, "slow") == processed(status, "out")
    assert status["failed"] == 0
