"""The DSL: a topology as fluent streams, or in Storm's words with spouts, bolts and groupings.

Both make the same frozen `Graph`. The name of a step comes first, always: it is the metric label, the log field and
the key of its state in snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import cloudpickle

from rstream import groupings
from rstream.api import DEAD_LETTERS, DEFAULT_OUTPUT, Bolt, Source, Spout
from rstream.errors import TopologyError
from rstream.event_time import EventTime
from rstream.graph import Edge, Graph, Kind, Operator
from rstream.groupings import Grouping, Key, LocalOrShuffle, PartialKey, field_key
from rstream.operators import sinks, transforms
from rstream.operators.sources import as_source
from rstream.operators.windowed import WindowedStream, windowed
from rstream.operators.windowing import everything
from rstream.operators.windows import Trigger, Window


class Topology:
    """A topology under construction.

    >>> topology = Topology("shout")
    >>> words = topology.source("words", ["a", "b"])
    >>> _ = words.map("upper", str.upper).sink("out")
    >>> [operator.name for operator in topology.build().operators]
    ['words', 'upper', 'out']
    """

    def __init__(self, name: str, **config: Any) -> None:
        if not isinstance(name, str) or not name or "/" in name or name != name.strip():
            raise TopologyError(f"a topology needs a name without '/' and outer spaces, got {name!r}")
        self.name = name
        self.config = config
        self._operators: list[Operator] = []
        self._edges: list[Edge] = []
        self._labels: set[str] = set()

    def source(
        self, name: str, source: Source | Spout | Iterable[Any] | Callable[[], Iterable[Any]], **options: Any
    ) -> Stream:
        """Start a stream: from a `Source`, a `Spout`, an iterable, or a function that gives an iterator."""
        return self._add(name, "source", as_source(name, source), (), options)

    def merge(self, name: str, *streams: Stream) -> Stream:
        """One stream of several; tuples interleave as they arrive."""
        if len(streams) < 2:
            raise TopologyError(f"step {name!r}: merge needs two streams or more, got {len(streams)}")
        self._claim(name)
        return Stream(self, tuple(origin for stream in streams for origin in stream.origins))

    def spout(self, name: str, spout: Spout | Source, **options: Any) -> Stream:
        """Storm's `setSpout`."""
        return self.source(name, spout, **options)

    def bolt(self, name: str, bolt: Bolt | type[Bolt], kind: Kind = "bolt", **options: Any) -> Declarer:
        """Storm's `setBolt`: connect it with `.shuffle("step")`, `.fields("step", "word")` and so on."""
        self._add(name, kind, transforms.as_bolt(name, bolt), (), options)
        return Declarer(self, name)

    def build(self) -> Graph:
        """The checked, frozen graph. Raises `TopologyError` with the step and the remedy."""
        edges = tuple(self._with_fields(edge) for edge in self._edges)
        graph = Graph(self.name, tuple(self._operators), edges, dict(self.config))
        for operator in graph.operators:
            _check_travels(operator, (operator.logic, dict(operator.config)))
        for edge in graph.edges:
            _check_travels(graph.by_name[edge.target], edge.grouping)
        return graph

    def _claim(self, name: str) -> None:
        if name in self._labels:
            raise TopologyError(f"step {name!r}: the name is used twice; give each step its own")
        self._labels.add(name)

    def _add(self, name: str, kind: Kind, logic: Any, origins: tuple[Origin, ...], options: dict[str, Any]) -> Stream:
        known = set(Operator.__slots__) - {"name", "kind", "logic"}
        for option in options:
            if option not in known:
                raise TopologyError(
                    f"step {name!r}: unknown option {option!r}; the options are: {', '.join(sorted(known))}"
                )
        self._claim(name)
        for names in ("fields", "outputs"):
            options[names] = _names(name, names, options.get(names, ()))
        self._operators.append(Operator(name=name, kind=kind, logic=logic, **options))
        for origin in origins:
            self._edges.append(Edge(origin.step, name, origin.grouping, origin.output))
        return Stream(self, (Origin(name),))

    def _connect(self, source: str, target: str, grouping: Grouping, output: str) -> None:
        self._edges.append(Edge(source, target, grouping, output))

    def _with_fields(self, edge: Edge) -> Edge:
        """The edge with its fields as positions: bolts may be declared before the steps that they read."""
        grouping = edge.grouping
        if not isinstance(grouping, Key | PartialKey) or not isinstance(grouping.of, _Fields):
            return edge
        available = next((each.fields for each in self._operators if each.name == edge.source), None)
        if available is None:
            return edge  # the step is unknown, which the graph reports with the list of steps
        for field in grouping.of.names:
            if field not in available:
                listed = ", ".join(available) or "none; declare them with fields=(...)"
                where = f"step {grouping.of.step!r}: {edge.source!r}"
                raise TopologyError(f"{where} has no field {field!r}; its fields: {listed}")
        return replace(edge, grouping=replace(grouping, of=field_key(grouping.of.names, available)))


