"""Spark's failures as one line with the cause; the Java stack traces stay in the log file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rstream.errors import RunError

# "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task 0.0 in stage
# 1.0 (TID 2) (host executor driver): java.io.IOException: disk full": only the end of it helps.
_TASK_FAILURE = re.compile(r"executor [\w-]+\): (.+)", re.DOTALL)
_LONGEST = 300


@contextmanager
def spark_failures(log_path: str) -> Iterator[None]:
    """Turn whatever Spark or its Java raises inside the block into a `RunError` of one line."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        raise RunError(f"Spark failed: {cause_of(error)}; the full log: {log_path}") from error


def cause_of(error: BaseException) -> str:
    """The deepest cause that Spark gives, on one line."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    try:
        text = _deepest(java) if java is not None else str(error)
    except Exception:  # the JVM itself is gone: what Python knows has to do
        text = str(error)
    if isinstance(error, ConnectionError) or not text.strip():
        text = f"its Java process ended ({type(error).__name__})"
    return one_line(text)


def one_line(text: str) -> str:
    """The first telling line of a Java message, without task numbers and stack.

    >>> one_line("Job aborted: Lost task 0.0 (TID 2) (h executor driver): java.io.IOException: disk full\\n\\tat x")
    'java.io.IOException: disk full'
    >>> one_line("org.apache.spark.SparkException: Could not parse Master URL: 'x'")
    "Could not parse Master URL: 'x'"
    """
    match = _TASK_FAILURE.search(text)
    text = match.group(1) if match else text
    # A Python function's failure comes as its whole traceback, whose last line is the cause.
    if "Traceback (most recent call last)" in text:
        lines = [line for line in text.splitlines() if re.match(r"^[\w.]+(Error|Exception)\b", line)]
        text = lines[-1] if lines else text
    line = next((line.strip() for line in text.splitlines() if line.strip()), text)
    line = re.sub(r'^Exception in thread "[^"]*" ', "", line)
    line = re.sub(r"^org\.apache\.spark\.[\w.]*Exception: ", "", line)
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."


def _deepest(java: Any) -> str:
    for _ in range(50):  # a chain of causes that loops must not hang us
        below = java.getCause()
        if below is None:
            break
        java = below
    return str(java.toString())
