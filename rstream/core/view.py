"""Builds the View that policies see from the coordinator's records and the monitor's samples. Pure.

Node load is the CPU time of all worker processes on the node, whoever they serve, over the CPUs that it declares, plus
the configured baseline; time held by `ctx.occupy` counts as CPU time, for that is what it stands for. A task's CPU is
its share of the busy time of its worker; its memory is state and queued bytes; its I/O what it sends to other nodes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rstream.config import ControlConfig
from rstream.core.channel import ChannelId, TaskId
from rstream.core.live_changes import checked
from rstream.core.meter import SAMPLE_S, Meter, Window
from rstream.core.pool import pool_of
from rstream.core.records import OVER, TopologyRecord
from rstream.core.slots import Numbering, SlotBook
from rstream.errors import UsageError
from rstream.graph import PARALLELISM_MAX
from rstream.groupings import LoadBalanced
from rstream.schedulers.base import (
    EdgeView,
    Links,
    Load,
    NodeView,
    OperatorView,
    TaskTable,
    TierCosts,
    TopologyView,
    Traffic,
    View,
)

IDLE = Load()
THREAD_HOP_S = 1e-6
"""Within a worker a batch passes by reference: what is left is a call."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What Ray says of a live node; `draining` nodes take no new work."""

    id: str
    cpus: float
    memory_bytes: float
    slots: int
    draining: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """A view, with the way back from its slots to the book's."""

    view: View
    numbering: Numbering


@dataclass
class TaskFigures:
    """What one task did in the window, as fractions of its node where they are loads."""

    received: float = 0.0
    processed: float = 0.0
    busy_s: float = 0.0
    queue: float = 0.0
    state_bytes: float = 0.0
    load: Load = IDLE

    @property
    def execute_ms(self) -> float:
        """Busy time per tuple."""
        return self.busy_s / self.processed * 1e3 if self.processed > 0 else 0.0


@dataclass
class _Measured:
    """One topology's window, task by task."""

    record: TopologyRecord
    window: Window
    tasks: dict[TaskId, TaskFigures] = field(default_factory=dict)
    tuple_bytes: dict[int, float] = field(default_factory=dict)


def build(
    planned: Sequence[TopologyRecord],
    everything: Sequence[TopologyRecord],
    meters: Mapping[str, Meter],
    nodes: Sequence[NodeFacts],
    book: SlotBook,
    config: ControlConfig,
    start_s: float,
    end_s: float,
    added: Sequence[str] = (),
) -> Picture:
    """The cluster over a window as the policy of the `planned` topologies sees it.

    `added` names the nodes that scaling has taken into use, in that order.
    """
    facts = {node.id: node for node in nodes}
    numbering = book.numbering([record.name for record in planned], {node.id: node.slots for node in nodes})
    measured = {
        record.name: _measure(record, meters[record.name].window(start_s, end_s), facts, config)
        for record in everything
        if record.state not in OVER and record.name in meters
    }
    baseline = Load(config.baseline_cpu, config.baseline_mem)
    loads = dict.fromkeys(facts, baseline)
    for each in measured.values():
        for task, figures in each.tasks.items():
            node = _node_of(each.record, task)
            if node in loads:
                loads[node] = loads[node].plus(figures.load)
    width = _tasks_per_slot(planned, config)
    views = tuple(
        NodeView(
            id=node.id,
            processes=numbering.processes(node.id),
            tasks_per_process=width,
            cpu_cores=node.cpus,
            memory_bytes=node.memory_bytes,
            load=loads[node.id],
            baseline=baseline,
            alive=not node.draining,
            added_order=list(added).index(node.id) if node.id in added else None,
        )
        for node in nodes
    )
    positions = {node.id: at for at, node in enumerate(nodes)}
    topologies = tuple(
        _topology(record, measured.get(record.name), positions, book, numbering, config, views) for record in planned
    )
    start = min(start_s, end_s)
    links = Links(config.bandwidth_bytes_s)
    view = View(start, end_s, views, topologies, SAMPLE_S, _tiers(planned, meters), links)
    return Picture(view, numbering)


def _tasks_per_slot(planned: Sequence[TopologyRecord], config: ControlConfig) -> int:
    """As configured, but never fewer than the workers asked for need."""
    sizes = [max(len(record.placement), sum(record.parallelism.values())) for record in planned]
    workers = [len(record.hosts()) or max(1, record.worker_count) for record in planned]
    needs = [math.ceil(size / count) for size, count in zip(sizes, workers, strict=True)]
    return max(config.tasks_per_slot, *needs) if needs else config.tasks_per_slot


def _node_of(record: TopologyRecord, task: TaskId) -> str | None:
    worker = record.workers.get(record.placement.get(task, ""))
    return worker.address.node if worker is not None else None


