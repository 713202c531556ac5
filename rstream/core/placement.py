"""First placement of a topology's tasks, before any policy has measured anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rstream.api import Source, Spout
from rstream.core.channel import TaskId
from rstream.core.deployment import Deployment
from rstream.errors import DataError, RStreamError
from rstream.graph import Graph


def aligned(graph: Graph, parallelism: Mapping[str, int], workers: Sequence[str]) -> dict[TaskId, str]:
    """Instance i of every operator on worker i mod n, so that steps of equal parallelism meet on one worker."""
    return {
        TaskId(operator.name, index): workers[index % len(workers)]
        for operator in graph.operators
        for index in range(parallelism[operator.name])
    }


def deploy(graph: Graph, workers: Sequence[str]) -> Deployment:
    """A first deployment over these workers; asks each source for its splits."""
    parallelism = {operator.name: operator.parallelism for operator in graph.operators}
    splits = {}
    for operator in graph.operators:
        if isinstance(operator.logic, Source):
            splits[operator.name] = _splits(operator.name, operator.logic, operator.parallelism)
        elif isinstance(operator.logic, Spout):
            splits[operator.name] = [str(index) for index in range(operator.parallelism)]
    return Deployment(graph, parallelism, aligned(graph, parallelism, workers), splits)


def _splits(step: str, source: Source, parallelism: int) -> list[str]:
    try:
        return list(source.splits(parallelism))
    except RStreamError:
        raise
    except Exception as error:
        raise DataError(f"step {step!r}: splits() of its source raised {type(error).__name__}: {error}") from error
