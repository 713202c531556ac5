"""The conformance kit for transactional sinks: what a store must do for its sink to be exact across crashes.

`check_sink(make, read)` builds sinks with `make()`, all of them writing to the same place, and reads what is visible
there with `read()`. It raises an AssertionError that says which promise is broken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rstream.api import SinkFenced, TransactionalSink
from rstream.core.channel import TaskId
from rstream.core.context import Collector, TaskContext

Make = Callable[[], TransactionalSink]


def check_sink(
    make: Make, read: Callable[[], Sequence[Any]], rows: Sequence[Any] = (("a", 1), ("b", 2), ("c", 3))
) -> None:
    """Claim, commit, be replaced, and start anew, as recovery does; `rows` are three values that the sink takes."""
    before = len(read())

    def visible() -> int:
        return len(read()) - before

    first, first_value, second_value, third_value = _open(make, "run1"), rows[0], rows[1], rows[2]
    assert first.claim(0) is None, "before the first commit of a run there is no progress"
    first.commit(_records(first, [first_value]), b"one", 0)
    assert visible() == 1, "what was committed is visible"

    second = _open(make, "run1")
    assert second.claim(1) == b"one", "a claim gives the progress of the last commit"
    _refused(first, _records(first, [second_value]), 0)
    assert visible() == 1, "a refused commit writes nothing"
    second.commit(_records(second, [second_value]), b"two", 1)
    assert visible() == 2, "the claimant goes on"
    second.commit([], b"three", 1)
    assert visible() == 2, "progress without records adds none"

    third = _open(make, "run1")
    assert third.claim(1) == b"three", "the same token may claim again, as a task that is opened twice does"
    late = _open(make, "run1")
    try:
        late.claim(0)
    except SinkFenced:
        pass
    else:
        raise AssertionError("a smaller token cannot claim what a larger one has")

    again = _open(make, "run2")
    assert again.claim(0) is None, "a new run begins without progress"
    _refused(third, _records(third, [third_value]), 1)
    again.commit(_records(again, [third_value]), b"new", 0)
    assert visible() == 3, "a new run adds to what is there"
    for sink in (first, second, third, late, again):
        sink.close()


def _open(make: Make, run: str) -> TransactionalSink:
    sink = make()
    ctx: Any = TaskContext("checked", TaskId("out", 0), 1, {}, None, 0, run=run)
    sink.open(ctx)
    return sink


def _records(sink: TransactionalSink, values: list[Any]) -> list[Any]:
    out = Collector()
    sink.process_batch(values, out)
    return out.buffer


def _refused(sink: TransactionalSink, records: list[Any], token: int) -> None:
    try:
        sink.commit(records, b"late", token)
    except SinkFenced:
        return
    raise AssertionError("a commit is refused once another has claimed the place")
