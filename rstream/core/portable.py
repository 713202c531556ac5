"""A task as a savepoint holds it: without channels, and by names that outlive a change of parallelism.

`portable_head` is what goes into the file beside keyed state. `begin` gives it to a task of a new run, which may be one
of more or fewer: splits go by their names, keys by their slots, a bolt's own state by its parts or its `redeal`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rstream import values as codec
from rstream.api import Spout
from rstream.core.bolt_task import BoltTask
from rstream.core.channel import TaskId
from rstream.core.context import fresh_state
from rstream.core.keyed_task import KeyedBoltTask
from rstream.core.savepoint import Manifest, Own, SavedStep, SavedTask, can_redeal, stays
from rstream.core.source_task import SourceTask
from rstream.core.task import Task
from rstream.core.versions import Span, Version
from rstream.event_time import BEFORE_ALL
from rstream.graph import Graph
from rstream.keys import slot_of
from rstream.state.keyed import KeyedState
from rstream.state.parts import Part, redeal

Head = Mapping[str, Any]


@dataclass(frozen=True)
class TaskShare:
    """Which part of a step's input comes to a task (`rstream.api.Share`)."""

    task: int
    tasks: int
    spans: Sequence[Span] = ()
    key_of: Any = None
    keyed: bool = False

    def owns(self, value: Any) -> bool:
        """Whether a value of the input would come to this task; without keys, to some task always the same."""
        if not self.keyed:
            return zlib.crc32(codec.encode_one(value)) % self.tasks == self.task
        return self.owns_key(value if self.key_of is None else self.key_of(value))

    def owns_key(self, key: Any) -> bool:
        """Whether a key comes to this task."""
        slot = slot_of(key)
        return any(span.low <= slot < span.high for span in self.spans if span.owner == self.task)


@dataclass
class Beginning:
    """What a task of a new run begins with."""

    step: SavedStep
    share: TaskShare
    state: KeyedState
    heads: dict[int, Head]
    """Of the tasks whose files were read, by their numbers."""
    sent_s: Mapping[str, float] = field(default_factory=dict)
    """For each sending step the watermark that its receivers know of."""


class Savepoint(Protocol):
    """A savepoint that can be read: by the host, which does the I/O."""

    manifest: Manifest

    def read(self, task: SavedTask, state: KeyedState, keeps: Callable[[Any], bool] | None) -> Head:
        """Load a task's keyed state (of some keys) into `state`; gives its head."""


# Into a savepoint.


def portable_head(task: Task) -> dict[str, Any]:
    """What a savepoint holds of a task beside its keyed state. Between two steps, with nothing on its way."""
    if isinstance(task, SourceTask):
        return {"outs": [], **_source_head(task)}
    assert isinstance(task, BoltTask), f"{task.id}: neither source nor bolt"
    graph = task.deployment.graph
    lanes = [] if task.stamps is None else list(task.stamps.latest.items())
    return {
        "outs": [],
        "bolt": None if task.commits else task._call(task.bolt.snapshot),
        "lanes": [[graph.edges[edge].name, number, at_s] for (edge, number), at_s in lanes],
    }


def _source_head(task: SourceTask) -> dict[str, Any]:
    if isinstance(task.source, Spout):
        return {"offset": task._call(task.source.offset), "over": not task.turn}
    names = task.splits
    latest: dict[str, float] = {}
    for (split, _), at_s in () if task.stamps is None else task.stamps.latest.items():
        latest[names[split]] = min(at_s, latest.get(names[split], at_s))
    return {
        "offsets": {names[split]: task.readers[split].offset for split in task.turn},
        "over": [name for split, name in enumerate(names) if split not in task.turn],
        "latest": latest,
    }


def saved_task(task: Task, head: Head) -> SavedTask:
    """What the manifest says of a task; its file is still to be written."""
    position = task.ctx.draws_from + task.position
    owned = task.ownership.installed if isinstance(task, KeyedBoltTask) else ()
    return SavedTask(
        task.id.operator,
        task.id.number,
        cells=task.ctx.state.cell_count(),
        ranges=tuple((low, high) for low, high, _ in owned),
        own="whole" if "offset" in head else _own_of(head.get("bolt"), position),
        ended=task.ended,
        position=position,
        watermark_s=_known(task.time.at_s),
        sent_s=_known(task.time.at_s if task.stamps is None else task.stamps.sent),
    )


def _own_of(snapshot: Any, position: int) -> Own:
    if snapshot is None or not position:
        return "nothing"
    parts = isinstance(snapshot, list) and bool(snapshot) and all(isinstance(each, Part) for each in snapshot)
    return "parts" if parts else "whole"


def _known(watermark_s: float) -> float | None:
    return None if watermark_s == BEFORE_ALL else watermark_s


# Out of a savepoint.


