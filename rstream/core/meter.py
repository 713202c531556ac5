"""The monitor's arithmetic: workers' running counters become aligned samples, and samples become windows.

Workers report at moments of their own. What a counter gained between two reports is spread evenly over the samples
that the time between them touches, so that all workers' figures speak of the same seconds. The newest samples are kept
whole; of older ones a line for each operator stays, which `rstream status --history` exports and the lab replays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from rstream.core.channel import ChannelId, TaskId
from rstream.core.histogram import Histogram
from rstream.core.report import TaskReport, WorkerReport

SAMPLE_S = 1.0
SAMPLES_MAX = 300
"""So many samples are kept whole: five minutes, ten times the longest window of any policy's defaults."""
LINES_MAX = 3600
COUNTS = ("received", "processed", "emitted", "failed", "busy_s", "occupied_s")


@dataclass(slots=True)
class Sample:
    """What happened in one second; all figures are gains in it, but for the queues and sizes at its end."""

    number: int
    tasks: dict[TaskId, list[float]] = field(default_factory=dict)
    """For each task its gains in the order of COUNTS."""
    channels: dict[ChannelId, list[float]] = field(default_factory=dict)
    """For each channel tuples and bytes."""
    cpu_s: dict[str, float] = field(default_factory=dict)
    queued: dict[TaskId, int] = field(default_factory=dict)
    state_bytes: dict[TaskId, int] = field(default_factory=dict)
    memory_bytes: dict[str, int] = field(default_factory=dict)
    latency: Histogram = field(default_factory=Histogram)

    def line(self) -> dict[str, Any]:
        """The sample in short, by operator."""
        operators: dict[str, dict[str, float]] = {}
        for task, gains in self.tasks.items():
            line = operators.setdefault(task.operator, dict.fromkeys((*COUNTS, "queued", "tasks"), 0.0))
            for name, gain in zip(COUNTS, gains, strict=True):
                line[name] += gain
            line["queued"] += self.queued.get(task, 0)
            line["tasks"] += 1
        return {
            "at_s": (self.number + 1) * SAMPLE_S,
            "operators": operators,
            "cpu_s": sum(self.cpu_s.values()),
            "p50_ms": _ms(self.latency.quantile(0.5)),
            "p99_ms": _ms(self.latency.quantile(0.99)),
        }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


@dataclass(frozen=True, slots=True)
class Window:
    """The samples from `start_s` to `end_s`, oldest first."""

    start_s: float
    end_s: float
    samples: tuple[Sample, ...]

    @property
    def length_s(self) -> float:
        """How long it is."""
        return self.end_s - self.start_s

    def gain(self, task: TaskId, what: str) -> float:
        """How much a task's counter gained."""
        at = COUNTS.index(what)
        return sum(sample.tasks[task][at] for sample in self.samples if task in sample.tasks)

    def series(self, tasks: Iterable[TaskId], what: str) -> list[float]:
        """The gains of some tasks together, sample by sample."""
        at, wanted = COUNTS.index(what), list(tasks)
        return [sum(sample.tasks[task][at] for task in wanted if task in sample.tasks) for sample in self.samples]

    def channel(self, channel: ChannelId) -> list[list[float]]:
        """(tuples, bytes) of a channel, sample by sample."""
        return [sample.channels.get(channel, [0.0, 0.0]) for sample in self.samples]

    def cpu_s(self, worker: str) -> float:
        """CPU time of a worker's process."""
        return sum(sample.cpu_s.get(worker, 0.0) for sample in self.samples)

    def last(self, what: str, key: Any) -> float:
        """The newest of a figure that is no gain: `queued`, `state_bytes` or `memory_bytes`."""
        for sample in reversed(self.samples):
            found: Mapping[Any, float] = getattr(sample, what)
            if key in found:
                return found[key]
        return 0.0

    def latency(self) -> Histogram:
        """End-to-end latencies of everything that reached a sink."""
        total = Histogram()
        for sample in self.samples:
            total.merge(sample.latency.counts)
        return total


