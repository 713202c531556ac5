"""What a savepoint is: a manifest, and one file of state for each task. The format, and what may start from it. No I/O.

A savepoint is a consistent cut with nothing on its way: every tuple that a source had read is processed to the end, so
there are no channels in it, and any number of tasks can start from it. The manifest names every step with its tasks,
and every file with its size and checksum. `FORMAT` grows when a reader of today could not read what is written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NoReturn

from xxhash import xxh3_64

from rstream.api import Bolt, Source, Spout
from rstream.core.versions import Span, Version
from rstream.errors import SavepointError
from rstream.graph import Graph, Kind, Operator
from rstream.groupings import All

FORMAT = 1
KIND = "rstream savepoint"
MANIFEST = "manifest.json"
MAGIC = b"rstream savepoint file 1\n"
"""How every file of state begins."""

Own = Literal["nothing", "parts", "whole"]
"""What a task keeps beside keyed state: nothing, parts that can be dealt out again, or one value."""


@dataclass(frozen=True, slots=True)
class SavedTask:
    """One task in a savepoint."""

    step: str
    task: int
    file: str = ""
    bytes: int = 0
    checksum: str = ""
    cells: int = 0
    """How many cells of keyed state it has, timers included."""
    ranges: tuple[tuple[int, int], ...] = ()
    """The slots that it owned, where its step is keyed."""
    own: Own = "nothing"
    ended: bool = False
    position: int = 0
    """How many steps it had taken."""
    watermark_s: float | None = None
    """Its watermark, if it had one."""
    sent_s: float | None = None
    """The watermark that its receivers know of, if any."""


@dataclass(frozen=True, slots=True)
class SavedStep:
    """One step in a savepoint."""

    name: str
    kind: Kind
    keyed: bool
    tasks: tuple[SavedTask, ...]
    splits: tuple[str, ...] = ()
    """The splits of a source, those that have ended included; a spout's tasks."""

    @property
    def has_state(self) -> bool:
        """Leaving it out would lose something."""
        return self.kind == "source" or any(task.cells or task.own != "nothing" for task in self.tasks)


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a savepoint holds."""

    topology: str
    steps: tuple[SavedStep, ...]
    made_s: float = 0.0
    made_by: str = ""
    """The version of rstream that wrote it."""
    format: int = FORMAT
    by_name: Mapping[str, SavedStep] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {step.name: step for step in self.steps})

    @property
    def tasks(self) -> list[SavedTask]:
        """All tasks of all steps."""
        return [task for step in self.steps for task in step.tasks]

    def to_json(self) -> bytes:
        """The content of the manifest's file: for people too, with a checksum over the rest."""
        content = {
            "kind": KIND,
            "format": self.format,
            "topology": self.topology,
            "made_s": self.made_s,
            "made_by": self.made_by,
            "steps": [asdict(step) for step in self.steps],
        }
        return json.dumps({**content, "checksum": _checksum(content)}, indent=1).encode()

    @classmethod
    def from_json(cls, content: bytes, uri: str) -> Manifest:
        """The manifest that `to_json` gave, or an error that says what is wrong with this one."""
        try:
            found = json.loads(content)
        except ValueError:
            _refuse(uri, f"its {MANIFEST} is damaged: it is not whole JSON")
        if not isinstance(found, dict) or found.get("kind") != KIND:
            _refuse(uri, f"its {MANIFEST} is not one of rstream's")
        if not isinstance(found.get("format"), int) or found["format"] > FORMAT:
            _refuse(
                uri,
                f"it has format {found.get('format')} (written by rstream {found.get('made_by')}), this rstream reads "
                f"up to {FORMAT}; use a newer rstream",
            )
        if found.pop("checksum", None) != _checksum(found):
            _refuse(uri, f"its {MANIFEST} is damaged: its checksum is wrong")
        steps = tuple(
            SavedStep(
                step["name"],
                step["kind"],
                step["keyed"],
                tuple(
                    SavedTask(**{**task, "ranges": tuple((low, high) for low, high in task["ranges"])})
                    for task in step["tasks"]
                ),
                tuple(step["splits"]),
            )
            for step in found["steps"]
        )
        return cls(found["topology"], steps, found["made_s"], found["made_by"], found["format"])


