"""Chaos on real processes: SIGKILL for workers, the coordinator and whole nodes while a topology runs.

The topology runs again and again on a cluster of its own, of several Ray nodes on this machine, until all kills were
made. Each comes at a random moment after the one before has healed, for that is what the protocol promises to survive.
Every run's results are held against the truth that the target itself gives: an independent count of the input.
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from rstream.client import Handle, call, coordinator, submit
from rstream.clock import SystemClock, sleep
from rstream.config import Settings
from rstream.core.records import OVER
from rstream.errors import ClusterError, RStreamError, RunError
from rstream.graph import Graph
from rstream.runtime.many_nodes import ManyNodes

Kind = Literal["worker", "coordinator", "node", "worker and coordinator"]
Truth = Mapping[str, Iterable[Any]]
"""For each sink what it must hold at the end, in any order."""

SHARES: Mapping[Kind, int] = {"worker": 6, "node": 2, "coordinator": 1, "worker and coordinator": 1}
MOMENT_S = 2.0
"""A kill comes at most so long after the one before it has healed."""
HEAL_TIMEOUT_S = 180.0
POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill and what came of it."""

    number: int
    run: int
    kind: Kind
    victims: list[str]
    """The workers whose processes ended, and "coordinator"."""
    tasks: int
    """How many tasks were lost."""
    stall_s: float
    """The longest time that a sink heard nothing of one of its senders, from the kill until all had healed."""
    healed_s: float
    """How long until the next kill could be survived."""
    restarts: int
    unaffected: bool
    """Every other worker goes on in the process that it had."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the topology, to its end."""

    number: int
    kills: int
    differences: list[str]
    """How its results are not the truth."""

    @property
    def exact(self) -> bool:
        """Its results are the truth."""
        return not self.differences


@dataclass(slots=True)
class ChaosReport:
    """All kills and all runs."""

    seed: int
    nodes: int
    kills: list[Kill] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)

    @property
    def exact(self) -> bool:
        """Every run ended with the truth, and only what was killed was started anew."""
        return all(run.exact for run in self.runs) and all(kill.unaffected for kill in self.kills)

    def as_json(self) -> dict[str, Any]:
        """What `rstream chaos --json` prints."""
        return {
            "seed": self.seed,
            "nodes": self.nodes,
            "exact": self.exact,
            "kills": [asdict(kill) for kill in self.kills],
            "runs": [{**asdict(run), "exact": run.exact} for run in self.runs],
        }


def deal(kills: int, nodes: int, chance: random.Random) -> list[Kind]:
    """What to kill, in order: every kind once where there are enough kills, the rest by their shares.

    >>> sorted(deal(3, 1, random.Random(1)))
    ['coordinator', 'worker', 'worker and coordinator']
    """
    kinds: list[Kind] = [kind for kind in SHARES if kind != "node" or nodes > 1]
    rest = chance.choices(kinds, [SHARES[kind] for kind in kinds], k=max(0, kills - len(kinds)))
    dealt = [*kinds[:kills], *rest]
    chance.shuffle(dealt)
    return dealt


def differences(truth: Truth, results: Mapping[str, Iterable[Any]]) -> list[str]:
    """A line for each sink whose values are not those that it must hold.

    >>> differences({"out": [1, 2, 2]}, {"out": [2, 1]})
    ["sink 'out': 1 missing, 0 too many; first missing: 2"]
    """
    found = []
    for sink, wanted in truth.items():
        want, got = (Counter(map(repr, values)) for values in (wanted, results.get(sink, ())))
        missing, extra = want - got, got - want
        if missing or extra:
            first = next(iter(missing or extra))
            which = "missing" if missing else "too many"
            counts = f"{missing.total()} missing, {extra.total()} too many"
            found.append(f"sink {sink!r}: {counts}; first {which}: {first[:200]}")
    return found