def _measure(
    record: TopologyRecord, window: Window, facts: Mapping[str, NodeFacts], config: ControlConfig
) -> _Measured:
    measured = _Measured(record, window)
    length_s = max(window.length_s, 1e-9)
    busy: dict[str, float] = {}
    for task, worker in record.placement.items():
        own_s = window.gain(task, "busy_s") - window.gain(task, "occupied_s")
        busy[worker] = busy.get(worker, 0.0) + max(0.0, own_s)
    sent = _bytes_to_other_nodes(record, window)
    measured.tuple_bytes = _tuple_bytes(record, window)
    for task, worker in record.placement.items():
        fact = facts.get(_node_of(record, task) or "")
        figures = measured.tasks[task] = TaskFigures(
            received=window.gain(task, "received"),
            processed=window.gain(task, "processed"),
            busy_s=window.gain(task, "busy_s"),
            queue=window.last("queued", task),
            state_bytes=window.last("state_bytes", task),
        )
        if fact is None:
            continue
        occupied_s = window.gain(task, "occupied_s")
        share = max(0.0, figures.busy_s - occupied_s) / busy[worker] if busy[worker] > 0 else 0.0
        cpu = (window.cpu_s(worker) * share + occupied_s) / (length_s * fact.cpus)
        each_bytes = max((measured.tuple_bytes.get(e, 0.0) for e in record.outline.in_edges[task.operator]), default=0)
        held = figures.state_bytes + figures.queue * each_bytes
        io = sent.get(task, 0.0) / (length_s * config.bandwidth_bytes_s)
        figures.load = Load(cpu, held / fact.memory_bytes, io)
    return measured


def _channels(record: TopologyRecord) -> list[tuple[ChannelId, TaskId, TaskId]]:
    return [
        (ChannelId(number, source.number, target.number), source, target)
        for number, edge in enumerate(record.outline.edges)
        for source in record.tasks(edge.source)
        for target in record.tasks(edge.target)
    ]


def _bytes_to_other_nodes(record: TopologyRecord, window: Window) -> dict[TaskId, float]:
    sent: dict[TaskId, float] = {}
    for channel, source, target in _channels(record):
        if _node_of(record, source) != _node_of(record, target):
            sent[source] = sent.get(source, 0.0) + sum(carried for _, carried in window.channel(channel))
    return sent


def _tuple_bytes(record: TopologyRecord, window: Window) -> dict[int, float]:
    totals: dict[int, list[float]] = {}
    for sample in window.samples:
        for channel, (tuples, carried) in sample.channels.items():
            total = totals.setdefault(channel.edge, [0.0, 0.0])
            total[0] += tuples
            total[1] += carried
    return {edge: carried / tuples for edge, (tuples, carried) in totals.items() if tuples > 0}


def _topology(
    record: TopologyRecord,
    measured: _Measured | None,
    positions: Mapping[str, int],
    book: SlotBook,
    numbering: Numbering,
    config: ControlConfig,
    nodes: Sequence[NodeView],
) -> TopologyView:
    if measured is None:
        measured = _Measured(record, Window(0.0, 0.0, ()))
    window = measured.window
    names = [operator.name for operator in record.outline.operators]
    tasks = [task for name in names for task in shown(record, name, nodes)]
    active = {name: record.active(name) for name in names}
    row_of = {task: row for row, task in enumerate(tasks)}
    figures = [measured.tasks.get(task, TaskFigures()) for task in tasks]
    where = [book.slot(record.placement.get(task, "")) for task in tasks]
    placed = [
        numbering.local(slot) if slot is not None and slot.process in numbering.shown.get(slot.node, ()) else None
        for slot in where
    ]
    table = TaskTable.columns(
        operator=[names.index(task.operator) for task in tasks],
        index=[task.number for task in tasks],
        node=[positions[slot.node] if slot is not None else -1 for slot in placed],
        process=[slot.process if slot is not None else -1 for slot in placed],
        active=[task.number in active[task.operator] for task in tasks],
        processed=[each.processed for each in figures],
        received=[each.received for each in figures],
        queue=[each.queue for each in figures],
        busy_s=[each.busy_s for each in figures],
        cpu=[each.load.cpu for each in figures],
        mem=[each.load.mem for each in figures],
        io=[each.load.io for each in figures],
        execute_ms=[each.execute_ms for each in figures],
        process_ms=[each.execute_ms + _wait_ms(each, window.length_s) for each in figures],
        state_bytes=[each.state_bytes for each in figures],
    )
    flows = [
        (row_of[source], row_of[target], window.channel(channel))
        for channel, source, target in _channels(record)
        if source in row_of and target in row_of
    ]
    samples = max(1, len(window.samples))
    rates = np.array([[tuples / SAMPLE_S for tuples, _ in flow] or [0.0] for _, _, flow in flows])
    latency = window.latency()
    sources = [operator.name for operator in record.outline.operators if operator.kind == "source"]
    return TopologyView(
        record.name,
        tuple(_operator(record, name, measured, config, nodes) for name in names),
        tuple(_edge(record, number, measured) for number in range(len(record.outline.edges))),
        table,
        Traffic.columns([a for a, _, _ in flows], [b for _, b, _ in flows], rates.reshape(len(flows), samples)),
        {name: _arrived(record, name, window) for name in sources},
        workers=record.worker_count,
        latency_ms=(latency.mean() or 0.0) * 1e3,
        failed=sum(window.gain(task, "failed") for task in tasks),
    )


