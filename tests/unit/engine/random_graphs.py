"""Small random topologies with a serial reference, and a host whose links break and come back."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any
from zlib import crc32

from rstream import Bolt, Topology
from rstream.clock import ManualClock
from rstream.config import BatchConfig, Config
from rstream.core import messages
from rstream.core.messages import Ack, Data, Frame
from rstream.core.worker import WorkerMachine
from rstream.graph import Graph
from rstream.groupings import (
    All,
    Custom,
    Global,
    Grouping,
    Key,
    LoadBalanced,
    LocalOrShuffle,
    NoGrouping,
    PartialKey,
    Shuffle,
)
from rstream.operators.transforms import Count
from rstream.runtime.embedded import Embedded

TURNS_MAX = 200_000


def mix(value: Any, salt: int = 0) -> int:
    """A number that depends on the value alone."""
    return crc32(repr((value, salt)).encode()) % 40


def choose(value: Any, tasks: int) -> list[int]:
    """Up to two different tasks."""
    return sorted({mix(value, 1) % tasks, mix(value, 2) % tasks})


class Stateless(Bolt):
    """Some of: drop, keep, repeat, wrap in a list, send to a side output; now and then it takes its time."""

    def __init__(self, salt: int, occupies: bool) -> None:
        self.salt, self.occupies = salt, occupies

    def open(self, ctx: Any) -> None:
        self.ctx = ctx

    def process(self, value: Any, out: Any) -> None:
        if self.occupies and mix(value, 9) == 0:
            self.ctx.occupy(20.0)
        results, sides = self.outcome(value)
        out.extend(results)
        for side in sides:
            out.emit_to("side", side)

    def outcome(self, value: Any) -> tuple[list[Any], list[Any]]:
        """What the bolt emits for one value."""
        kind = mix(value, self.salt)
        results: list[Any] = [[mix(value, n)] if kind % 5 == 0 else mix(value, n) for n in range(kind % 3)]
        return results, [value] if kind % 4 == 0 else []


class Batched(Stateless):
    """The same by whole batches."""

    def process_batch(self, values: list[Any], out: Any) -> None:
        for value in values:
            self.process(value, out)


GROUPINGS: list[Grouping] = [
    Shuffle(),
    LocalOrShuffle(),
    NoGrouping(),
    Global(),
    LoadBalanced(),
    PartialKey(mix),
    Key(mix),
    All(),
    Custom(choose),
]


def make(rng: random.Random) -> Graph:
    """A graph of up to three sources and six steps, each with any grouping and parallelism."""
    topology = Topology("random")
    streams = []
    for number in range(rng.randint(1, 3)):
        items = [rng.choice([rng.randrange(40), f"w{rng.randrange(20)}", ("t", rng.randrange(9))]) for _ in range(60)]
        options: dict[str, Any] = {"max_pending": rng.choice([1, 7])} if rng.random() < 0.3 else {}
        streams.append(
            topology.source(f"s{number}", items[: rng.randint(0, 60)], parallelism=rng.randint(1, 3), **options)
        )
    for number in range(rng.randint(1, 6)):
        inputs = rng.sample(streams, rng.randint(1, min(2, len(streams))))
        stream = inputs[0] if len(inputs) == 1 else topology.merge(f"m{number}", *inputs)
        tasks = rng.randint(1, 4)
        if rng.random() < 0.3:
            streams.append(stream.grouped(Key(mix)).map(f"b{number}", mix, parallelism=tasks).key_by(f"k{number}"))
            streams.append(streams.pop().process(f"c{number}", Count, parallelism=rng.randint(1, 3)))
            continue
        grouped = stream.grouped(rng.choice(GROUPINGS))
        bolt = rng.choice([Stateless, Batched])(number, rng.random() < 0.2)
        made = grouped.process(f"b{number}", bolt, parallelism=tasks, outputs=("side",))
        streams.append(made)
        if rng.random() < 0.5:
            streams.append(made.output("side"))
    for number, stream in enumerate(streams):
        if rng.random() < 0.6 or number == len(streams) - 1:
            stream.grouped(rng.choice(GROUPINGS[:6])).sink(f"out{number}", parallelism=rng.randint(1, 2))
    return topology.build()


def reference(graph: Graph) -> dict[str, Counter[str]]:
    """What each sink must get, computed one operator after the other; values by their repr."""
    emitted: dict[tuple[str, str], list[Any]] = {}
    wanted: dict[str, Counter[str]] = {}
    for operator in graph.operators:
        arriving: list[Any] = []
        for number in graph.in_edges[operator.name]:
            edge = graph.edges[number]
            for value in emitted.get((edge.source, edge.output), []):
                if isinstance(edge.grouping, All):
                    arriving += [value] * operator.parallelism
                elif isinstance(edge.grouping, Custom):
                    arriving += [value] * len(choose(value, operator.parallelism))
                else:
                    arriving.append(value)
        results: list[Any]
        sides: list[Any] = []
        if operator.kind == "source":
            results = list(operator.logic.items)
        elif operator.kind == "sink":
            wanted[operator.name] = Counter(map(repr, arriving))
            continue
        elif isinstance(operator.logic, Count):
            totals = Counter(arriving)
            results = [(key, n + 1) for key, total in totals.items() for n in range(total)]
        elif isinstance(operator.logic, Stateless):
            each = [operator.logic.outcome(value) for value in arriving]
            results = [result for emits, _ in each for result in emits]
            sides = [side for _, emits in each for side in emits]
        else:
            results = [mix(value) for value in arriving]
        emitted[operator.name, "default"], emitted[operator.name, "side"] = results, sides
    return wanted


class Unreliable(Embedded):
    """An embedded host whose links lose everything from some moment on, until they are made anew."""

    def __init__(self, graph: Graph, config: Config, workers: int, rng: random.Random) -> None:
        super().__init__(graph, config, workers, ManualClock())
        self.rng = rng
        self.broken: set[tuple[str, str]] = set()
        self.lost = 0

    def _carry(self, machine: WorkerMachine, peer: str, ours: bool, frame: Frame) -> None:
        link = (machine.worker, peer) if ours else (peer, machine.worker)
        if link in self.broken and isinstance(messages.decode(frame.header), Data | Ack):
            self.lost += 1
            return
        super()._carry(machine, peer, ours, frame)

    def trouble(self) -> None:
        """Break a link, or make a broken one anew."""
        for name, machine in self.machines.items():
            for peer in machine.out_links:
                if (name, peer) in self.broken:
                    if self.rng.random() < 0.3:
                        self.broken.remove((name, peer))
                        machine.on_lost(peer)
                        self._carry(machine, peer, True, machine.greet())
                elif self.rng.random() < 0.02:
                    self.broken.add((name, peer))


def check(seed: int) -> None:
    """Run the graph of a seed with every invariant checked at every turn, and compare with the reference."""
    rng = random.Random(seed)
    graph = make(rng)
    batch = BatchConfig(max_tuples=rng.choice([1, 3, 50]), window=rng.choice([1, 5, 200]), window_bytes=1024)
    host = Unreliable(graph, Config(batch=batch), rng.randint(1, 4), rng)
    troubled = rng.random() < 0.5
    host.start()
    for _ in range(TURNS_MAX):
        worked = host.turn()
        host.validate()
        if host.finished:
            break
        if troubled:
            host.trouble()
        if not worked:
            host.idle()
    else:
        raise AssertionError(f"seed {seed}: not finished after {TURNS_MAX} turns")
    host.close()
    came = {operator.name: Counter(map(repr, host.results(operator.name))) for operator in graph.operators}
    for sink, wanted in reference(graph).items():
        assert came[sink] == wanted, (
            f"seed {seed}, sink {sink}: {came[sink] - wanted} too many, {wanted - came[sink]} lost"
        )