_DEFAULT_GROUPING = LocalOrShuffle()


@dataclass(frozen=True, slots=True)
class Origin:
    """One output of one step, with how it is shared out."""

    step: str
    output: str = DEFAULT_OUTPUT
    grouping: Grouping = _DEFAULT_GROUPING


@dataclass(frozen=True, slots=True)
class Stream:
    """The tuples of one or more steps on their way to the next.

    Options of every step: `parallelism`, `fields`, `outputs`, `tick_s`, `blocking`, `on_error`, `event_time`, `config`.
    """

    topology: Topology
    origins: tuple[Origin, ...]

    def map(self, name: str, function: Callable[[Any], Any], **options: Any) -> Stream:
        """One value for each."""
        return self._bolt(name, transforms.Map(function), options)

    def flat_map(self, name: str, function: Callable[[Any], Iterable[Any]], **options: Any) -> Stream:
        """Any number of values for each."""
        return self._bolt(name, transforms.FlatMap(function), options)

    def filter(self, name: str, predicate: Callable[[Any], Any], **options: Any) -> Stream:
        """Only the values for which `predicate` is true."""
        return self._bolt(name, transforms.Filter(predicate), {"fields": self._fields(), **options})

    def process(self, name: str, bolt: Bolt | type[Bolt] | Callable[[Any, Any], None], **options: Any) -> Stream:
        """A bolt, or a function `(value, out)`."""
        return self._bolt(name, transforms.as_bolt(name, bolt), options)

    def branch(self, name: str, predicate: Callable[[Any], Any], **options: Any) -> tuple[Stream, Stream]:
        """Two streams: the values for which `predicate` is true, and the others."""
        options = {"fields": self._fields(), **options, "outputs": (transforms.OTHERWISE,)}
        stream = self._bolt(name, transforms.Branch(predicate), options)
        return stream, stream.output(transforms.OTHERWISE)

    def merge(self, name: str, *others: Stream) -> Stream:
        """This stream and others as one."""
        return self.topology.merge(name, self, *others)

    def key_by(self, name: str, key: Callable[[Any], Any] | str | None = None) -> KeyedStream:
        """Equal keys meet in one task. `key` is a function, a declared field, or nothing: the value itself."""
        self.topology._claim(name)
        if isinstance(key, str):
            key = _Fields(name, (key,))
        grouped = tuple(Origin(origin.step, origin.output, Key(key)) for origin in self.origins)
        return KeyedStream(self.topology, grouped)

    def event_time(
        self,
        name: str,
        time: Callable[[Any], Any],
        delay_s: float = 0.0,
        idle_s: float | None = None,
        every_s: float = 0.2,
        **options: Any,
    ) -> Stream:
        """Say when values happened: `time(value)` makes watermarks, as `EventTime` describes."""
        stamp = EventTime(time, delay_s, idle_s, every_s)
        return self._bolt(name, transforms.Same(), {"fields": self._fields(), **options, "event_time": stamp})

    def window(
        self,
        window: Window,
        time: Callable[[Any], Any] | None = None,
        lateness_s: float = 0.0,
        early: Trigger | None = None,
    ) -> WindowedStream:
        """Cut the whole stream into windows of event time `time(value)`, or into runs of values; one task does it.

        A window is emitted when the watermark reaches its end, and again for each value that comes up to `lateness_s`
        later; `early` emits results before the end.

        >>> from rstream.operators.windows import Tumbling
        >>> from rstream.testing import run
        >>> topology = Topology("hours")
        >>> hours = topology.source("times", [1, 2, 70, 65]).event_time("time", int)
        >>> _ = hours.window(Tumbling(60), time=int).count("count").sink("out")
        >>> run(topology)["out"]
        [(0, 60, 2), (60, 120, 2)]
        """
        grouped = tuple(Origin(origin.step, origin.output, Key(everything)) for origin in self.origins)
        return windowed(Stream(self.topology, grouped), window, time, lateness_s, early, keyed=False)

    def reduce(self, name: str, function: Callable[[Any, Any], Any], **options: Any) -> Stream:
        """Only for keyed streams: this one is refused, with what to write."""
        raise self._no_keys(name, "reduce")

    def count(self, name: str, **options: Any) -> Stream:
        """Only for keyed streams: this one is refused, with what to write."""
        raise self._no_keys(name, "count")

    def distinct(self, name: str, **options: Any) -> Stream:
        """Only for keyed streams: this one is refused, with what to write."""
        raise self._no_keys(name, "distinct")

    def _no_keys(self, name: str, verb: str) -> TopologyError:
        return TopologyError(
            f"step {name!r}: {verb} works key by key and this stream has no keys; write "
            f".key_by('a name', key).{verb}({name!r}, ...), or cut the whole stream with .window(...) first"
        )

    def grouped(self, grouping: Grouping) -> Stream:
        """Share the tuples out in another way than local-or-shuffle: see `rstream.groupings`."""
        return Stream(self.topology, tuple(Origin(o.step, o.output, grouping) for o in self.origins))

    def output(self, name: str) -> Stream:
        """A named side output of the step."""
        return Stream(self.topology, tuple(Origin(origin.step, name) for origin in self.origins))

    @property
    def dead_letters(self) -> Stream:
        """The tuples on which the step failed, with `on_error="dead_letter"`."""
        return self.output(DEAD_LETTERS)

    def sink(self, name: str, sink: Bolt | type[Bolt] | Callable[[Any], Any] | None = None, **options: Any) -> Stream:
        """End of the stream: a sink, a function of one value, or nothing: collect for `results()`."""
        return self.topology._add(name, "sink", sinks.as_sink(name, sink), self.origins, options)

    def _fields(self) -> tuple[str, ...]:
        """The declared fields of the stream's tuples, where all of its steps declare the same."""
        declared = {operator.name: operator.fields for operator in self.topology._operators}
        fields = {declared[origin.step] for origin in self.origins}
        return fields.pop() if len(fields) == 1 else ()

    def _bolt(self, name: str, bolt: Bolt, options: dict[str, Any]) -> Stream:
        return self.topology._add(name, "bolt", bolt, self.origins, options)