def _checksum(content: Mapping[str, Any]) -> str:
    return xxh3_64(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _refuse(uri: str, why: str) -> NoReturn:
    raise SavepointError(f"savepoint {uri}: {why}")


def manifest_of(
    outline: Graph, splits: Mapping[str, Sequence[str]], files: Sequence[SavedTask], made_s: float, made_by: str
) -> Manifest:
    """The manifest for what all tasks of a topology have written."""
    return Manifest(
        outline.name,
        tuple(
            SavedStep(
                operator.name,
                operator.kind,
                bool(outline.key_groupings(operator.name)),
                tuple(sorted((each for each in files if each.step == operator.name), key=lambda each: each.task)),
                tuple(splits.get(operator.name, ())) if operator.kind == "source" else (),
            )
            for operator in outline.operators
        ),
        made_s,
        made_by,
    )


def check(manifest: Manifest, graph: Graph, uri: str) -> None:
    """Refuse a savepoint that a topology cannot start from, before anything is started."""
    if manifest.topology != graph.name:
        _refuse(uri, f"it is one of topology {manifest.topology!r}, not of {graph.name!r}")
    for step in manifest.steps:
        operator = graph.by_name.get(step.name)
        if operator is not None:
            _check_step(step, operator, graph, uri)
        elif step.has_state:
            known = ", ".join(graph.by_name)
            _refuse(uri, f"it holds state of step {step.name!r}, which the topology does not have; its steps: {known}")


def _check_step(step: SavedStep, operator: Operator, graph: Graph, uri: str) -> None:
    where = f"step {step.name!r}"
    if not step.has_state:
        return
    if operator.kind != step.kind:
        _refuse(uri, f"{where} is a {step.kind} in it and a {operator.kind} in the topology")
    keyed = bool(graph.key_groupings(step.name))
    if keyed != step.keyed:
        words = {True: "keyed", False: "not keyed"}
        _refuse(uri, f"the input of {where} is {words[step.keyed]} in it and {words[keyed]} in the topology")
    if operator.kind == "source":
        _check_source(step, operator, uri)
        return
    spans = Version.first(operator.parallelism).spans
    if all(stays(step, task, operator.parallelism, spans) for task in step.tasks):
        if len(step.tasks) < operator.parallelism and _gets_everything(graph, step.name):
            _refuse(uri, f"{where}: every task has seen every tuple (all grouping), a new one would have missed them")
        return
    keep = f"start it with parallelism {len(step.tasks)}"
    if not step.keyed and any(task.cells for task in step.tasks):
        _refuse(uri, f"{where}: its state is not keyed, so it cannot be divided anew; {keep}")
    if any(task.own == "whole" for task in step.tasks) and not can_redeal(operator.logic):
        _refuse(
            uri,
            f"{where}: what its snapshot method gives cannot be divided over other tasks; {keep}, or give the bolt a "
            "redeal method",
        )


def _check_source(step: SavedStep, operator: Operator, uri: str) -> None:
    spout = any(task.own == "whole" for task in step.tasks)
    if isinstance(operator.logic, Spout) != spout:
        _refuse(uri, f"step {step.name!r}: what it reads has changed between a Source and a Spout")
    if spout and len(step.tasks) != operator.parallelism:
        _refuse(
            uri,
            f"step {step.name!r}: a spout has one position for each task; start it with parallelism {len(step.tasks)}",
        )


def stays(step: SavedStep, task: SavedTask, tasks: int, spans: Sequence[Span]) -> bool:
    """Whether a task's own state can go to the task of the same number, as it is."""
    if task.own == "nothing" and (step.keyed or not task.cells):
        return True
    mine = tuple((span.low, span.high) for span in spans if span.owner == task.task)
    return task.task < tasks and (not step.keyed or mine == task.ranges)


def _gets_everything(graph: Graph, step: str) -> bool:
    return any(isinstance(graph.edges[number].grouping, All) for number in graph.in_edges[step])


def can_redeal(logic: Any) -> bool:
    """Whether a bolt says itself how its own state is dealt out over another number of tasks."""
    return isinstance(logic, Bolt) and type(logic).redeal is not Bolt.redeal


def splits_of(manifest: Manifest, graph: Graph, first: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The splits that each source goes on with: those of the savepoint, and for a new source its own."""
    splits = {name: list(names) for name, names in first.items()}
    for step in manifest.steps:
        operator = graph.by_name.get(step.name)
        if operator is not None and isinstance(operator.logic, Source):
            splits[step.name] = list(step.splits)
    return splits
