"""Fault simulation of ingest: the random topologies of `faults`, with records pushed by senders that may die too.

The senders are the real ones without their sockets, and so is each worker's intake. A sender that dies comes back with
nothing but its name and its data, and goes on where the source says.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from rstream.core.channel import TaskId
from rstream.core.ingest_messages import Answer, Elsewhere, Open, Opened, Progress, Refusal, encode
from rstream.core.intake import Intake
from rstream.core.records import OVER
from rstream.core.sender import Sender
from rstream.errors import ProtocolError
from rstream.graph import Graph
from rstream.lab.fault_cluster import SimWorker
from rstream.lab.fault_topologies import Workload, make_workload
from rstream.lab.faults import Schedule
from rstream.operators.ingest import Ingest, IngestReader, lane_of, part_of
from rstream.operators.sources import FromIterable

TOKEN = "senders"
SENDER_TURN_S = 0.004


class EndingIngest(Ingest):
    """An ingest source whose lanes end after so many records."""

    def __init__(self, lanes: int, window: int, records: Counter[int]) -> None:
        super().__init__(lanes=lanes, window=window)
        self.records = records

    def reader(self, split: str, offset: Any) -> IngestReader:
        return _EndingReader(self.records[int(split)], self.window, offset or {})


class _EndingReader(IngestReader):
    def __init__(self, records: int, window: int, offsets: dict[int, int]) -> None:
        super().__init__(None, offsets, window)
        self._records = records

    def read(self, limit: int) -> list[Any] | None:
        return None if sum(self.offset.values()) == self._records else super().read(limit)


@dataclass(slots=True)
class SimSender:
    """One partition of a sender: its data, and the stream that it has open."""

    step: str
    number: int
    lane: int
    records: list[Any]
    machine: Sender = field(default_factory=Sender)
    worker: SimWorker | None = None
    stream: int = 0
    due_s: float = 0.0
    """When what it sends next arrives at the earliest: a stream keeps its order."""


class PushedSchedule(Schedule):
    """One seeded run whose sources are fed by senders."""

    def __init__(self, seed: int, workload: Workload | None = None, style: str | None = None) -> None:
        rng = random.Random(seed)
        workload = workload or make_workload(rng, random.Random(f"extras/{seed}"))
        graph, self.senders = with_senders(workload.graph, rng)
        super().__init__(seed, workload=replace(workload, graph=graph), style=style)
        self._intakes: dict[str, Intake] = {}
        self._by_stream: dict[int, SimSender] = {}
        self._answer_due_s: dict[int, float] = {}
        for sender in self.senders:
            self.after(self.random.uniform(0.0, 0.2), lambda each=sender: self._sender_turn(each))  # type: ignore[misc]
        for _ in range(self.random.randint(0, 4)):
            self.after(self.random.uniform(0.0, 20 * self.delay_s), self._sender_dies)

    # Senders at work.

    def _sender_turn(self, sender: SimSender) -> None:
        if self.record.state in OVER:
            return
        if sender.worker is not None and not sender.worker.alive:
            self._disconnect(sender)
        if sender.worker is None:
            self._connect(sender)
        elif sender.machine.is_sent:
            begin = sender.machine.place(sender.machine.next)
            some = sender.records[begin : begin + self.random.choice([1, 2, 7, 50])]
            if some:
                sender.machine.add(some)
        self._ship(sender)
        self.after(self.random.uniform(0.5, 1.5) * SENDER_TURN_S, lambda: self._sender_turn(sender))

    def _connect(self, sender: SimSender) -> None:
        host = self.record.placement.get(TaskId(sender.step, sender.lane))
        worker = self.workers.get(host) if host is not None else None
        if worker is None or not worker.alive or worker.machine is None:
            return
        self._pipe_number += 1
        sender.worker, sender.stream, sender.due_s = worker, self._pipe_number, self.now_s
        self._by_stream[sender.stream] = sender
        part = part_of(sender.step, sender.number)
        self._to_intake(sender, encode(Open(TOKEN, sender.step, sender.lane, part)), b"")

    def _disconnect(self, sender: SimSender) -> None:
        if sender.worker is not None and sender.worker.name in self._intakes:
            self._intakes[sender.worker.name].closed(sender.stream)
        self._by_stream.pop(sender.stream, None)
        sender.worker, sender.stream = None, 0

    def _ship(self, sender: SimSender) -> None:
        if sender.worker is not None:
            for push, body in list(sender.machine.outgoing()):
                self._to_intake(sender, encode(push), body)

    def _to_intake(self, sender: SimSender, header: bytes, body: bytes) -> None:
        worker, stream = sender.worker, sender.stream
        assert worker is not None, "sent on a stream"
        sender.due_s = max(sender.due_s, self.now_s + self._delay())

        def arrive() -> None:
            if not worker.alive or worker.machine is None or stream not in self._by_stream:
                return
            if worker.name not in self._intakes:
                self._intakes[worker.name] = Intake([worker.machine], TOKEN)
            answer = self._intakes[worker.name].arrived(stream, header, body)
            if answer is not None:
                self._to_sender(stream, answer)
            self._turn_soon(worker)

        self.at(sender.due_s, arrive)

    def _to_sender(self, stream: int, answer: Answer) -> None:
        due_s = self._answer_due_s[stream] = max(self._answer_due_s.get(stream, 0.0), self.now_s + self._delay())
        self.at(due_s, lambda: self._answered(stream, answer))

    def _answered(self, stream: int, answer: Answer) -> None:
        sender = self._by_stream.get(stream)
        if sender is None:
            return
        match answer:
            case Opened():
                sender.machine.opened(answer)
                self._ship(sender)
            case Progress():
                sender.machine.progress(answer)
                self._ship(sender)
            case Elsewhere():
                self._disconnect(sender)
            case Refusal(reason):
                raise ProtocolError(f"{sender.step}/{sender.number} was refused: {reason}")

    def _turn(self, worker: SimWorker) -> None:
        super()._turn(worker)
        intake = self._intakes.get(worker.name)
        if worker.alive and intake is not None:
            for stream, answer in intake.answers(at_rest=True):
                self._to_sender(stream, answer)

    def _sender_dies(self) -> None:
        sender = self.random.choice(self.senders)
        self._say(f"sender {sender.step}/{sender.number} dies")
        self.events["sender dies"] += 1
        self._disconnect(sender)
        sender.machine = Sender()


def with_senders(graph: Graph, rng: random.Random) -> tuple[Graph, list[SimSender]]:
    """A graph whose lists are pushed to it by senders instead, and those senders."""
    operators, senders = [], []
    for operator in graph.operators:
        if isinstance(operator.logic, FromIterable):
            items, parts = operator.logic.items, rng.randint(1, 4)
            records: Counter[int] = Counter()
            for number in range(parts):
                lane = lane_of(operator.name, number, operator.parallelism)
                senders.append(SimSender(operator.name, number, lane, list(items[number::parts])))
                records[lane] += len(items[number::parts])
            pushed = EndingIngest(operator.parallelism, rng.choice([1, 3, 10, 100]), records)
            operator = replace(operator, logic=pushed)
        operators.append(operator)
    return replace(graph, operators=tuple(operators)), senders