def shown(record: TopologyRecord, name: str, nodes: Sequence[NodeView]) -> list[TaskId]:
    """The tasks of an operator that policies see: active ones, and idle ones as far as its pool goes.

    Tasks are never taken away while a topology runs. Idle ones beyond the pool are at nobody's disposal: a policy that
    grows the operator later may put them anywhere, as if they were new.
    """
    active = set(record.active(name))
    room = max(0, pool_of(record, name, _slots(nodes)) - len(active))
    idle = [task for task in record.tasks(name) if task.number not in active][:room]
    return sorted([*(TaskId(name, number) for number in active), *idle])


def _arrived(record: TopologyRecord, name: str, window: Window) -> float:
    """What came in at a source, before any queue: what it dropped counts too."""
    tasks = record.tasks(name)
    return sum(window.series(tasks, "emitted")) + sum(window.series(tasks, "failed"))


def _slots(nodes: Sequence[NodeView]) -> int:
    return sum(node.processes for node in nodes if node.alive)


def _wait_ms(each: TaskFigures, length_s: float) -> float:
    """How long a tuple waits before its turn, by Little's law."""
    return each.queue * length_s / each.processed * 1e3 if each.processed > 0 else 0.0


def _operator(
    record: TopologyRecord, name: str, measured: _Measured, config: ControlConfig, nodes: Sequence[NodeView]
) -> OperatorView:
    operator, mine = record.outline.by_name[name], record.tasks(name)
    keyed = bool(record.outline.key_groupings(name))
    window, now = measured.window, len(record.active(name))
    busy, done = window.series(mine, "busy_s"), window.series(mine, "processed")
    execute = tuple(b / n * 1e3 if n > 0 else 0.0 for b, n in zip(busy, done, strict=True))
    state_bytes = sum(measured.tasks[task].state_bytes for task in mine if task in measured.tasks)
    fixed = (operator.kind != "bolt" and config.scale == "bolts") or not _resizable(record, name)
    wait_ms = [_wait_ms(measured.tasks.get(task, TaskFigures()), window.length_s) for task in record.active_tasks(name)]
    extra_ms = sum(wait_ms) / max(1, len(wait_ms))
    most = config.parallelism_max.get(name, PARALLELISM_MAX)
    if operator.kind == "source":
        most = min(most, len(record.splits.get(name, ())) or 1)
    return OperatorView(
        name,
        kind=operator.kind,
        stateful=keyed or state_bytes > 0,
        keyed=keyed,
        parallelism_min=now if fixed else config.parallelism_min.get(name, 1),
        parallelism_max=now if fixed else most,
        pool=0 if fixed else pool_of(record, name, _slots(nodes)),
        state_bytes=state_bytes,
        received_samples=tuple(window.series(mine, "received")),
        execute_samples_ms=execute,
        process_samples_ms=tuple(ms + extra_ms for ms in execute),
    )


def _resizable(record: TopologyRecord, name: str) -> bool:
    """Whether policies can change the size of an operator; more can be done by a restart than while it runs."""
    live = record.control.execute in (None, "live")
    size = record.parallelism[name]
    try:
        checked(record, {name: size + 1 if size < PARALLELISM_MAX else size - 1}, live)
    except UsageError:
        return False
    return True


def _edge(record: TopologyRecord, number: int, measured: _Measured) -> EdgeView:
    edge = record.outline.edges[number]
    counts = [
        tuples
        for sample in measured.window.samples
        for channel, (tuples, _) in sample.channels.items()
        if channel.edge == number
    ]
    count = sum(counts)
    done = sum(measured.window.series(record.tasks(edge.source), "processed"))
    grouping = "load_balanced" if isinstance(edge.grouping, LoadBalanced) else edge.grouping.label
    return EdgeView(
        edge.source,
        edge.target,
        count / done if done > 0 else 1.0,
        grouping,
        count,
        measured.tuple_bytes.get(number, 92.0),
    )


def _tiers(planned: Sequence[TopologyRecord], meters: Mapping[str, Meter]) -> TierCosts:
    """What a hop costs on each tier, as the probes between workers found it; the median of all links."""
    found: dict[bool, list[float]] = {True: [], False: []}
    for record in planned:
        meter = meters.get(record.name)
        for (one, other), hop_s in (meter.hops_s if meter is not None else {}).items():
            ends = [record.workers.get(one), record.workers.get(other)]
            if ends[0] is not None and ends[1] is not None:
                found[ends[0].address.node == ends[1].address.node].append(hop_s)
    standard = TierCosts()
    return TierCosts(
        THREAD_HOP_S,
        float(np.median(found[True])) if found[True] else standard.process_s,
        float(np.median(found[False])) if found[False] else standard.node_s,
    )
