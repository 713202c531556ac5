"""The DSL and the graph: what can be written, and what a wrong topology is told before anything runs."""

from __future__ import annotations

import itertools
import pickle
import subprocess
import sys
import threading
from typing import Any

import cloudpickle
import pytest

from rstream import END, Bolt, Spout, Topology
from rstream.config import load
from rstream.errors import TopologyError
from rstream.graph import Edge, Graph, Operator
from rstream.groupings import All, Direct, FieldKey, Key, LocalOrShuffle, PartialKey, Shuffle, field_key
from rstream.operators.sources import FromFunction, FromIterable
from rstream.operators.transforms import Count, Map


class Numbers(Spout):
    def next_tuple(self, out: Any) -> object:
        return END


class Nothing(Bolt):
    def process(self, value: Any, out: Any) -> None:
        pass


def first(pair: Any) -> Any:
    return pair[0]


# Both ways of writing make the same graph.


def test_a_fluent_topology_is_a_graph_with_its_steps_in_order() -> None:
    topology = Topology("wordcount", policy="es")
    lines = topology.source("lines", ["a b"], parallelism=2)
    words = lines.flat_map("split", str.split, parallelism=3, fields=("word",))
    counts = words.key_by("word", "word").count("count", parallelism=4, config={"a": 1})
    counts.sink("out")
    graph = topology.build()
    assert graph.name == "wordcount"
    assert graph.config == {"policy": "es"}
    assert [(o.name, o.kind, o.parallelism) for o in graph.operators] == [
        ("lines", "source", 2),
        ("split", "bolt", 3),
        ("count", "bolt", 4),
        ("out", "sink", 1),
    ]
    assert [edge.name for edge in graph.edges] == ["lines -> split", "split -> count", "count -> out"]
    assert [edge.grouping for edge in graph.edges] == [LocalOrShuffle(), Key(FieldKey((0,))), LocalOrShuffle()]
    assert graph.by_name["count"].config["a"] == 1


def test_storms_words_make_the_same_edges() -> None:
    topology = Topology("storm")
    topology.spout("spout", Numbers(), fields=["word", "n"], outputs=["late"])
    bolt = topology.bolt("bolt", Nothing, parallelism=2)
    wanted: dict[str, Any] = {
        "shuffle": bolt.shuffle,
        "partialkey": lambda step: bolt.partial_key(step, "n"),
        "all": bolt.all,
        "global": bolt.global_,
        "direct": bolt.direct,
        "local-or-shuffle": bolt.local_or_shuffle,
        "none": bolt.none,
        "custom": lambda step: bolt.custom(step, lambda value, tasks: 0),
        "loadbalanced": bolt.load_balanced,
    }
    for declare in wanted.values():
        assert declare("spout") is bolt
    bolt.shuffle("spout", output="late")
    topology.bolt("keyed", Count).fields("spout", "n", "word").stream.sink("out")
    graph = topology.build()
    assert [edge.grouping.label for edge in graph.edges] == [*wanted, "shuffle", "key", "local-or-shuffle"]
    assert graph.edges[1].grouping == PartialKey(FieldKey((1,)))
    assert graph.edges[-2].grouping == Key(FieldKey((1, 0)))
    assert graph.edges[-3].name == "spout[late] -> bolt"


def test_a_bolt_may_be_declared_before_the_steps_that_it_reads() -> None:
    topology = Topology("backwards")
    topology.bolt("count", Count).fields("split", "word")
    topology.bolt("split", Nothing, fields=("n", "word")).shuffle("lines")
    topology.spout("lines", Numbers())
    graph = topology.build()
    assert [operator.name for operator in graph.operators] == ["lines", "split", "count"]
    assert graph.edges[0].grouping == Key(FieldKey((1,)))


def test_a_field_is_found_at_its_own_position_in_each_merged_stream() -> None:
    topology = Topology("merged")
    left = topology.source("left", [("a", 1)], fields=("word", "n"))
    right = topology.source("right", [(1, "a")], fields=("n", "word"))
    left.merge("both", right).key_by("word", "word").count("count")
    keys = [edge.grouping for edge in topology.build().edges]
    assert keys == [Key(FieldKey((0,))), Key(FieldKey((1,)))]


