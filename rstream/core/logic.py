"""From a bolt to the function that a step calls with its values.

Which of a bolt's methods runs, whether a key is set before each tuple, and what an exception means are decided once,
when the task is made, so that the loop over tuples has nothing to ask.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rstream.api import DEAD_LETTERS, Bolt
from rstream.core.context import Collector, TaskContext
from rstream.graph import OnError

Run = Callable[[list[Any]], None]
Complain = Callable[[BaseException, Any], None]


def make_run(bolt: Bolt, out: Collector, ctx: TaskContext, keyed: bool, on_error: OnError, complain: Complain) -> Run:
    """The function that processes a step's values; it leaves what they emit in `out`."""
    batched = type(bolt).process_batch is not Bolt.process_batch
    if on_error != "fail":
        one = _one_by_process_batch(bolt, out) if batched else _one_by_process(bolt, out)
        return _guarded(one, out, ctx, keyed, on_error, complain)
    if batched:
        process_batch = bolt.process_batch
        return lambda values: process_batch(values, out)
    if keyed:
        return _keyed(bolt, out, ctx)
    return _unkeyed(bolt, out)


def _unkeyed(bolt: Bolt, out: Collector) -> Run:
    process = bolt.process

    def run(values: list[Any]) -> None:
        for value in values:
            process(value, out)

    return run


def _keyed(bolt: Bolt, out: Collector, ctx: TaskContext) -> Run:
    process, state, key_of = bolt.process, ctx.state, ctx.key_of

    def run_by_value(values: list[Any]) -> None:
        for value in values:
            state.current = value
            process(value, out)

    def run_by_key(values: list[Any]) -> None:
        assert key_of is not None, "chosen for a key function"
        for value in values:
            state.current = key_of(value)
            process(value, out)

    return run_by_value if key_of is None else run_by_key


def _one_by_process(bolt: Bolt, out: Collector) -> Callable[[Any], None]:
    process = bolt.process
    return lambda value: process(value, out)


def _one_by_process_batch(bolt: Bolt, out: Collector) -> Callable[[Any], None]:
    process_batch = bolt.process_batch
    return lambda value: process_batch([value], out)


def _guarded(
    one: Callable[[Any], None], out: Collector, ctx: TaskContext, keyed: bool, on_error: OnError, complain: Complain
) -> Run:
    """One tuple at a time: a tuple that fails leaves nothing of itself in the output."""

    def run(values: list[Any]) -> None:
        for value in values:
            mark = out.mark()
            try:
                if keyed:
                    ctx.state.current = value if ctx.key_of is None else ctx.key_of(value)
                one(value)
            except Exception as error:
                out.rollback(mark)
                complain(error, value)
                if on_error == "dead_letter":
                    out.emit_to(DEAD_LETTERS, value)

    return run
