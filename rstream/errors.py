"""Every error that rstream raises on purpose, in one tree.

The split is by whose turn it is to act, which is also the exit status of the command line:

    RStreamError
    ├── UsageError (exit 2): the request is wrong; nothing was started
    │   ├── TopologyError      the graph cannot run as written
    │   ├── TargetError        the file or module to run is missing or broken
    │   ├── ConfigError        a key or value in a config layer
    │   ├── ClusterError       no cluster, or a cluster that cannot take the request
    │   ├── UnknownTopology    no topology of that name is running
    │   ├── PolicyError        an unknown policy, or parameters that it refuses
    │   ├── DataError          a data set, file or table that cannot be used as asked
    │   └── SavepointError     a savepoint that is damaged, foreign, or cannot be made as asked
    └── RunError (exit 1): it was started and failed
        ├── OperatorError      the user's function raised; carries step, task, node and traceback
        ├── ValueNotSupported  a value that cannot travel between tasks
        ├── TopologyFailed     the topology stopped; carries the first cause
        ├── SinkFenced         another process has taken over what this one was to write
        ├── StateLost          too few good fragments are left to rebuild a task's state
        └── ProtocolError      a contradiction in delivery: the run stops rather than go on wrong

A message says where, what was wanted, what came, and what to do. All of them survive pickling, so that they
reach the driver from any Ray worker as the class they were raised as.
"""

from __future__ import annotations

from typing import Any


class RStreamError(Exception):
    """The root; catch it to catch everything that rstream raises on purpose."""

    exit_status = 1


class UsageError(RStreamError):
    """The request is wrong and nothing was started."""

    exit_status = 2


class TopologyError(UsageError):
    """The graph cannot run as written."""


class TargetError(UsageError):
    """The file or module to run is missing, broken, or has no `build()`."""


class ConfigError(UsageError):
    """A config key or value is wrong."""


class ClusterError(UsageError):
    """There is no cluster, or it cannot take the request."""


class UnknownTopology(UsageError):
    """No topology of that name is known to the cluster."""


class PolicyError(UsageError):
    """A policy name or its parameters are wrong."""


class DataError(UsageError):
    """A data set, file or table cannot be used as asked."""


class SavepointError(UsageError):
    """A savepoint is damaged, of another topology or format, or cannot be made as asked."""


class RunError(RStreamError):
    """Something that was started has failed."""


class OperatorError(RunError):
    """A user's function raised on some worker.

    >>> error = OperatorError("ZeroDivisionError: division by zero", step="parse", task=1, node="n1", traceback="...")
    >>> str(error)
    "step 'parse', task 1, node n1: ZeroDivisionError: division by zero"
    """

    def __init__(self, cause: str, *, step: str, task: int, node: str, traceback: str, value: str = "") -> None:
        on_node = f", node {node}" if node else ""
        super().__init__(f"step {step!r}, task {task}{on_node}: {cause}")
        self.cause, self.step, self.task, self.node = cause, step, task, node
        self.traceback, self.value = traceback, value

    def on(self, node: str) -> OperatorError:
        """The same error, with the node where it happened."""
        return _operator_error(self.cause, self.step, self.task, node, self.traceback, self.value)

    def __reduce__(self) -> tuple[Any, ...]:
        return _operator_error, (self.cause, self.step, self.task, self.node, self.traceback, self.value)


def _operator_error(cause: str, step: str, task: int, node: str, traceback: str, value: str) -> OperatorError:
    return OperatorError(cause, step=step, task=task, node=node, traceback=traceback, value=value)


class ValueNotSupported(RunError):
    """A value cannot travel between tasks."""


class TopologyFailed(RunError):
    """A topology stopped because of a failure."""


class SinkFenced(RunError):
    """A sink's commit came too late: another process has claimed its place in the store."""


class StateLost(RunError):
    """Too few good fragments of a task's state are left to rebuild it."""


class ProtocolError(RunError):
    """Delivery contradicts itself: going on could give wrong results."""
