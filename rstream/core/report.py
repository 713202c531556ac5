"""What a worker says of itself every now and then: counters since its start, and what its process has used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rstream.core.bolt_task import BoltTask
from rstream.core.channel import ChannelId
from rstream.core.recovery_times import RecoveryTimes
from rstream.core.stalls import Stall
from rstream.core.worker import WorkerMachine


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What one task has done since it started."""

    operator: str
    number: int
    received: int
    processed: int
    emitted: int
    failed: int
    queued: int
    busy_s: float
    occupied_s: float = 0.0
    state_bytes: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    backup_s: float = 0.0
    """How long the last interval between two of its snapshots was."""
    dropped: int = 0
    """The part of the failed that was dropped by `t_out_s` or `q_size`."""
    backed_up_s: float | None = None
    """When its newest safe snapshot was cut."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a worker's process has used: CPU time since its start, and memory now."""

    cpu_s: float = 0.0
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """What one worker says of itself, now and then; counts are since its start."""

    at_s: float
    tasks: list[TaskReport]
    channels: list[tuple[ChannelId, int]]
    latency: list[int]
    oldest_born_s: float | None
    version: int
    healed: bool
    channel_bytes: list[int] = field(default_factory=list)
    """What each of `channels` has carried."""
    hops_s: Mapping[str, float] = field(default_factory=dict)
    """How long a message takes to each worker that is sent to."""
    usage: Usage = Usage()
    gaps: list[int] = field(default_factory=list)
    """How long the turns of its loop took, as a histogram."""
    stalls: list[Stall] = field(default_factory=list)
    """When its sinks heard nothing for a while."""
    recoveries: list[RecoveryTimes] = field(default_factory=list)
    """What bringing lost tasks back took here."""


def report_of(machine: WorkerMachine, now_s: float, usage: Usage = Usage()) -> WorkerReport:
    """A worker's report; read from another thread than the loop's, so it may be a few tuples out of step."""
    tasks = [
        TaskReport(
            task.id.operator,
            task.id.number,
            task.counters.received,
            task.counters.processed,
            task.counters.emitted,
            task.counters.failed,
            task.queued() if isinstance(task, BoltTask) else 0,
            task.counters.busy_s,
            task.counters.occupied_s,
            task.ctx.state.rough_bytes(),
            dict(task.ctx.metrics.values),
            machine.backups.every_s.get(task.id, 0.0),
            task.counters.dropped,
            machine.backups.safe_s.get(task.id),
        )
        for task in machine.tasks
    ]
    channels = [channel for task in machine.tasks for channel in task.out_channels]
    return WorkerReport(
        now_s,
        tasks,
        [(channel.id, channel.next - channel.began) for channel in channels],
        list(machine.latency.counts),
        machine.oldest_born_s(),
        machine.deployment.version,
        machine.healed,
        [channel.bytes_total for channel in channels],
        {peer: link.hop_s for peer, link in list(machine.out_links.items()) if link.hop_s is not None},
        usage,
        list(machine.gaps.counts),
        list(machine.stalls.kept),
        [replace(times) for times in list(machine.recoveries)],
    )
