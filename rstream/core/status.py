"""What `status` shows, computed from the coordinator's record and the workers' newest reports. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rstream.core.backup import holders_of
from rstream.core.channel import ChannelId, TaskId
from rstream.core.histogram import Histogram
from rstream.core.meter import Meter
from rstream.core.records import OVER, TopologyRecord
from rstream.core.recovery_times import Death, recoveries
from rstream.core.report import TaskReport, WorkerReport
from rstream.state.holders import combined

MARKS_MAX = 600
COUNTS = ("received", "processed", "emitted", "failed", "dropped", "busy_s", "occupied_s")
DEATHS_KEPT = 16


class ReportBook:
    """The newest reports of a topology's workers, and the ones before, for rates."""

    def __init__(self) -> None:
        self.newest: dict[str, WorkerReport] = {}
        self.before: dict[str, WorkerReport] = {}
        self.meter = Meter()
        self.deaths: deque[Death] = deque(maxlen=DEATHS_KEPT)
        self.marks: dict[TaskId, deque[tuple[float, int]]] = {}
        """For each task when it had emitted how much; enough of the past to tell what is acknowledged."""
        self._seen: dict[TaskId, tuple[float, str, TaskReport]] = {}
        """When, and by whom, each task was last told of."""
        self._before: dict[TaskId, list[float]] = {}
        """What tasks that have moved had counted in the workers before."""

    def add(self, worker: str, report: WorkerReport) -> None:
        """Take a report, unless a newer one has overtaken it."""
        last = self.newest.get(worker)
        if last is not None:
            if report.at_s < last.at_s:
                return
            self.before[worker] = last
        self.newest[worker] = report
        self.meter.add(worker, last, report)
        for task in report.tasks:
            id = TaskId(task.operator, task.number)
            at_s, host, last_told = self._seen.get(id, (report.at_s, worker, task))
            if host != worker and report.at_s > at_s:
                self._before[id] = _counts(self.whole(last_told))
            if report.at_s >= at_s:
                self._seen[id] = report.at_s, worker, task
            marks = self.marks.setdefault(id, deque(maxlen=MARKS_MAX))
            marks.append((report.at_s, self.whole(task).emitted))

    def whole(self, task: TaskReport) -> TaskReport:
        """A task's report with what it had counted before it moved: no step of it is taken twice."""
        before = self._before.get(TaskId(task.operator, task.number))
        if before is None:
            return task
        counted: dict[str, Any] = {
            name: now + old for name, now, old in zip(COUNTS, _counts(task), before, strict=True)
        }
        return replace(task, **counted)

    def restarted(self) -> None:
        """All workers go, and others begin with the same tasks: what was counted stays, as that of those who went."""
        for worker, report in self.newest.items():
            self.newest[worker] = replace(report, tasks=[self.whole(task) for task in report.tasks])
        self._seen, self._before = {}, {}

    def died(self, worker: str, now_s: float, tasks: list[str]) -> None:
        """A worker was found dead; its tasks go on elsewhere."""
        if tasks:
            self.deaths.append(Death(worker, now_s, tasks))
        self._seen = {id: seen for id, seen in self._seen.items() if seen[1] != worker}
        self.forget(worker)

    def forget(self, worker: str) -> None:
        """Nothing more is heard of a worker."""
        self.newest.pop(worker, None)
        self.before.pop(worker, None)
        self.meter.forget(worker)

    def rates(self) -> dict[ChannelId, float]:
        """Tuples a second of each channel over the last interval."""
        rates: dict[ChannelId, float] = {}
        for worker, report in self.newest.items():
            before = self.before.get(worker)
            if before is None or report.at_s <= before.at_s:
                continue
            counts = dict(before.channels)
            for channel, count in report.channels:
                rates[channel] = max(0.0, (count - counts.get(channel, 0)) / (report.at_s - before.at_s))
        return rates

    def operator_rates(self) -> dict[str, float]:
        """Tuples processed a second by each operator over the last interval."""
        rates: dict[str, float] = {}
        for worker, report in self.newest.items():
            before = self.before.get(worker)
            if before is None or report.at_s <= before.at_s:
                continue
            counts = {(task.operator, task.number): task.processed for task in before.tasks}
            for task in report.tasks:
                done = task.processed - counts.get((task.operator, task.number), 0)
                rates[task.operator] = rates.get(task.operator, 0.0) + max(0.0, done / (report.at_s - before.at_s))
        return rates