class Meter:
    """The samples of one topology.

    >>> from rstream.core.report import WorkerReport
    >>> meter = Meter()
    >>> def report(at_s, processed):
    ...     task = TaskReport("count", 0, processed, processed, 0, 0, 0, 0.0)
    ...     return WorkerReport(at_s, [task], [], [0] * 400, None, 1, True)
    >>> meter.add("w0", report(10.5, 0), report(12.5, 200))
    >>> meter.window(10.0, 13.0).series([TaskId("count", 0)], "processed")
    [50.0, 100.0, 50.0]
    """

    def __init__(self) -> None:
        self.samples: dict[int, Sample] = {}
        self._trimmed = -1
        self.lines: deque[dict[str, Any]] = deque(maxlen=LINES_MAX)
        self.heard_s: dict[str, float] = {}
        self.hops_s: dict[tuple[str, str], float] = {}
        """What a message takes from one worker to another, as last measured."""

    def add(self, worker: str, before: WorkerReport | None, report: WorkerReport) -> None:
        """Take what a worker gained between two of its reports; the first only says where its counters stand."""
        self.heard_s[worker] = report.at_s
        self.hops_s.update({(worker, peer): hop_s for peer, hop_s in report.hops_s.items()})
        if before is None:
            before = _empty(report)
        start_s, end_s = before.at_s, max(report.at_s, before.at_s)
        shares = _shares(start_s, end_s)
        counted = {(task.operator, task.number): task for task in before.tasks}
        last = self._sample(int(end_s // SAMPLE_S))
        for task in report.tasks:
            id = TaskId(task.operator, task.number)
            gains = _gains(counted.get((task.operator, task.number)), task)
            for number, share in shares:
                row = self._sample(number).tasks.setdefault(id, [0.0] * len(COUNTS))
                for at, gain in enumerate(gains):
                    row[at] += gain * share
            last.queued[id], last.state_bytes[id] = task.queued, task.state_bytes
        self._add_channels(before, report, shares)
        cpu_s = report.usage.cpu_s - before.usage.cpu_s
        for number, share in shares:
            sample = self._sample(number)
            sample.cpu_s[worker] = sample.cpu_s.get(worker, 0.0) + max(0.0, cpu_s) * share
        last.memory_bytes[worker] = report.usage.memory_bytes
        last.latency.merge(max(0, now - then) for now, then in zip(report.latency, before.latency, strict=True))
        self._trim()

    def _add_channels(self, before: WorkerReport, report: WorkerReport, shares: list[tuple[int, float]]) -> None:
        counts = dict(zip((id for id, _ in before.channels), before.channel_bytes, strict=False))
        tuples = dict(before.channels)
        for at, (channel, count) in enumerate(report.channels):
            carried = report.channel_bytes[at] if at < len(report.channel_bytes) else 0
            gained = max(0, count - tuples.get(channel, 0)), max(0, carried - counts.get(channel, 0))
            if gained[0]:
                for number, share in shares:
                    row = self._sample(number).channels.setdefault(channel, [0.0, 0.0])
                    row[0] += gained[0] * share
                    row[1] += gained[1] * share

    def _sample(self, number: int) -> Sample:
        found = self.samples.get(number)
        if found is None:
            found = Sample(number)
            if number > self._trimmed:  # what comes later than that is lost
                self.samples[number] = found
        return found

    def _trim(self) -> None:
        while len(self.samples) > SAMPLES_MAX:
            oldest = self._trimmed = min(self.samples)
            self.lines.append(self.samples.pop(oldest).line())

    def forget(self, worker: str) -> None:
        """The worker is gone: nobody waits for its reports."""
        self.heard_s.pop(worker, None)
        self.hops_s = {pair: hop_s for pair, hop_s in self.hops_s.items() if worker not in pair}

    def complete_until(self, workers: Iterable[str]) -> float | None:
        """Up to when all of these workers have reported; None where one never has."""
        heard = [self.heard_s.get(worker) for worker in workers]
        known = [at_s for at_s in heard if at_s is not None]
        return None if len(known) < len(heard) or not known else min(known)

    def window(self, start_s: float, end_s: float) -> Window:
        """The samples between two times, cut to whole samples."""
        first, after = round(start_s / SAMPLE_S), round(end_s / SAMPLE_S)
        samples = tuple(self.samples.get(number) or Sample(number) for number in range(first, after))
        return Window(first * SAMPLE_S, after * SAMPLE_S, samples)

    def history(self) -> list[dict[str, Any]]:
        """A line for each second that is known, oldest first."""
        return [*self.lines, *(self.samples[number].line() for number in sorted(self.samples))]


def _empty(report: WorkerReport) -> WorkerReport:
    """Where the counters of a worker stood before its first report: they are taken as they are."""
    return WorkerReport(
        report.at_s,
        report.tasks,
        report.channels,
        report.latency,
        None,
        report.version,
        True,
        report.channel_bytes,
        report.hops_s,
        report.usage,
    )


def _gains(before: TaskReport | None, now: TaskReport) -> list[float]:
    """What each counter gained; a task that has begun anew on this worker counts from zero."""
    values = [float(getattr(now, name)) for name in COUNTS]
    if before is None:
        return values
    then = [float(getattr(before, name)) for name in COUNTS]
    return [value - old if value >= old else value for value, old in zip(values, then, strict=True)]


def _shares(start_s: float, end_s: float) -> list[tuple[int, float]]:
    """The samples that a stretch of time touches, each with its share of it."""
    first, last = int(start_s // SAMPLE_S), int(end_s // SAMPLE_S)
    length_s = end_s - start_s
    if first >= last or length_s > SAMPLES_MAX * SAMPLE_S:
        return [(last, 1.0)]
    edges = [start_s, *((number * SAMPLE_S) for number in range(first + 1, last + 1)), end_s]
    parts = [(first + at, (after - before) / length_s) for at, (before, after) in enumerate(pairwise(edges))]
    return [(number, share) for number, share in parts if share > 0.0]
