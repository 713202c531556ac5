"""The topology as a value: frozen operators and edges, checked once, built with no runtime imported.

`Graph` is what hosts run and what policies see the shape of. Use `rstream.Topology` to make one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, get_args

from rstream.api import DEAD_LETTERS, DEFAULT_OUTPUT, Bolt, Source, TransactionalSink
from rstream.errors import TopologyError
from rstream.event_time import EventTime
from rstream.groupings import Custom, Direct, Grouping, Key, PartialKey

Kind = Literal["source", "bolt", "sink"]
OnError = Literal["fail", "skip", "dead_letter"]

PARALLELISM_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Operator:
    """One vertex. `logic` is the user's bolt, spout or source; each task runs its own copy of it."""

    name: str
    kind: Kind
    logic: Any
    parallelism: int = 1
    fields: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    tick_s: float | None = None
    blocking: bool = False
    max_pending: int | None = None
    on_error: OnError | None = None
    event_time: EventTime | None = None
    own_state: bool = False
    """Keeps state beside `ctx.state`; only outlines say so, for they have no logic to ask."""
    folder: str = ""
    """Where a file sink writes; only outlines say so."""
    config: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "config", MappingProxyType(dict(self.config)))
        if not isinstance(self.name, str):
            raise TopologyError(f"a step's name comes first and is a str, got {self.name!r}")
        if not self.name or "/" in self.name or "#" in self.name:
            raise TopologyError(f"step {self.name!r}: a name is needed, without '/' and '#'")
        if isinstance(self.parallelism, bool) or not isinstance(self.parallelism, int):
            raise TopologyError(f"step {self.name!r}: parallelism must be a whole number, got {self.parallelism!r}")
        if not 1 <= self.parallelism <= PARALLELISM_MAX:
            raise TopologyError(
                f"step {self.name!r}: parallelism must be at least 1 and at most {PARALLELISM_MAX}, "
                f"got {self.parallelism}"
            )
        if self.tick_s is not None and not (_is_number(self.tick_s) and 0 < self.tick_s < math.inf):
            raise TopologyError(f"step {self.name!r}: tick_s must be a number above 0, got {self.tick_s!r}")
        if self.max_pending is not None and not (
            isinstance(self.max_pending, int) and not isinstance(self.max_pending, bool) and self.max_pending >= 1
        ):
            raise TopologyError(f"step {self.name!r}: max_pending must be at least 1, got {self.max_pending!r}")
        if not isinstance(self.blocking, bool):
            raise TopologyError(f"step {self.name!r}: blocking must be True or False, got {self.blocking!r}")
        for output in self.outputs:
            if output in (DEFAULT_OUTPUT, DEAD_LETTERS):
                raise TopologyError(
                    f"step {self.name!r}: the output {output!r} is there already; give the side output another name"
                )
        if len(set(self.outputs)) < len(self.outputs):
            raise TopologyError(f"step {self.name!r}: an output is named twice in {self.outputs!r}; name each once")
        if self.on_error not in (None, *get_args(OnError)):
            known = ", ".join(get_args(OnError))
            raise TopologyError(f"step {self.name!r}: on_error must be one of {known}; got {self.on_error!r}")
        if self.event_time is not None and not isinstance(self.event_time, EventTime):
            raise TopologyError(f"step {self.name!r}: event_time must be an EventTime, got {self.event_time!r}")
        if self.event_time is not None and self.kind == "sink":
            raise TopologyError(f"step {self.name!r}: a sink emits nothing that event_time could stamp; remove it")
        if self.max_pending is not None and self.kind != "source":
            raise TopologyError(f"step {self.name!r}: max_pending is for sources; remove it")
        if self.kind == "source" and (self.blocking or self.tick_s is not None):
            option = "blocking" if self.blocking else "tick_s"
            raise TopologyError(f"step {self.name!r}: {option} is for bolts and sinks; remove it")

    def __reduce__(self) -> tuple[Any, ...]:
        values = [getattr(self, name) for name in self.__slots__]
        values[-1] = dict(self.config)
        return Operator, tuple(values)


@dataclass(frozen=True, slots=True)
class Edge:
    """Tuples of one output of `source` go to `target`, shared out by `grouping`."""

    source: str
    target: str
    grouping: Grouping
    output: str = DEFAULT_OUTPUT

    @property
    def name(self) -> str:
        """How the edge is called in `status` and errors."""
        via = "" if self.output == DEFAULT_OUTPUT else f"[{self.output}]"
        return f"{self.source}{via} -> {self.target}"


