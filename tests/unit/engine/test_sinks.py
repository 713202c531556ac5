"""Sinks: what they write, and that they let go of it."""

from __future__ import annotations

from typing import Any

import pytest

from rstream import Topology
from rstream.clock import ManualClock
from rstream.errors import OperatorError
from rstream.operators import sinks
from rstream.runtime.embedded import Embedded


def run(sink: Any, values: list[Any], workers: int = 1, **options: Any) -> Embedded:
    topology = Topology("sink")
    topology.source("values", values).sink("out", sink, **options)
    host = Embedded(topology.build(), workers=workers, clock=ManualClock())
    host.run()
    return host


def test_without_a_sink_values_are_collected() -> None:
    assert run(None, [1, 2, 3]).results() == [1, 2, 3]
    assert run(sinks.Collect, [1, 2, 3]).results("out") == [1, 2, 3]
    assert sorted(run(None, [1, 2, 3], workers=2, parallelism=3).results("out")) == [1, 2, 3]
    assert run(None, [1]).results("values") == []


def test_collecting_without_end_is_stopped_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "COLLECT_MAX", 10)
    with pytest.raises(OperatorError, match=r"step 'out', task 0: a collect sink holds at most 10 values; .*Latest"):
        run(None, list(range(11)))


def test_latest_keeps_the_newest_pair_of_each_key() -> None:
    assert run(sinks.Latest, [("a", 1), ("b", 1), ("a", 2)]).results() == [("a", 2), ("b", 1)]


def test_discard_keeps_nothing() -> None:
    assert run(sinks.Discard, [1, 2]).results() == []


def test_stdout_prints_a_line_for_each_value(capsys: pytest.CaptureFixture[str]) -> None:
    run(sinks.Stdout, ["a", ("b", 1), None])
    assert capsys.readouterr().out == "a\n('b', 1)\nNone\n"


def test_a_function_is_called_with_each_value() -> None:
    seen: list[int] = []
    run(lambda value: seen.append(value), [1, 2, 3])
    assert seen == [1, 2, 3]