class Chaos:
    """Kills what it is dealt while a topology runs, and watches what comes of it."""

    def __init__(
        self,
        graph: Graph,
        settings: Settings,
        folder: str,
        cluster: ManyNodes,
        kills: int,
        seed: int,
        on_kill: Callable[[Kill], None] | None = None,
    ) -> None:
        self._graph, self._settings, self._folder, self._cluster = graph, settings, folder, cluster
        self._chance = random.Random(seed)
        nodes = 1 + len(cluster.mortal)
        self._left = deque(deal(kills, nodes, self._chance))
        self._on_kill = on_kill
        self._clock = SystemClock()
        self.report = ChaosReport(seed, nodes)

    def run(self, truth: Truth) -> ChaosReport:
        """Run the topology until every kill was made and the last run has ended; a wrong result ends it at once."""
        truth = {sink: list(values) for sink, values in truth.items()}
        while self._left and self.report.exact:
            number, before = len(self.report.runs) + 1, len(self.report.kills)
            handle = submit(self._graph, settings=self._settings, folder=self._folder)
            try:
                while self._left and self._ready(handle):
                    self._kill(handle, number)
                handle.wait()
                wrong = differences(truth, handle.results())
            except (RStreamError, TimeoutError) as error:
                wrong = [f"the run failed: {error}"]
            made = len(self.report.kills) - before
            if not made and not wrong:
                raise RunError(
                    f"topology {self._graph.name!r} ended before anything could be killed; give it more input"
                )
            self.report.runs.append(Run(number, made, wrong))
        return self.report

    def _ready(self, handle: Handle) -> bool:
        """Wait for a random moment at which a kill has to be survived; False if the topology ended before."""
        started_s = self._clock.monotonic()
        while True:
            status = handle.status()
            if status["state"] in OVER:
                return False
            if status["healed"] and status["emitted"]:
                break
            if self._clock.monotonic() - started_s > HEAL_TIMEOUT_S:
                raise RunError(f"not ready for a kill within {HEAL_TIMEOUT_S:g} s; survives: {status['survives']}")
            sleep(POLL_S)
        sleep(self._chance.uniform(0.0, MOMENT_S))
        return True

    def _kill(self, handle: Handle, run: int) -> None:
        before = handle.status()
        if before["state"] in OVER or not before["healed"]:
            return
        kind = self._left.popleft()
        hosts = {worker["id"]: worker for worker in before["workers"]}
        coordinator_pid = call(coordinator().ping)
        at_s = self._clock.now()
        victims: list[str] = []
        if kind == "node":
            node = self._chance.choice(self._cluster.mortal)
            victims = [name for name, worker in hosts.items() if worker["node"] == node]
            self._cluster.kill(node)
        if "worker" in kind:
            victims = [self._chance.choice([name for name, worker in sorted(hosts.items()) if worker["tasks"]])]
            _end(hosts[victims[0]]["pid"])
        if "coordinator" in kind:
            _end(coordinator_pid)
        if kind == "node":
            self._cluster.add()
        after = self._healed(handle, victims, coordinator_pid if "coordinator" in kind else 0)
        now_s = self._clock.now()
        there = {worker["id"]: worker["pid"] for worker in after["workers"]}
        over = after["state"] in OVER
        kill = Kill(
            number=len(self.report.kills) + 1,
            run=run,
            kind=kind,
            victims=[*victims, *(["coordinator"] if "coordinator" in kind else [])],
            tasks=sum(len(hosts[name]["tasks"]) for name in victims),
            stall_s=round(max((each.during_s(at_s, now_s) for each in handle.stalls()), default=0.0), 3),
            healed_s=round(now_s - at_s, 3),
            restarts=after["restarts"] - before["restarts"],
            unaffected=over or all(there.get(n) == w["pid"] for n, w in hosts.items() if n not in victims),
        )
        self.report.kills.append(kill)
        if self._on_kill is not None:
            self._on_kill(kill)

    def _healed(self, handle: Handle, victims: list[str], old_coordinator: int) -> dict[str, Any]:
        """Wait until the deaths were noticed and everything is whole again, or the topology is over."""
        end_s = self._clock.monotonic() + HEAL_TIMEOUT_S
        while True:
            status = handle.status()
            if status["state"] in OVER:
                return status
            noticed = not any(worker["id"] in victims for worker in status["workers"])
            if noticed and status["healed"] and (not old_coordinator or call(coordinator().ping) != old_coordinator):
                return status
            if self._clock.monotonic() > end_s:
                raise RunError(f"not healed {HEAL_TIMEOUT_S:g} s after {', '.join(victims) or 'the coordinator'} ended")
            sleep(POLL_S)


def _end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        raise ClusterError(f"process {pid} of the cluster is not on this machine") from None
