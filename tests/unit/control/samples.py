"""A small topology's record and made-up reports of its workers, for tests of the monitor and the controller."""

from __future__ import annotations

from rstream import Topology
from rstream.config import ControlConfig
from rstream.core.channel import ChannelId, TaskId
from rstream.core.deployment import WorkerAddress
from rstream.core.meter import Meter
from rstream.core.placement import aligned
from rstream.core.records import TopologyRecord, WorkerRecord
from rstream.core.report import TaskReport, Usage, WorkerReport
from rstream.core.view import NodeFacts

NODES = [NodeFacts("n1", 4.0, 1e9, 4), NodeFacts("n2", 4.0, 1e9, 4)]


def make_record(name: str = "wc", policy: str = "es", **control: object) -> TopologyRecord:
    """Three steps (1, 2, 1) on two workers of two nodes, running."""
    topology = Topology(name)
    numbers = topology.source("n", [1, 2, 3])
    numbers.map("double", _double, parallelism=2).key_by("k").count("count").sink("out")
    graph = topology.build()
    parallelism = {operator.name: operator.parallelism for operator in graph.operators}
    workers = {
        f"{name}/w{at}": WorkerRecord(WorkerAddress(f"{name}/w{at}", f"n{at + 1}", at + 1), "running", 100 + at)
        for at in range(2)
    }
    return TopologyRecord(
        name=name,
        outline=graph.outline(),
        splits={"n": ["0"]},
        parallelism=parallelism,
        policy=policy,
        worker_count=2,
        spare_count=0,
        token="t",
        code="",
        config=b"",
        state="ACTIVE",
        placement=aligned(graph, parallelism, list(workers)),
        workers=workers,
        control=ControlConfig(**control),
    )


def _double(n: int) -> int:
    return 2 * n


def fill(meter: Meter, record: TopologyRecord, start_s: float, end_s: float, per_s: float, service_s: float) -> None:
    """Reports twice a second from every worker: each task does its share of `per_s`, `service_s` a tuple."""
    steps = round((end_s - start_s) / 0.5)
    last: dict[str, WorkerReport] = {}
    for step in range(steps + 1):
        for worker in record.hosts():
            report = _report(record, worker, start_s + step * 0.5, step * 0.5, per_s, service_s)
            meter.add(worker, last.get(worker), report)
            last[worker] = report


def _report(
    record: TopologyRecord, worker: str, at_s: float, passed_s: float, per_s: float, service_s: float
) -> WorkerReport:
    tasks, channels = [], []
    for task, host in record.placement.items():
        if host == worker:
            done = round(per_s * passed_s / record.parallelism[task.operator])
            state_bytes = 1000 if task.operator == "count" else 0
            tasks.append(
                TaskReport(task.operator, task.number, done, done, done, 0, 5, done * service_s, 0.0, state_bytes)
            )
            for number in record.outline.out_edges[task.operator]:
                targets = record.parallelism[record.outline.edges[number].target]
                channels += [(ChannelId(number, task.number, target), done // targets) for target in range(targets)]
    busy_s = sum(task.busy_s for task in tasks)
    latency = [0] * 400
    latency[100] = sum(task.processed for task in tasks if task.operator == "out")
    return WorkerReport(
        at_s,
        tasks,
        channels,
        latency,
        None,
        1,
        True,
        [100 * count for _, count in channels],
        {other: 0.0005 for other in record.hosts() if other != worker},
        Usage(busy_s, 50_000_000),
    )


SOURCE = TaskId("n", 0)
