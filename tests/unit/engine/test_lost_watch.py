"""What the coordinator takes for a proof of death, and what only for a reason to wait until the lease is over."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cloudpickle
import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError

from rstream.clock import ManualClock
from rstream.config import Config
from rstream.core.coordinator import CoordinatorMachine
from rstream.core.deployment import WorkerAddress
from rstream.runtime.lost_watch import LostWatch
from tests.unit.control.samples import make_record

DIED, UNREACHABLE = ActorDiedError(), ActorUnavailableError("no route", None)
NOWHERE = "nowhere"
"""An address at which nothing answers."""


class Watched:
    """A watch over two workers of a topology, and what it said."""

    def __init__(self, endpoint: str) -> None:
        self.machine, self.clock = CoordinatorMachine(), ManualClock(100.0)
        record = make_record()
        record.config = cloudpickle.dumps(Config())
        for number, worker in enumerate(("wc/w0", "wc/w1")):
            record.workers[worker].address = WorkerAddress(worker, f"n{number}", number + 1, "", endpoint)
        self.machine.adopt(record)
        self.dead: list[tuple[str, str]] = []
        self.told = threading.Event()
        self.up = {"n0", "n1"}
        self.watch = LostWatch(
            self.machine, threading.RLock(), self._put, self._died, lambda _: False, self.up.__contains__, self.clock
        )
        for worker in record.workers:
            self.watch.follow(record, worker)

    def _put(self, handle: Callable[[Any], None], value: Any) -> None:
        handle(value)

    def _died(self, topology: str, worker: str, cause: str) -> None:
        self.dead.append((worker, cause))
        self.told.set()
        self.watch.forget(worker)

    def look(self, after_s: float) -> None:
        self.clock.advance(after_s)
        with ThreadPoolExecutor(1) as knocks:
            self.watch.look(knocks)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    monkeypatch.setattr("rstream.runtime.death_watch.LOOK_FOR_S", 0.0)
    return Watched(NOWHERE)


def test_rays_word_is_a_proof_while_the_workers_node_is_there_to_give_it(watched: Watched) -> None:
    watched.watch.failed_to_answer("wc", "wc/w1", DIED)
    assert [worker for worker, _ in watched.dead] == ["wc/w1"]


def test_rays_word_of_a_whole_node_is_acted_on_when_the_lease_is_over(watched: Watched) -> None:
    watched.up.remove("n1")
    watched.watch.failed_to_answer("wc", "wc/w1", DIED)
    watched.look(9.9)
    assert watched.dead == []
    assert not watched.watch.heard("wc/w1"), "it gets no lease any more"
    watched.look(0.2)
    assert watched.dead == [("wc/w1", "nothing was heard of it for 10.1 s, which is longer than its lease")]
    assert "n1" in watched.watch.doubtful


def test_a_call_that_did_not_get_through_is_no_death_and_silence_alone_is_one_only_after_the_lease(
    watched: Watched,
) -> None:
    watched.watch.failed_to_answer("wc", "wc/w1", UNREACHABLE, lambda: None)
    for _ in range(9):
        watched.look(1.0)
        watched.watch.heard("wc/w0")
    assert watched.watch.doubted == {"wc/w1"}
    assert watched.dead == []
    watched.look(1.1)
    assert [worker for worker, _ in watched.dead] == ["wc/w1"]


def test_a_worker_that_is_silent_and_whose_machine_still_answers_for_it_is_left_alone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        watched = Watched(f"127.0.0.1:{door.getsockname()[1]}")
        for _ in range(30):
            watched.look(1.0)
            watched.watch.heard("wc/w0")
        assert watched.dead == []
        assert watched.watch.doubted == set()


@pytest.mark.parametrize("error", [DIED, UNREACHABLE])
def test_a_worker_on_a_lost_node_whose_machine_says_that_nobody_is_there_is_dead_at_once(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr("rstream.runtime.death_watch.KNOCKS", 1)
    with socket.create_server(("127.0.0.1", 0)) as door:
        endpoint = f"127.0.0.1:{door.getsockname()[1]}"
    watched = Watched(endpoint)
    watched.up.clear()
    watched.watch.failed_to_answer("wc", "wc/w1", error, lambda: None)
    assert watched.told.wait(30.0)
    assert watched.dead == [("wc/w1", "its process is gone")]