def status_of(record: TopologyRecord, book: ReportBook, slots: Mapping[str, int] | None = None) -> dict[str, Any]:
    """The object that `rstream status NAME --json` prints."""
    deployment = record.deployment()
    tasks = [book.whole(task) for report in book.newest.values() for task in report.tasks]
    latency = Histogram()
    for report in book.newest.values():
        latency.merge(report.latency)
    sources = {operator.name for operator in record.outline.operators if operator.kind == "source"}
    emitted = sum(task.emitted for task in tasks if task.operator in sources)
    rates, operator_rates = book.rates(), book.operator_rates()
    return {
        "name": record.name,
        "state": record.state,
        "policy": record.policy,
        "survives": _survives(record),
        "healed": _healed(record, book),
        "workers": [
            {
                "id": name,
                "node": worker.address.node,
                "slot": (slots or {}).get(name),
                "pid": worker.pid,
                "incarnation": worker.address.incarnation,
                "endpoint": worker.address.endpoint,
                "spare": worker.spare,
                "loop_gap_ms_p999": _gap_ms(book, name),
                "tasks": [str(task) for task, host in record.placement.items() if host == name],
            }
            for name, worker in record.workers.items()
        ],
        "operators": [
            {
                "name": operator.name,
                "kind": operator.kind,
                "folder": operator.folder or None,
                "parallelism": record.parallelism[operator.name],
                "active": len(record.active(operator.name)),
                "pool": record.instances.get(operator.name, record.parallelism[operator.name])
                - len(record.active(operator.name)),
                "received": _total(tasks, operator.name, "received"),
                "processed": _total(tasks, operator.name, "processed"),
                "emitted": _total(tasks, operator.name, "emitted"),
                "failed": _total(tasks, operator.name, "failed"),
                "dropped": _total(tasks, operator.name, "dropped"),
                "queue": _total(tasks, operator.name, "queued"),
                "busy_s": _total(tasks, operator.name, "busy_s"),
                "rate": operator_rates.get(operator.name, 0.0),
                "backup_interval_s": _longest_interval(tasks, operator.name),
                "backed_up_s": _oldest_backup(tasks, operator.name),
                "metrics": _metrics(tasks, operator.name),
            }
            for operator in record.outline.operators
        ],
        "edges": [
            {
                "from": str(source),
                "to": str(target),
                "tier": deployment.tier(source, target),
                "grouping": edge.grouping.label,
                "rate": rates.get(ChannelId(number, source.number, target.number), 0.0),
            }
            for number, edge in enumerate(record.outline.edges)
            for source in record.tasks(edge.source)
            for target in record.tasks(edge.target)
        ],
        "emitted": emitted,
        "acked": emitted if record.state == "FINISHED" else _acked(book, sources, emitted),
        "failed": sum(task.failed for task in tasks),
        "restarts": record.restarts,
        "recoveries": recoveries(
            list(book.deaths), [times for report in book.newest.values() for times in report.recoveries]
        ),
        "savepoint": record.fall_back.uri if record.fall_back is not None else None,
        "p50_ms": _ms(latency.quantile(0.50)),
        "p99_ms": _ms(latency.quantile(0.99)),
        "settings": [{"key": key, "value": value, "origin": origin} for key, value, origin in record.settings],
    }


def _counts(task: TaskReport) -> list[float]:
    return [getattr(task, name) for name in COUNTS]