@dataclass(frozen=True, slots=True)
class KeyedStream(Stream):
    """A stream whose equal keys meet in one task; steps on it have keyed state."""

    def reduce(self, name: str, function: Callable[[Any, Any], Any], **options: Any) -> Stream:
        """`(key, so_far)` after every value, with `so_far = function(so_far, value)`."""
        return self._bolt(name, transforms.Reduce(function), options)

    def count(self, name: str, **options: Any) -> Stream:
        """`(key, n)` after every value."""
        return self._bolt(name, transforms.Count(), options)

    def distinct(self, name: str, **options: Any) -> Stream:
        """The first value of each key, and no other."""
        return self._bolt(name, transforms.First(), options)

    def window(
        self,
        window: Window,
        time: Callable[[Any], Any] | None = None,
        lateness_s: float = 0.0,
        early: Trigger | None = None,
    ) -> WindowedStream:
        """Cut the values of each key into windows; otherwise as `Stream.window`."""
        return windowed(self, window, time, lateness_s, early, keyed=True)


class Declarer:
    """The inputs of a bolt, in Storm's words; each call adds one and gives the declarer back."""

    def __init__(self, topology: Topology, name: str) -> None:
        self._topology, self.name = topology, name

    @property
    def stream(self) -> Stream:
        """What the bolt emits, as a fluent stream."""
        return Stream(self._topology, (Origin(self.name),))

    def group(self, step: str, grouping: Grouping, output: str = DEFAULT_OUTPUT) -> Declarer:
        """Take tuples of `step`, shared out by any grouping."""
        self._topology._connect(step, self.name, grouping, output)
        return self

    def shuffle(self, step: str, output: str = DEFAULT_OUTPUT) -> Declarer:
        """Every task in turn."""
        return self.group(step, groupings.Shuffle(), output)

    def fields(self, step: str, *fields: str, output: str = DEFAULT_OUTPUT) -> Declarer:
        """Tuples with equal values in these fields to the same task; with no fields, equal tuples."""
        return self.group(step, Key(self._key(fields)), output)

    def partial_key(self, step: str, *fields: str, output: str = DEFAULT_OUTPUT) -> Declarer:
        """Each key to one of two tasks, the less loaded one."""
        return self.group(step, groupings.PartialKey(self._key(fields)), output)

    def all(self, step: str, output: str = DEFAULT_OUTPUT) -> Declarer:
        """Every tuple to every task."""
        return self.group(step, groupings.All(), output)

    def global_(self, step: str, output: str = DEFAULT_OUTPUT) -> Declarer:
        """Every tuple to the first task."""
        return self.group(step, groupings.Global(), output)

    def direct(self, step: str, output: str = DEFAULT_OUTPUT) -> Declarer:
        """The sender names the task."""
        return self.group(step, groupings.Direct(), output)

    def local_or_shuffle(self, step: str, output: str = DEFAULT_OUTPUT) -> Declarer:
        """Tasks on the sender's worker in turn, if there are any; else every task."""
        return self.group(step, LocalOrShuffle(), output)

    def none(self, step: str, output: str = DEFAULT_OUTPUT) -> Declarer:
        """No preference."""
        return self.group(step, groupings.NoGrouping(), output)

    def custom(
        self, step: str, choose: Callable[[Any, int], int | Sequence[int]], output: str = DEFAULT_OUTPUT
    ) -> Declarer:
        """`choose(value, tasks)` names the receiving task or tasks."""
        return self.group(step, groupings.Custom(choose), output)

    def load_balanced(self, step: str, output: str = DEFAULT_OUTPUT) -> Declarer:
        """PSPS's grouping: the task with the least predicted use."""
        return self.group(step, groupings.LoadBalanced(), output)

    def _key(self, fields: tuple[str, ...]) -> Callable[[Any], Any] | None:
        return _Fields(self.name, fields) if fields else None


@dataclass(frozen=True, slots=True)
class _Fields:
    """Stands for a key function until `build()` knows at which positions the fields are."""

    step: str
    names: tuple[str, ...]

    def __call__(self, value: Any) -> Any:
        raise TypeError(f"step {self.step!r}: its key fields are known once the topology is built")


def _names(step: str, option: str, names: Any) -> tuple[str, ...]:
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise TopologyError(f"step {step!r}: {option} must be a list of names, got {names!r}")
    return tuple(names)


def _check_travels(operator: Operator, thing: Any) -> None:
    try:
        cloudpickle.dumps(thing)
    except Exception as error:
        raise TopologyError(
            f"step {operator.name!r}: cannot be sent to a worker ({type(error).__name__}: {error}); "
            "make connections, locks and files in open() instead of capturing them"
        ) from None
