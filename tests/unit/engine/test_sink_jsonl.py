"""JSON lines: whole committed records only, whatever moment a process ends at."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from rstream.api import TransactionalSink
from rstream.core.channel import TaskId
from rstream.core.context import TaskContext
from rstream.errors import OperatorError, TopologyError
from rstream.operators.sinks import JsonLines
from rstream.testing import check_sink
from tests.unit.engine.test_sinks import run


def lines(folder: pathlib.Path) -> list[Any]:
    """What a reader of the folder sees, by task and commit."""
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


def opened(folder: pathlib.Path, run: str = "r") -> JsonLines:
    sink = JsonLines(folder)
    ctx: Any = TaskContext("t", TaskId("out", 0), 1, {}, None, 0, run=run)
    sink.open(ctx)
    return sink


def test_every_value_is_a_line_of_json(tmp_path: pathlib.Path) -> None:
    run(JsonLines(tmp_path), ["straße", ("b", 1), {"k": None}])
    assert lines(tmp_path) == ["straße", ["b", 1], {"k": None}]
    assert "straße" in next(tmp_path.glob("*.jsonl")).read_text(encoding="utf-8")


def test_a_second_run_adds_to_the_folder(tmp_path: pathlib.Path) -> None:
    for _ in range(2):
        run(JsonLines(tmp_path), [1, 2])
    assert lines(tmp_path) == [1, 2, 1, 2]


def test_several_tasks_write_files_of_their_own(tmp_path: pathlib.Path) -> None:
    run(JsonLines(tmp_path, commit_records=4), list(range(30)), workers=2, parallelism=3)
    assert {path.name.rsplit("-", 1)[0] for path in tmp_path.glob("*.jsonl")} == {"out-0", "out-2"}
    assert sorted(lines(tmp_path)) == list(range(30))


def test_it_keeps_the_promises_of_a_transactional_sink(tmp_path: pathlib.Path) -> None:
    check_sink(lambda: JsonLines(tmp_path), lambda: lines(tmp_path))


class Killed(BaseException):
    """Stands for SIGKILL: nothing of the process runs any more."""


def killed_at(patch: pytest.MonkeyPatch, function: str, call: int) -> None:
    """The call-th call of an os function does not happen, nor anything after it."""
    real: Callable[..., Any] = getattr(os, function)
    calls = [0]

    def once(*arguments: Any) -> Any:
        calls[0] += 1
        if calls[0] == call:
            raise Killed
        return real(*arguments)

    patch.setattr(f"rstream.operators.file_sinks.os.{function}", once)


@pytest.mark.parametrize(
    ("function", "call", "committed"),
    [("fsync", 1, False), ("fsync", 2, False), ("rename", 1, False), ("rename", 2, True)],
)
def test_a_process_that_ends_in_a_commit_leaves_all_of_it_or_nothing(
    function: str, call: int, committed: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = opened(tmp_path)
    first.claim(0)
    first.commit(["1"], b"one", 0)
    with monkeypatch.context() as patch:
        killed_at(patch, function, call)
        with pytest.raises(Killed):
            first.commit(["2"], b"two", 0)
    assert lines(tmp_path) == [1], "nothing is shown before its commit is complete"
    second = opened(tmp_path)
    assert second.claim(1) == (b"two" if committed else b"one")
    assert lines(tmp_path) == ([1, 2] if committed else [1])
    second.commit(["3"], b"three", 1)
    assert lines(tmp_path) == ([1, 2, 3] if committed else [1, 3])
    assert [path.name for path in (tmp_path / ".rstream").glob("*.data")] == []


def test_a_path_that_is_a_file_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("mine\n")
    with pytest.raises(OperatorError, match="is a file; this sink writes a folder of files, so name a folder"):
        run(JsonLines(path), [1])
    assert path.read_text() == "mine\n"


def test_nonsense_intervals_are_refused() -> None:
    with pytest.raises(TopologyError, match=r"commit_records at least 1, got 1\.0 and 0"):
        JsonLines("x", commit_records=0)


def test_a_sink_of_ones_own_must_say_how_to_commit() -> None:
    with pytest.raises(TypeError, match="does not override claim"):
        TransactionalSink().claim(0)