def _longest_interval(tasks: list[TaskReport], operator: str) -> float:
    return max((round(task.backup_s, 3) for task in tasks if task.operator == operator), default=0.0)


def _oldest_backup(tasks: list[TaskReport], operator: str) -> float | None:
    """When the oldest of the newest safe snapshots of an operator's tasks was cut; None while one has none."""
    cut_s = [task.backed_up_s for task in tasks if task.operator == operator]
    known_s = [at_s for at_s in cut_s if at_s is not None]
    return min(known_s) if known_s and len(known_s) == len(cut_s) else None


def node_load(node: str, cpus: float, records: Mapping[str, TopologyRecord], books: Mapping[str, ReportBook]) -> float:
    """The CPU time of a node's worker processes over its CPUs, in the last interval of reports."""
    used = 0.0
    for name, record in records.items():
        book = books.get(name)
        for worker, known in record.workers.items():
            if book is not None and known.address.node == node and worker in book.newest and worker in book.before:
                new, old = book.newest[worker], book.before[worker]
                if new.at_s > old.at_s:
                    used += max(0.0, new.usage.cpu_s - old.usage.cpu_s) / (new.at_s - old.at_s)
    return used / cpus if cpus > 0 else 0.0


def _gap_ms(book: ReportBook, worker: str) -> float | None:
    """How long a tuple may have to wait for the loop: one turn in a thousand takes longer than this."""
    report = book.newest.get(worker)
    return None if report is None or not report.gaps else _ms(Histogram(report.gaps).quantile(0.999))


def _healed(record: TopologyRecord, book: ReportBook) -> bool:
    """Nothing is being recovered, and the next failure may come."""
    reports = [book.newest.get(worker) for worker in record.workers]
    return record.round is None and all(
        report is not None and report.healed and report.version == record.version for report in reports
    )


def _survives(record: TopologyRecord) -> dict[str, Any]:
    """What the placement of backups outlives: so many workers at once, the loss of a whole node."""
    if record.state in OVER or not record.recovers or not record.workers:
        return {"workers": 0, "nodes": 0, "witness": False, "what": "nothing is backed up"}
    several = len({worker.address.node for worker in record.workers.values()}) > 1
    if record.checkpointed:
        last = record.checkpoints.committed
        what = f"any failure: all tasks go back to checkpoint {last}" if last else "any failure: all tasks begin again"
        return {"workers": len(record.workers) - 1, "nodes": int(several), "witness": True, "what": what}
    deployment = record.deployment()
    kept = combined(holders_of(deployment, task).survives for task in record.placement)
    alone = kept is None or kept.holders < 0
    return {
        "workers": 0 if alone else 1,
        "nodes": 1 if kept is not None and kept.own_domain and several else 0,
        # A sink's commit needs a worker that does not fail together with its own; without one it commits all the same.
        "witness": len(deployment.workers) > 1,
        "what": str(kept) if kept is not None else "nothing: there are no tasks",
    }


def _total(tasks: list[TaskReport], operator: str, what: str) -> Any:
    return sum(getattr(task, what) for task in tasks if task.operator == operator)


def _metrics(tasks: list[TaskReport], operator: str) -> dict[str, float]:
    metrics: dict[str, float] = {}
    for task in tasks:
        if task.operator == operator:
            for name, value in task.metrics.items():
                metrics[name] = metrics.get(name, 0.0) + value
    return metrics


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


def _acked(book: ReportBook, sources: set[str], emitted: int) -> int:
    """Source tuples older than everything that is still on its way, by what the sources had emitted when."""
    reports = [*book.newest.values(), *book.before.values()]
    oldest = [report.oldest_born_s for report in reports if report.oldest_born_s is not None]
    if not oldest:
        return emitted
    limit_s = min(oldest)
    return sum(
        max((count for at_s, count in marks if at_s <= limit_s), default=0)
        for task, marks in book.marks.items()
        if task.operator in sources
    )
