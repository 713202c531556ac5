"""Records pushed to a topology on Ray count once each, although the workers of its source are killed meanwhile."""

from __future__ import annotations

import collections
import os
import signal
import threading
from typing import Any

import pytest

from rstream import Topology, submit
from rstream.client import Handle
from rstream.errors import UsageError
from rstream.operators import sinks, sources
from rstream.runtime.ingest_client import IngestClient
from tests.cluster.test_topologies_on_ray import over
from tests.deadline import wait_until

pytestmark = pytest.mark.usefixtures("two_nodes")

PARTITIONS = 4
RECORDS = 4_000


def row(partition: int, n: int) -> tuple[str, int]:
    return f"word{(n * 7 + partition) % 31}", n


def pushed(name: str) -> Topology:
    topology = Topology(name, backup={"interval_s": 0.3})
    rows = topology.source("rows", sources.Ingest({"word": str, "n": int}), parallelism=2)
    counted = rows.key_by("word", _word).count("count", parallelism=2)
    counted.key_by("counted", _word).sink("out", sinks.Latest(), parallelism=2)
    return topology


def _word(pair: Any) -> Any:
    return pair[0]


def truth() -> dict[str, int]:
    return dict(collections.Counter(row(p, n)[0] for p in range(PARTITIONS) for n in range(RECORDS)))


class Sending(threading.Thread):
    """A sender of one partition that goes only as far as it may."""

    def __init__(self, handle: Handle, partition: int) -> None:
        super().__init__(daemon=True)
        self._target, self._partition = handle.ingest_target(), partition
        self.allowed = RECORDS // 3
        self.covered = self.reconnects = 0
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            with IngestClient(self._target, "test", self._partition) as client:
                sent = client.covered
                while client.covered < RECORDS:
                    some = range(sent, min(sent + 50, self.allowed, RECORDS))
                    if some:
                        client.send([row(self._partition, n) for n in some])
                    sent += len(some)
                    client.poll(0.01)
                    self.covered, self.reconnects = client.covered, client.reconnects
        except BaseException as error:
            self.error = error


def test_a_killed_source_worker_neither_loses_nor_doubles_what_was_pushed() -> None:
    handle = submit(pushed("pushed"), workers=3, spares=1, folder="")
    wait_until(lambda: handle.status()["healed"], "backups in place")
    senders = [Sending(handle, partition) for partition in range(PARTITIONS)]
    for kill in range(2):
        wait_until(lambda: all(sender.covered >= sender.allowed // 2 for sender in senders), "acknowledgements")
        wait_until(lambda: handle.status()["healed"], "backups in place")
        victim = next(worker for worker in handle.status()["workers"] if "rows#0" in worker["tasks"])
        for sender in senders:
            sender.allowed += RECORDS // 3 + 1
        os.kill(victim["pid"], signal.SIGKILL)
        wait_until(lambda k=kill: handle.status()["restarts"] == k + 1, "the death to be noticed")  # type: ignore[misc]
    for sender in senders:
        sender.join(90)
    assert [(sender.error, sender.covered) for sender in senders] == [(None, RECORDS)] * PARTITIONS
    assert sum(sender.reconnects for sender in senders) >= 4
    handle.kill(drain=True)
    handle.wait(60)
    assert dict(handle.results("out")) == truth()
    with pytest.raises(UsageError, match="'pushed' is killed: it takes no records any more"):
        handle.ingest_target()
    over(handle)