def beginning_of(savepoint: Savepoint, graph: Graph, id: TaskId, first: Version) -> Beginning | None:
    """What a task begins with; None if the savepoint has nothing for it, as for one that is new since or inactive."""
    step = savepoint.manifest.by_name.get(id.operator)
    if step is None or id.number not in first.active:
        return None
    keys = graph.key_groupings(id.operator)
    key = next(iter(keys.values())).of if keys else None
    share = TaskShare(id.number, len(first.active), first.spans if keys else (), key, bool(keys))
    state = fresh_state()
    heads: dict[int, Head] = {}
    for task in needed(step, share):
        alone = task.ranges == tuple((span.low, span.high) for span in share.spans if span.owner == id.number)
        if step.keyed:
            keeps = None if alone else share.owns_key
        else:
            keeps = None if task.task == id.number else _nothing
        heads[task.task] = savepoint.read(task, state, keeps)
    sent_s = {
        each.name: min(known)
        for each in savepoint.manifest.steps
        if (known := [task.sent_s for task in each.tasks if task.sent_s is not None])
    }
    return Beginning(step, share, state, heads, sent_s)


def _nothing(key: Any) -> bool:
    return False


def needed(step: SavedStep, share: TaskShare) -> list[SavedTask]:
    """The tasks whose files a new task has to read."""
    if step.kind == "source" or any(task.own != "nothing" for task in step.tasks):
        return list(step.tasks)
    if not step.keyed:
        return [task for task in step.tasks if task.task == share.task]
    mine = [span for span in share.spans if span.owner == share.task]
    return [
        task
        for task in step.tasks
        if any(low < span.high and span.low < high for low, high in task.ranges for span in mine)
    ]


def begin(task: Task, given: Beginning) -> None:
    """Start a task, which is open, where the tasks of the savepoint stood."""
    task.ctx.draws_from = max((each.position for each in given.step.tasks), default=0)
    task.ctx.adopt_timers()
    if isinstance(task, SourceTask):
        _begin_source(task, given)
    elif isinstance(task, BoltTask):
        _begin_bolt(task, given)


def _begin_source(task: SourceTask, given: Beginning) -> None:
    if isinstance(task.source, Spout):
        head = given.heads.get(task.id.number, {})
        if head:
            task._call(task.source.seek, head["offset"])
            if head["over"]:
                task.turn.clear()
        return
    offsets = {name: offset for head in given.heads.values() for name, offset in head["offsets"].items()}
    latest = {name: at_s for head in given.heads.values() for name, at_s in head["latest"].items()}
    over = {name for head in given.heads.values() for name in head["over"]}
    for split, name in enumerate(task.splits):
        if name in over:
            task.turn.remove(split)
            task._call(task.readers.pop(split).close)
            if task.stamps is not None:
                task.stamps.ended((split, 0))
        elif name in offsets:
            task._call(task.readers[split].close)
            task._reader(split, offsets[name])
            if task.stamps is not None and name in latest:
                task.stamps.latest[split, 0] = latest[name]
    if task.stamps is not None:
        task.stamps.sent = _least([each.sent_s for each in given.step.tasks])


def _begin_bolt(task: BoltTask, given: Beginning) -> None:
    own = _own_state(task, given)
    if own is not None:
        task._call(task.bolt.restore, own)
    _begin_time(task, given)
    if given.step.tasks and all(each.ended for each in given.step.tasks):
        # Its inputs had ended: it has said its last, and only passes the end on.
        task._call(task.bolt.close)
        task._end_outputs()


def _own_state(task: BoltTask, given: Beginning) -> Any:
    step, share = given.step, given.share
    owned = [each for each in step.tasks if each.own != "nothing"]
    if not owned:
        return None
    if all(stays(step, each, share.tasks, share.spans) for each in owned):
        mine = given.heads.get(share.task)
        return None if mine is None or share.task not in {each.task for each in owned} else mine["bolt"]
    snapshots = [given.heads[each.task]["bolt"] for each in owned]
    if can_redeal(task.bolt):
        return task._call(task.bolt.redeal, snapshots, share)
    return redeal(snapshots, share.tasks)[share.task]


def _begin_time(task: BoltTask, given: Beginning) -> None:
    """The promises that the senders have made hold on, whichever task they were made by."""
    graph, time = task.deployment.graph, task.time
    time.at_s = task.ctx.watermark_s = _least([each.watermark_s for each in given.step.tasks])
    senders = [
        (edge, number) for edge in task.known for number in range(task.deployment.parallelism[graph.edges[edge].source])
    ]
    for edge, number in senders:
        sent_s = given.sent_s.get(graph.edges[edge].source)
        if sent_s is not None:
            time.lanes[edge, number] = sent_s
    if task.stamps is not None:
        latest: dict[str, float] = {}
        for head in given.heads.values():
            for name, _, at_s in head["lanes"]:
                latest[name] = min(at_s, latest.get(name, at_s))
        for edge, number in senders:
            if graph.edges[edge].name in latest:
                task.stamps.latest[edge, number] = latest[graph.edges[edge].name]
        task.stamps.sent = _least([each.sent_s for each in given.step.tasks])


def _least(times: Sequence[float | None]) -> float:
    return min((BEFORE_ALL if at_s is None else at_s for at_s in times), default=BEFORE_ALL)
