"""The coordinator's judgement of workers that are lost to it: what is proof of a death, and what waits for a lease.

Proof is a neighbour that saw the process gone, a machine that answers that nobody listens where the worker did, and
Ray's word as long as the worker's node is there to give it. That Ray has given up a whole node is no proof, for its
processes may live behind a broken network, and nor is silence (`rstream.core.suspects`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import cloudpickle
import ray

from rstream.clock import Clock, sleep
from rstream.core.coordinator import CoordinatorMachine
from rstream.core.records import OVER, TopologyRecord, topology_of
from rstream.core.suspects import Suspects, reports_every_s
from rstream.runtime.death_watch import DeathWatch, DoubtfulNodes, knock

TICK_S = 0.25
AGAIN_S = 0.5
"""After so long a call is made again that did not reach a worker which may live."""
KNOCKS_AT_ONCE = 8
SPARE_WAIT_S = 0.1
SPARE_WAITS_MAX = 100
"""So often it is asked for a spare before a task that was lost just before goes to a worker with other tasks."""
_LOG = logging.getLogger(__name__)


class LostWatch(threading.Thread):
    """Follows the workers of all topologies, and says which are to be replaced."""

    def __init__(
        self,
        machine: CoordinatorMachine,
        lock: threading.RLock,
        put: Callable[[Callable[[Any], None], Any], None],
        died: Callable[[str, str, str], None],
        is_ending: Callable[[str], bool],
        is_up: Callable[[str], bool],
        clock: Clock,
    ) -> None:
        super().__init__(name="rstream-lost", daemon=True)
        self._machine, self._lock, self._put, self._died, self._is_ending = machine, lock, put, died, is_ending
        self._is_up, self._clock = is_up, clock
        self._suspects = Suspects()
        self._deaths = DeathWatch(lambda worker: put(self._found_dead_too, worker))
        self.doubtful = DoubtfulNodes()

    # What is known of workers; all of it under the coordinator's lock.

    def follow(self, record: TopologyRecord, worker: str) -> None:
        """A worker is there, or will soon be."""
        config = cloudpickle.loads(record.config)
        reports_s = reports_every_s(config.stats_interval_s, config.lease_s)
        self._suspects.follow(worker, config.lease_s, reports_s, self._clock.monotonic())

    def heard(self, worker: str) -> bool:
        """Something came from a worker; False if it is given up and should end."""
        return self._suspects.heard(worker, self._clock.monotonic())

    def forget(self, worker: str) -> None:
        """A worker was replaced, or told to end."""
        self._suspects.forget(worker)

    @property
    def doubted(self) -> set[str]:
        """The workers that nothing should be given to."""
        return self._suspects.doubted

    # What speaks for a death.

    def failed_to_answer(
        self, topology: str, worker: str, error: BaseException, again: Callable[[], None] | None = None
    ) -> None:
        """A call of a worker has ended with this error: it is dead, or may be, or was out of reach and is called again.

        A call that cannot be made again leaves a worker behind that does not do what it was told: it is given up.
        """
        if not isinstance(error, ray.exceptions.ActorUnavailableError):
            self.missing(topology, worker, str(error), isinstance(error, ray.exceptions.ActorDiedError))
        elif again is None:
            self._give_up(worker)
        else:
            self._knock(worker)
            self._later(worker, again)

    def _call_again(self, worker: str, call: Callable[[], None]) -> None:
        if not self._is_known(worker):
            return
        if worker in self._suspects.doubted:
            self._later(worker, call)
        else:
            call()

    def _later(self, worker: str, call: Callable[[], None]) -> None:
        threading.Timer(AGAIN_S, partial(self._put, lambda _: self._call_again(worker, call), None)).start()

    def missing(self, topology: str, worker: str, cause: str, by_rays_word: bool = True) -> None:
        """A worker has ended, or so it is said. Ray knows it of the node that saw its process end; of a node that is
        not there any more it only supposes it."""
        record = self._machine.topologies.get(topology)
        found = None if record is None else record.workers.get(worker)
        if by_rays_word and found is not None and found.address.endpoint and not self._is_up(found.address.node):
            self._give_up(worker)
        else:
            self._replace(topology, worker, cause)

    def _give_up(self, worker: str) -> None:
        """A worker will never be spoken to again, but may live: it is replaced when its lease is over, or its machine
        tells that it is gone."""
        if self._is_known(worker):
            self._suspects.lost(worker)
            self._knock(worker)

    def _knock(self, worker: str) -> None:
        if self._is_known(worker):
            self._deaths.knock(worker, self._machine.topologies[topology_of(worker)].workers[worker].address.endpoint)

    def gone(self, topology: str, worker: str) -> None:
        """A neighbour has found a worker's process gone. Those beside it on its node may be too, if the node is. To be
        called without the lock."""
        with self._lock:
            if topology not in self._machine.topologies or worker not in self._machine.topologies[topology].workers:
                return
            beside = self._machine.beside(topology, worker)
        dead = self._deaths.knock_at(beside)
        with self._lock:
            # Spares come first in the list, or lost tasks would go to one that is gone.
            for each in dead:
                self._found_dead_too(each)
            self._replace(topology, worker, "its process is gone")

    def _found_dead_too(self, worker: str) -> None:
        """Another worker of a node is gone, right after one of it was: that may be the node."""
        if self._is_known(worker):
            record = self._machine.topologies[topology_of(worker)]
            self.doubtful.add(record.workers[worker].address.node)
            self._replace(record.name, worker, "its process is gone")

    def _replace(self, topology: str, worker: str, cause: str, waited: int = 0) -> None:
        if waited < SPARE_WAITS_MAX and self._machine.waits_for_spare(topology, worker):
            later = partial(self._put, lambda _: self._replace(topology, worker, cause, waited + 1), None)
            threading.Timer(SPARE_WAIT_S, later).start()
        else:
            self._died(topology, worker, cause)

    def _is_known(self, worker: str) -> bool:
        """It belongs to a topology that runs, and was not told to end."""
        record = self._machine.topologies.get(topology_of(worker))
        return (
            record is not None and record.state not in OVER and worker in record.workers and not self._is_ending(worker)
        )

    # Those without a proof.

    def run(self) -> None:
        with ThreadPoolExecutor(KNOCKS_AT_ONCE, "rstream-knock") as knocks:
            while True:
                sleep(TICK_S)
                try:
                    self.look(knocks)
                except Exception:
                    # One topology's trouble must not stop the watch over the others.
                    _LOG.exception("those who may be lost could not be looked after")

    def look(self, knocks: ThreadPoolExecutor) -> None:
        """Knock where somebody may be lost, and replace those whose time is over. To be called without the lock."""
        with self._lock:
            endpoints = {
                worker: self._machine.topologies[topology_of(worker)].workers[worker].address.endpoint
                for worker in self._suspects.to_knock_at(self._clock.monotonic())
                if self._is_known(worker)
            }
        doors = [(worker, endpoint) for worker, endpoint in endpoints.items() if endpoint]
        answers = list(knocks.map(knock, [endpoint for _, endpoint in doors]))
        with self._lock:
            for (worker, endpoint), answer in zip(doors, answers, strict=True):
                self._suspects.knocked(worker, answer != "no answer")
                if answer == "nobody listens":
                    self._deaths.knock(worker, endpoint)
            self._replace_due()

    def _replace_due(self) -> None:
        """Replace those whose leases are over, spares first, or lost tasks would go to one that is lost as well."""
        now_s = self._clock.monotonic()
        nodes = {
            name: worker.address.node
            for record in self._machine.topologies.values()
            for name, worker in record.workers.items()
        }
        due = [worker for worker in self._suspects.due(now_s, nodes) if self._is_known(worker)]
        for worker in sorted(
            due, key=lambda each: not self._machine.topologies[topology_of(each)].workers[each].is_spare
        ):
            self.doubtful.add(nodes[worker])
            silent_s = self._suspects.silent_s(worker, now_s)
            why = f"nothing was heard of it for {silent_s:.1f} s, which is longer than its lease"
            self._replace(topology_of(worker), worker, why)