@dataclass(frozen=True)
class Graph:
    """A checked topology: operators in topological order, edges in the order in which they were made."""

    name: str
    operators: tuple[Operator, ...]
    edges: tuple[Edge, ...]
    config: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "config", frozen(self.config))
        object.__setattr__(self, "operators", _in_topological_order(self.operators, self.edges))
        _check(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Graph, (self.name, self.operators, self.edges, thawed(self.config))

    @functools.cached_property
    def by_name(self) -> Mapping[str, Operator]:
        """Operators by their names."""
        return {operator.name: operator for operator in self.operators}

    @functools.cached_property
    def in_edges(self) -> Mapping[str, tuple[int, ...]]:
        """For each operator the numbers of the edges into it."""
        return {
            operator.name: tuple(i for i, edge in enumerate(self.edges) if edge.target == operator.name)
            for operator in self.operators
        }

    @functools.cached_property
    def out_edges(self) -> Mapping[str, tuple[int, ...]]:
        """For each operator the numbers of the edges out of it."""
        return {
            operator.name: tuple(i for i, edge in enumerate(self.edges) if edge.source == operator.name)
            for operator in self.operators
        }

    def outline(self) -> Graph:
        """The same graph without the user's code: for the coordinator, which runs no topology's code."""
        return Graph(
            self.name,
            tuple(
                replace(
                    operator,
                    logic=None,
                    config={},
                    event_time=None,
                    own_state=_has_own_state(operator.logic),
                    folder=_folder(operator.logic),
                )
                for operator in self.operators
            ),
            tuple(replace(edge, grouping=_outlined(edge.grouping)) for edge in self.edges),
        )

    def key_groupings(self, name: str) -> Mapping[int, Key]:
        """The key grouping of each edge into an operator, by the edge's number; empty where it is not keyed."""
        groupings = {number: self.edges[number].grouping for number in self.in_edges[name]}
        return {number: grouping for number, grouping in groupings.items() if isinstance(grouping, Key)}


def frozen(value: Any) -> Any:
    """A copy of nested settings that nobody can change: mappings are read-only, lists are tuples.

    >>> settings = frozen({"backup": {"interval_s": 1.0}})
    >>> settings["backup"]["interval_s"] = 2.0
    Traceback (most recent call last):
    ...
    TypeError: 'mappingproxy' object does not support item assignment
    """
    if isinstance(value, Mapping):
        return MappingProxyType({key: frozen(inner) for key, inner in value.items()})
    return tuple(map(frozen, value)) if isinstance(value, list) else value


def thawed(value: Any) -> Any:
    """The same with plain dicts, which can be pickled."""
    return {key: thawed(inner) for key, inner in value.items()} if isinstance(value, Mapping) else value


def _has_own_state(logic: Any) -> bool:
    return isinstance(logic, Bolt) and type(logic).snapshot is not Bolt.snapshot


def _folder(logic: Any) -> str:
    folder = getattr(logic, "folder", "") if isinstance(logic, TransactionalSink) else ""
    return folder if isinstance(folder, str) else ""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _outlined(grouping: Grouping) -> Grouping:
    if isinstance(grouping, Key | PartialKey):
        return replace(grouping, of=None)
    if isinstance(grouping, Custom):
        return Custom(_no_choice)
    return grouping


def _no_choice(value: Any, tasks: int) -> int:
    raise TopologyError("an outline routes nothing")


def _in_topological_order(operators: tuple[Operator, ...], edges: tuple[Edge, ...]) -> tuple[Operator, ...]:
    by_name: dict[str, Operator] = {}
    for operator in operators:
        if operator.name in by_name:
            raise TopologyError(f"step {operator.name!r}: the name is used twice; give each step its own")
        by_name[operator.name] = operator
    for edge in edges:
        for end in (edge.source, edge.target):
            if end not in by_name:
                known = ", ".join(sorted(by_name)) or "none"
                other = edge.target if end == edge.source else edge.source
                raise TopologyError(f"step {other!r}: unknown input {end!r}; the steps are: {known}")
    waiting = {name: {edge.source for edge in edges if edge.target == name} for name in by_name}
    order: list[Operator] = []
    while waiting:
        ready = [name for name, inputs in waiting.items() if not inputs]
        if not ready:
            circle = " -> ".join(_a_cycle(waiting))
            raise TopologyError(
                f"the steps form a cycle: {circle}; a topology must run one way, break it at one of them"
            )
        for name in ready:
            del waiting[name]
            order.append(by_name[name])
        for inputs in waiting.values():
            inputs.difference_update(ready)
    return tuple(order)


def _a_cycle(waiting: Mapping[str, set[str]]) -> list[str]:
    path = [next(iter(waiting))]
    while True:
        before = sorted(name for name in waiting[path[-1]] if name in waiting)[0]
        if before in path:
            return [*reversed(path[path.index(before) :]), path[-1]] if before != path[-1] else [before, before]
        path.append(before)


def _check(graph: Graph) -> None:
    if not graph.operators:
        raise TopologyError(f"topology {graph.name!r} has no steps: add a source with topology.source(...)")
    for operator in graph.operators:
        inputs = [graph.edges[number] for number in graph.in_edges[operator.name]]
        if operator.kind == "source" and inputs:
            raise TopologyError(f"step {operator.name!r}: a source has no inputs, got {inputs[0].source!r}")
        if operator.kind != "source" and not inputs:
            raise TopologyError(f"step {operator.name!r}: has no input; connect it to another step")
        if 0 < len(graph.key_groupings(operator.name)) < len(inputs):
            raise TopologyError(
                f"step {operator.name!r}: keyed and unkeyed inputs are mixed, so a tuple's key would be unknown; "
                "key all of its inputs"
            )
    for edge in graph.edges:
        source = graph.by_name[edge.source]
        allowed = (DEFAULT_OUTPUT, DEAD_LETTERS, *source.outputs)
        if edge.output not in allowed:
            known = ", ".join(source.outputs) or "none declared"
            raise TopologyError(
                f"step {edge.target!r}: {edge.source!r} has no output {edge.output!r}; its side outputs: {known}"
            )
        if source.kind == "sink" and edge.output != DEAD_LETTERS:
            raise TopologyError(f"step {edge.target!r}: {edge.source!r} is a sink and emits nothing")
        if isinstance(edge.grouping, Direct) and isinstance(source.logic, Source):
            raise TopologyError(
                f"step {edge.target!r}: only a bolt or spout can use the direct grouping, {edge.source!r} is neither"
            )
