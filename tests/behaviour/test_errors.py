"""What an exception in a user's function means, and where it is said."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rstream import Topology
from rstream.errors import OperatorError, RunError
from tests.behaviour import parts
from tests.behaviour.conftest import RunTopology


@pytest.mark.parametrize("workers", [1, 3])
def test_a_failing_function_fails_the_topology_with_step_task_and_traceback(
    run_topology: RunTopology, workers: int
) -> None:
    topology = Topology("fails")
    topology.source("numbers", [1, 2, 0]).process("inverse", parts.Inverse, outputs=["tried"]).sink("out")
    with pytest.raises(OperatorError, match=r"step 'inverse', task 0.*: ZeroDivisionError: division by zero") as caught:
        run_topology(topology, workers)
    assert caught.value.step == "inverse"
    assert 'out.emit(("inverse", 100 / value))' in caught.value.traceback


@pytest.mark.parametrize("where", ["open", "process", "on_end", "close"])
def test_a_failure_anywhere_in_a_bolts_life_names_the_step(run_topology: RunTopology, where: str) -> None:
    topology = Topology("fails")
    topology.source("s", [1]).process("bad", parts.Fail(where)).sink("out")
    with pytest.raises(RunError, match=f"step 'bad', task 0.*RuntimeError: no luck in {where}"):
        run_topology(topology, 2)


@pytest.mark.parametrize("workers", [1, 3])
def test_with_skip_a_failing_tuple_leaves_nothing_of_itself(run_topology: RunTopology, workers: int) -> None:
    topology = Topology("skips")
    stream = topology.source("numbers", [1, 0, 2, 0, 4]).process(
        "inverse", parts.Inverse, on_error="skip", outputs=["tried"]
    )
    stream.sink("out")
    stream.output("tried").sink("tried")
    came = run_topology(topology, workers)
    assert [value for kind, value in came["out"] if kind == "inverse"] == [100, 50, 25]
    assert [value for kind, value in came["out"] if kind == "trying"] == [1, 2, 4]
    assert came["tried"] == [1, 2, 4]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("bolt", [parts.Inverse, parts.BatchInverse], ids=["process", "process_batch"])
def test_dead_letters_get_the_tuples_that_failed(run_topology: RunTopology, workers: int, bolt: type) -> None:
    topology = Topology("letters")
    stream = topology.source("numbers", [1, 0, "two", 4]).process(
        "inverse", bolt, on_error="dead_letter", outputs=["tried"]
    )
    stream.sink("out")
    stream.dead_letters.map("name", repr).sink("dead")
    came = run_topology(topology, workers)
    assert came["dead"] == ["0", "'two'"]
    assert len(came["out"]) == (4 if bolt is parts.Inverse else 2)


def test_dead_letters_that_nobody_reads_are_dropped(run_topology: RunTopology) -> None:
    topology = Topology("letters")
    topology.source("numbers", [1, 0, 4]).process("inverse", parts.BatchInverse, on_error="dead_letter").sink("out")
    assert run_topology(topology)["out"] == [100.0, 25.0]


def test_the_configured_way_holds_for_all_steps_that_do_not_say_another(run_topology: RunTopology) -> None:
    def topology(on_error: str | None) -> Topology:
        made = Topology("config")
        options = {} if on_error is None else {"on_error": on_error}
        made.source("numbers", [1, 0, 4]).process("inverse", parts.BatchInverse, **options).sink("out")
        return made

    assert run_topology(topology(None), on_error="skip")["out"] == [100.0, 25.0]
    with pytest.raises(OperatorError):
        run_topology(topology("fail"), on_error="skip")


@pytest.mark.parametrize("workers", [1, 3])
def test_an_error_on_a_blocking_steps_thread_reaches_the_user(run_topology: RunTopology, workers: int) -> None:
    topology = Topology("thread")
    topology.source("numbers", [1, 0]).process("inverse", parts.BatchInverse, blocking=True).sink("out")
    with pytest.raises(OperatorError, match=r"step 'inverse', task 0.*ZeroDivisionError"):
        run_topology(topology, workers)


@pytest.mark.parametrize("blocking", [False, True])
def test_a_function_that_calls_exit_is_an_error_like_any_other(run_topology: RunTopology, blocking: bool) -> None:
    topology = Topology("exits")
    topology.source("numbers", [1]).map("leave", leave, blocking=blocking).sink("out")
    with pytest.raises(OperatorError, match=r"step 'leave', task 0.*SystemExit: 3"):
        run_topology(topology)


def leave(value: int) -> None:
    raise SystemExit(3)


def two_then_trouble() -> Iterator[int]:
    yield 1
    yield 2
    raise OSError("the cable is out")


def test_a_source_that_raises_names_its_step(run_topology: RunTopology) -> None:
    topology = Topology("source")
    topology.source("wire", two_then_trouble).sink("out")
    with pytest.raises(OperatorError, match=r"step 'wire', task 0.*OSError: the cable is out"):
        run_topology(topology)


def test_an_output_that_was_not_declared_is_named_with_the_remedy(run_topology: RunTopology) -> None:
    topology = Topology("undeclared")
    topology.source("names", ["known", "unknown"]).process("emit", parts.EmitTo, outputs=["known"]).sink("out")
    with pytest.raises(OperatorError, match=r"step 'emit', task 0.*output 'unknown', which is not declared; .*: known"):
        run_topology(topology)


def test_a_key_that_has_no_slot_names_the_step_that_emitted_it(run_topology: RunTopology) -> None:
    topology = Topology("unhashable")
    topology.source("lists", [["a"]]).key_by("list").count("count", parallelism=2).sink("out")
    with pytest.raises(
        RunError, match=r"step 'lists', task 0.*a key of type builtins\.list has no stable hash: key by str"
    ):
        run_topology(topology)
