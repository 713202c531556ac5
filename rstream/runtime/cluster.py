"""Ray itself: starting a private one, connecting to a cluster, its nodes. The settings that matter are set here.

Ray's defaults take up to a minute to see a lost node; the health-check settings below take seconds. The mode of
authentication is always explicit, because Ray's own default differs between `ray.init` and `ray start`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import ray
from ray._private import worker

from rstream import environment
from rstream.errors import ClusterError

CONNECT_TIMEOUT_S = 5.0
NAMESPACE = "rstream"
HEALTH_CHECKS = {
    "RAY_health_check_initial_delay_ms": "2000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
}
HEAD_RESOURCE = "node:__internal_head__"
SLOT_RESOURCE = "rstream_slot"
PLACED: dict[str, Any] = {"num_cpus": 0, "memory": 1}
"""What an actor of ours asks Ray for: one that asks for nothing is put on any node, whichever it is meant for."""
HASH_SEED = {"PYTHONHASHSEED": "0"}
"""The same in every worker's process: what user code does with sets must come out the same after a recovery."""


@dataclass(frozen=True, slots=True)
class Node:
    """A live Ray node."""

    id: str
    ip: str
    cpus: float
    slots: int


def settings() -> None:
    """Environment settings that every Ray process of ours must start with; what the user set wins."""
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray gives its workers a niceness of 15: a tuple would wait behind everything else that the machine does.
    os.environ.setdefault("RAY_worker_niceness", "0")
    for name, value in HEALTH_CHECKS.items():
        os.environ.setdefault(name, value)


def start_private(cpus: int | None = None) -> None:
    """A Ray of our own on this machine; it ends with `stop`."""
    settings()
    quiet()
    try:
        with environment.variables(HASH_SEED):
            ray.init(
                address="local",
                num_cpus=cpus,
                namespace=NAMESPACE,
                include_dashboard=False,
                logging_level=logging.ERROR,
                log_to_driver=False,
            )
    except Exception as error:  # Ray has no class of its own for a node that does not come up in time
        raise not_started(error) from error


def worker_environment() -> dict[str, Any]:
    """The runtime environment that a worker needs; none where all of this Ray's processes have the variables already.

    To start a process in an environment of its own, Ray first has to start its agent, and starts the process anew.
    """
    inherited = all(os.environ.get(name) == value for name, value in HASH_SEED.items())
    return {} if inherited and len(nodes()) == 1 else {"env_vars": HASH_SEED}


def not_started(error: BaseException) -> ClusterError:
    """Ray could not be started here: in one line, and what to do."""
    return ClusterError(
        f"Ray could not be started on this machine ({first_line(error)}); see what is missing: rstream doctor"
    )


def connect(address: str | None = None) -> None:
    """Connect to a running cluster: `address`, or RAY_ADDRESS, or the one on this machine."""
    if ray.is_initialized():
        return
    settings()
    quiet()
    wanted = address or os.environ.get("RAY_ADDRESS") or "auto"
    if not _answers(wanted):
        raise ClusterError(
            f"no Ray cluster answers at {wanted}; check the address, or start one with: ray start --head"
        )
    try:
        ray.init(address=wanted, namespace=NAMESPACE, logging_level=logging.ERROR, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        if wanted == "auto":
            line = "no Ray cluster runs on this machine; start one with: ray start --head, or name one with --address"
        else:
            line = f"no Ray cluster can be reached at {wanted} ({first_line(error)}); start one with: ray start --head"
        raise ClusterError(line) from error


def first_line(error: BaseException) -> str:
    """What Ray says first; the rest of its messages is for its developers."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _answers(address: str) -> bool:
    """Whether a gRPC server, as Ray's head is one, listens at ip:port; other forms of address are Ray's to judge.

    Asked first, because `ray.init` takes more than a minute to give up and then ends the whole process.
    """
    host, colon, port = address.rpartition(":")
    if not (host and colon and port.isdigit()) or "/" in address or os.environ.get("RAY_USE_TLS", "0") == "1":
        return True
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT_S).close()
        with grpc.insecure_channel(address) as channel:
            grpc.channel_ready_future(channel).result(timeout=CONNECT_TIMEOUT_S)
    except (OSError, OverflowError, grpc.FutureTimeoutError):
        return False
    return True


def stop() -> None:
    """Leave Ray; ends a private one."""
    ray.shutdown()


@contextlib.contextmanager
def private(cpus: int | None = None) -> Iterator[None]:
    """A private Ray for as long as the block lasts."""
    start_private(cpus)
    try:
        yield
    finally:
        stop()


def draining() -> set[str]:
    """The nodes whose end was announced: by `ray drain-node`, by the autoscaler, or by a preemption notice."""
    from ray._private.state import state

    return {str(node) for node in state.get_draining_nodes()}


def nodes() -> list[Node]:
    """The live nodes, in a stable order."""
    found = []
    for node in ray.nodes():
        if node["Alive"]:
            resources = node["Resources"]
            cpus = float(resources.get("CPU", 0.0))
            slots = int(resources.get(SLOT_RESOURCE, max(4, 4 * cpus)))
            found.append(Node(node["NodeID"], node["NodeManagerAddress"], cpus, slots))
    return sorted(found, key=lambda node: node.id)


def is_up(node: str) -> bool:
    """Whether Ray has a node; no where it cannot say."""
    try:
        return any(each.id == node for each in nodes())
    except ray.exceptions.RayError:
        return False


def nodes_for_work(doubtful: Container[str] = ()) -> list[str]:
    """Where workers may go."""
    return for_work(nodes(), draining(), doubtful)


def for_work(found: Sequence[Node], leaving: Container[str], doubtful: Container[str]) -> list[str]:
    """Those of some nodes where workers may go: not to nodes that are about to end, and to doubtful ones last of all.

    A head without CPUs is there to keep work off it.

    >>> one, other = Node("n1", "ip", 2.0, 4), Node("n2", "ip", 2.0, 4)
    >>> for_work([one, other, Node("head", "ip", 0.0, 4)], {"n1"}, ()), for_work([one, other], {"n1"}, {"n2"})
    (['n2'], ['n1'])
    """
    usable = [node.id for node in found if node.cpus > 0] or [node.id for node in found]
    sure = [node for node in usable if node not in doubtful]
    return [node for node in sure if node not in leaving] or sure or usable


def head() -> str:
    """The node that holds what Ray knows of the cluster."""
    return next(str(node["NodeID"]) for node in ray.nodes() if HEAD_RESOURCE in node["Resources"])


def quiet() -> None:
    """Keep what Ray says for its developers off the terminal: `rstream errors` and `logs` have what users need."""
    for name in ("ray", "ray._private.worker"):
        logging.getLogger(name).setLevel(logging.ERROR)
    # With every process that dies Ray prints a page to the driver, whatever `log_to_driver` says.
    worker.print_to_stdstream = lambda *_, **__: None