def test_steps_that_keep_their_values_keep_the_fields() -> None:
    topology = Topology("kept")
    pairs = topology.source("pairs", [("a", 1)], fields=("word", "n"))
    yes, no = pairs.filter("some", first).branch("half", first)
    yes.key_by("n", "n").count("count")
    no.key_by("word", "word").count("other")
    renamed = pairs.filter("named", first, fields=("x",))
    renamed.key_by("x", "x").count("third")
    others = topology.source("others", ["a"], fields=("text",))
    pairs.merge("mixed", others).filter("mix", first)
    graph = topology.build()
    assert [graph.by_name[name].fields for name in ("some", "half", "named", "mix")] == [("word", "n")] * 2 + [
        ("x",),
        (),
    ]


def test_sources_can_be_given_in_many_forms() -> None:
    topology = Topology("forms")
    topology.source("list", [1])
    topology.source("generator", (n for n in range(2)))
    topology.source("function", lambda: iter([1]))
    topology.source("class", Numbers)  # type: ignore[arg-type]
    kinds = [type(operator.logic) for operator in topology.build().operators]
    assert kinds == [FromIterable, FromIterable, FromFunction, Numbers]


def test_bolts_can_be_given_in_many_forms() -> None:
    topology = Topology("forms")
    stream = topology.source("s", [1])
    stream.process("class", Nothing)
    stream.process("instance", Map(str))
    stream.process("function", lambda value, out: out.emit(value))
    stream.sink("print", print)
    assert [type(o.logic).__name__ for o in topology.build().operators] == [
        "FromIterable",
        "Nothing",
        "Map",
        "Function",
        "Callback",
    ]


def test_a_branch_and_side_outputs_are_named_in_their_edges() -> None:
    topology = Topology("sides")
    yes, no = topology.source("s", [1]).branch("even", lambda n: n % 2 == 0)
    yes.sink("yes")
    no.sink("no")
    yes.dead_letters.sink("broken")
    names = [edge.name for edge in topology.build().edges]
    assert names == ["s -> even", "even -> yes", "even[otherwise] -> no", "even[dead_letters] -> broken"]


def test_a_graph_survives_pickling_and_cannot_be_changed() -> None:
    settings = {"interval_s": 0.5}
    topology = Topology("pickled", policy="es", backup=settings)
    topology.source("s", [1], config={"a": 1}).map("m", lambda n: n + 1).sink("out")
    graph = cloudpickle.loads(cloudpickle.dumps(topology.build()))
    assert [operator.name for operator in graph.operators] == ["s", "m", "out"]
    assert graph.by_name["s"].config["a"] == 1
    with pytest.raises(AttributeError):
        graph.operators[0].name = "other"
    with pytest.raises(TypeError):
        graph.by_name["s"].config["a"] = 2
    settings["interval_s"] = 9.0
    topology.config["policy"] = "ra"
    for built in (graph, topology.build()):
        with pytest.raises(TypeError):
            built.config["policy"] = "sl"  # type: ignore[index]
        with pytest.raises(TypeError):
            built.config["backup"]["interval_s"] = 2.0
    assert graph.config == {"policy": "es", "backup": {"interval_s": 0.5}}
    assert load(topology=graph.config).config.backup.interval_s == 0.5
    operator = Operator("x", "bolt", None, on_error="skip", tick_s=1.0)
    assert pickle.loads(pickle.dumps(operator)) == operator


def test_building_a_graph_imports_no_runtime() -> None:
    code = (
        "import sys; from rstream import Topology\n"
        "t = Topology('t'); t.source('s', [1]).key_by('k').count('c').sink('o'); t.build()\n"
        "found = {'ray', 'pyspark', 'grpc', 'rstream.runtime', 'rstream.core'} & set(sys.modules)\n"
        "sys.exit(', '.join(found) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# What is wrong is said with the step and the remedy.


def graph_of(*edges: tuple[str, str], sources: str = "s") -> Graph:
    names = dict.fromkeys(name for edge in edges for name in edge)
    operators = tuple(
        Operator(name, "source" if name in sources else "bolt", FromIterable([]) if name in sources else Nothing())
        for name in names
    )
    return Graph("g", operators, tuple(Edge(a, b, Shuffle()) for a, b in edges))


def test_a_cycle_is_drawn() -> None:
    with pytest.raises(TopologyError, match=r"form a cycle: .*; a topology must run one way, break it") as caught:
        graph_of(("s", "a"), ("a", "b"), ("b", "c"), ("c", "a"))
    circle = str(caught.value).partition("cycle: ")[2].partition(";")[0].split(" -> ")
    assert circle[0] == circle[-1]
    assert set(circle) == {"a", "b", "c"}
    assert set(itertools.pairwise(circle)) == {("a", "b"), ("b", "c"), ("c", "a")}


def test_a_step_that_reads_itself_is_a_cycle() -> None:
    with pytest.raises(TopologyError, match="form a cycle: a -> a;"):
        graph_of(("s", "a"), ("a", "a"))


def test_steps_behind_a_cycle_are_not_blamed() -> None:
    with pytest.raises(TopologyError, match=r"form a cycle: (a -> b -> a|b -> a -> b);"):
        graph_of(("b", "z"), ("s", "a"), ("a", "b"), ("b", "a"))


def fluent(write: Any) -> Any:
    topology = Topology("wrong")
    write(topology, topology.source("s", [("a", 1)], fields=("word", "n"), outputs=("late",)))
    return topology.build()


class Both:
    """Holds a lock, as a connection or client does."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, value: Any) -> Any:
        return value


def step(name: str, **options: Any) -> Any:
    return lambda t, s: s.map(name, str, **options)


WRONG: dict[str, tuple[Any, str]] = {
    "unknown input": (
        lambda t, s: t.bolt("count", Nothing).shuffle("splitt"),
        "step 'count': unknown input 'splitt'; the steps are: count, s$",
    ),
    "unknown input of a fields grouping": (
        lambda t, s: t.bolt("count", Nothing).fields("splitt", "word"),
        "step 'count': unknown input 'splitt'; the steps are: count, s$",
    ),
    "duplicate name": (lambda t, s: (s.map("x", str), s.map("x", str)), "step 'x': the name is used twice; give each"),
    "duplicate label": (lambda t, s: (s.map("x", str), s.key_by("x")), "step 'x': the name is used twice"),
    "duplicate merge": (lambda t, s: s.map("x", str).merge("x", s), "step 'x': the name is used twice"),
    "no name": (step(""), "step '': a name is needed"),
    "slash in name": (step("a/b"), "step 'a/b': a name is needed, without '/' and '#'"),
    "name forgotten": (lambda t, s: s.map(str, "upper"), "name comes first and is a str, got <class 'str'>"),
    "parallelism 0": (step("x", parallelism=0), "step 'x': parallelism must be at least 1 and at most 10000, got 0"),
    "parallelism too large": (step("x", parallelism=10_001), "step 'x': parallelism must be .* got 10001"),
    "parallelism bool": (step("x", parallelism=True), "step 'x': parallelism must be a whole number, got True"),
    "parallelism float": (step("x", parallelism=1.5), "step 'x': parallelism must be a whole number, got 1.5"),
    "unknown option": (step("x", paralelism=2), "step 'x': unknown option 'paralelism'; the options are: blocking, .*"),
    "tick 0": (step("x", tick_s=0), "step 'x': tick_s must be a number above 0, got 0"),
    "tick str": (step("x", tick_s="1"), "step 'x': tick_s must be a number above 0, got '1'"),
    "tick on a source": (lambda t, s: t.source("x", [1], tick_s=1), "step 'x': tick_s is for bolts and sinks; remove"),
    "blocking source": (lambda t, s: t.source("x", [1], blocking=True), "step 'x': blocking is for bolts and sinks"),
    "max_pending 0": (lambda t, s: t.source("x", [1], max_pending=0), "step 'x': max_pending must be at least 1"),
    "max_pending str": (lambda t, s: t.source("x", [1], max_pending="9"), "step 'x': max_pending must be at least 1"),
    "max_pending bool": (lambda t, s: t.source("x", [1], max_pending=True), "step 'x': max_pending must be at least 1"),
    "max_pending on a bolt": (step("x", max_pending=9), "step 'x': max_pending is for sources; remove it"),
    "on_error": (step("x", on_error="ignore"), "step 'x': on_error must be one of fail, skip, dead_letter; got 'ign"),
    "blocking str": (step("x", blocking="yes"), "step 'x': blocking must be True or False, got 'yes'"),
    "reserved output": (
        step("x", outputs=["default"]),
        "step 'x': the output 'default' is there already; give the side output another name",
    ),
    "reserved output of dead letters": (step("x", outputs=["dead_letters"]), "the output 'dead_letters' is there alre"),
    "output named twice": (step("x", outputs=["a", "a"]), r"step 'x': an output is named twice in \('a', 'a'\)"),
    "count without keys": (
        lambda t, s: s.count("c"),
        r"step 'c': count works key by key and this stream has no keys; write \.key_by\('a name', key\)\.count\('c', ",
    ),
    "reduce without keys": (lambda t, s: s.reduce("r", max), "step 'r': reduce works key by key and this stream has n"),
    "distinct without keys": (lambda t, s: s.merge("m", s).distinct("d"), "step 'd': distinct works key by key"),
    "fields as a str": (step("x", fields="word"), "step 'x': fields must be a list of names, got 'word'"),
    "undeclared field": (
        lambda t, s: s.key_by("k", "wird").count("c"),
        "step 'k': 's' has no field 'wird'; its fields: word, n$",
    ),
    "no fields declared": (
        lambda t, s: s.map("m", str).key_by("k", "word").count("c"),
        r"step 'k': 'm' has no field 'word'; its fields: none; declare them with fields=\(\.\.\.\)",
    ),
    "undeclared field in Storm's words": (
        lambda t, s: t.bolt("c", Nothing).fields("s", "wird"),
        "step 'c': 's' has no field 'wird'; its fields: word, n$",
    ),
    "undeclared output": (lambda t, s: s.output("lost").sink("o"), "step 'o': 's' has no output 'lost'; its .*: late$"),
    "no output declared": (
        lambda t, s: s.map("m", str).output("lost").sink("o"),
        "step 'o': 'm' has no output 'lost'; its side outputs: none declared",
    ),
    "after a sink": (lambda t, s: s.sink("o").map("m", str), "step 'm': 'o' is a sink and emits nothing"),
    "bolt without input": (lambda t, s: t.bolt("x", Nothing), "step 'x': has no input; connect it to another step"),
    "source with input": (
        lambda t, s: t._connect("s", t.source("x", [1]).origins[0].step, Shuffle(), "default"),
        "step 'x': a source has no inputs, got 's'",
    ),
    "keyed and unkeyed": (
        lambda t, s: t.bolt("c", Count).fields("s", "word").shuffle("s", output="late"),
        "step 'c': keyed and unkeyed inputs are mixed, .*; key all of its inputs",
    ),
    "direct from a source": (
        lambda t, s: s.grouped(Direct()).map("m", str),
        "step 'm': only a bolt or spout can use the direct grouping, 's' is neither",
    ),
    "merge of one": (lambda t, s: t.merge("m", s), "step 'm': merge needs two streams or more, got 1"),
    "no bolt": (lambda t, s: s.process("x", 5), r"step 'x': wanted a Bolt or a function \(value, out\), got int"),
    "wrong class": (lambda t, s: s.process("x", dict), "step 'x': dict is not a Bolt; subclass rstream.Bolt"),
    "no sink": (lambda t, s: s.sink("x", 5), "step 'x': wanted a sink or a function of one value, got int"),
    "no source": (
        lambda t, s: t.source("x", 5),
        "step 'x': wanted a Source, a Spout, an iterable or a function, got i",
    ),
    "path as a source": (lambda t, s: t.source("x", "a.txt"), r"step 'x': a str is no source; .* sources.Files\('a.tx"),
    "unpicklable function": (
        lambda t, s: s.map("x", Both()),
        r"step 'x': cannot be sent to a worker \(TypeError: .*lock.*\); make connections, locks and files in open\(\)",
    ),
    "unpicklable key": (lambda t, s: s.key_by("k", Both()).count("c"), "step 'c': cannot be sent to a worker"),
    "unpicklable config": (step("x", config={"lock": threading.Lock()}), "step 'x': cannot be sent to a worker"),
}


@pytest.mark.parametrize("write", WRONG)
def test_a_wrong_topology_is_told_the_step_and_the_remedy(write: str) -> None:
    with pytest.raises(TopologyError, match=WRONG[write][1]) as caught:
        fluent(WRONG[write][0])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "a/b", " a", None, 3])
def test_a_topology_needs_a_name(name: Any) -> None:
    with pytest.raises(TopologyError, match="a topology needs a name"):
        Topology(name)


def test_an_empty_topology_is_told_what_to_add() -> None:
    with pytest.raises(TopologyError, match=r"has no steps: add a source with topology\.source"):
        Topology("empty").build()


def test_two_keyed_inputs_may_have_different_keys() -> None:
    graph = fluent(lambda t, s: t.bolt("join", Count).fields("s", "word").group("s", Key(first), output="late"))
    assert list(graph.key_groupings("join").values()) == [Key(FieldKey((0,))), Key(first)]
    assert graph.key_groupings("s") == {}


def test_groupings_are_values() -> None:
    assert All() == All()
    assert Key(first) == Key(first)
    assert field_key(["n", "word"], ["word", "n"])(("a", 1)) == (1, "a")
