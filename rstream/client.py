"""What a Python program does with topologies: `run` here and now, `submit` to a cluster, `connect` to a running one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, overload

import cloudpickle

from rstream import values as codec
from rstream.clock import SystemClock, fresh_id, sleep
from rstream.config import Config, ControlConfig, Settings, load
from rstream.core.channel import TaskId
from rstream.core.records import OVER
from rstream.core.stalls import Stall
from rstream.errors import ClusterError, ConfigError, RStreamError, RunError, TopologyFailed, UsageError
from rstream.graph import Graph
from rstream.topology import Topology

if TYPE_CHECKING:
    from rstream.runtime.ingest_client import IngestTarget
    from rstream.runtime.logs import LogLine

POLL_S = 0.05
SAVEPOINT_TIMEOUT_S = 600.0
START_S = 60.0


@dataclass(frozen=True, slots=True)
class Report:
    """How a run ended: the last status, and what the collecting sinks hold."""

    status: Mapping[str, Any]
    results: Mapping[str, list[Any]]
    errors: list[dict[str, Any]] = field(default_factory=list)
    decisions: list[dict[str, Any]] = field(default_factory=list)
    """What the scheduling policy decided, oldest first."""
    interrupted: bool = False
    """Ctrl-C ended it; what was on its way has been processed."""

    @property
    def state(self) -> str:
        """FINISHED, KILLED or FAILED."""
        return str(self.status["state"])

    def as_json(self) -> dict[str, Any]:
        """What `rstream run --json` prints."""
        counts = {
            operator["name"]: {key: operator[key] for key in ("received", "processed", "emitted", "failed")}
            for operator in self.status["operators"]
        }
        return {
            **{key: self.status[key] for key in ("name", "state", "policy", "emitted", "acked", "failed", "restarts")},
            "counts": counts,
            "decisions": self.decisions,
            "latency": {"p50_ms": self.status["p50_ms"], "p99_ms": self.status["p99_ms"]},
            "edges": self.status["edges"],
            "workers": self.status["workers"],
            "errors": self.errors,
        }


def run(
    topology: Topology | Graph,
    *,
    local: bool = False,
    address: str | None = None,
    duration_s: float | None = None,
    settings: Settings | None = None,
    folder: str | None = None,
    start_from: str = "",
    on_status: Callable[[dict[str, Any]], None] | None = None,
    on_log: Callable[[LogLine], None] | None = None,
    on_start: Callable[[], None] | None = None,
    **flags: Any,
) -> Report:
    """Run a topology to its end and report; on a Ray of its own unless `address` names one, without Ray if `local`.

    Ctrl-C drains it first. What its workers log and print goes to `on_log`, by default to this terminal. `on_start` is
    called once the topology is accepted. `start_from` names a savepoint to go on from.

    >>> from rstream import Topology
    >>> topology = Topology("double")
    >>> _ = topology.source("n", [1, 2]).map("double", lambda n: 2 * n).sink("out")
    >>> run(topology, local=True).results["out"]
    [2, 4]
    """
    graph = _graph(topology)
    settings = settings or load(topology=graph.config, flags=flags)
    if local:
        return _run_embedded(graph, settings, duration_s, on_status, on_start, start_from)
    from rstream.runtime import cluster
    from rstream.runtime.follow import Follower, terminable, uninterrupted
    from rstream.runtime.logs import show

    with _cluster(address or os.environ.get("RAY_ADDRESS"), cluster), terminable():
        follower = None
        try:
            with uninterrupted():
                handle = _submit(graph, settings, folder, start_from)
                follower = Follower(handle, on_status, on_log or show)
            if on_start is not None:
                on_start()
            follower.follow(duration_s)
        finally:
            if follower is not None:
                with suppress(RStreamError), uninterrupted():
                    follower.end()
        handle.wait()
        return handle.report(follower.interrupted)


def submit(
    topology: Topology | Graph,
    *,
    address: str | None = None,
    settings: Settings | None = None,
    folder: str | None = None,
    start_from: str = "",
    **flags: Any,
) -> Handle:
    """Start a topology on a running cluster and return at once; it outlives this program.

    `start_from` names a savepoint to go on from.
    """
    from rstream.runtime import cluster

    graph = _graph(topology)
    settings = settings or load(topology=graph.config, flags=flags)
    cluster.connect(address)
    return _submit(graph, settings, folder, start_from)


def connect(name: str, address: str | None = None) -> Handle:
    """The handle of a topology that was submitted before."""
    handle = Handle(name, coordinator(address))
    handle.status()
    return handle


def coordinator(address: str | None = None) -> Any:
    """The cluster's coordinator; an error where the cluster has none yet."""
    from rstream.runtime import cluster
    from rstream.runtime.coordinator_actor import find_coordinator

    cluster.connect(address)
    try:
        return find_coordinator()
    except ValueError:
        raise ClusterError("no topology was ever submitted to this cluster; use: rstream submit TARGET") from None


class Handle:
    """A topology on a cluster."""

    def __init__(self, name: str, coordinator: Any) -> None:
        self.name = name
        self._coordinator = coordinator

    def status(self) -> dict[str, Any]:
        """All that is known of it now; the object of `rstream status --json`."""
        answer: dict[str, Any] = call(self._coordinator.status, self.name)
        return answer

    def state(self) -> str:
        """ACTIVE, INACTIVE, REBALANCING, KILLED, FINISHED or FAILED."""
        return str(call(self._coordinator.state, self.name)[0])

    def ended(self) -> bool:
        """Whether no worker that was told to stop is still busy with it."""
        return bool(call(self._coordinator.ended, self.name))

    def wait(self, timeout_s: float | None = None) -> str:
        """Wait for its end; gives FINISHED or KILLED, raises what made it fail."""
        clock = SystemClock()
        end_s = None if timeout_s is None else clock.monotonic() + timeout_s
        while True:
            state, error = call(self._coordinator.state, self.name)
            if state in OVER:
                if state == "FAILED":
                    raise _failure(self.name, error)
                return str(state)
            if end_s is not None and clock.monotonic() >= end_s:
                raise TimeoutError(f"topology {self.name!r} is still {state} after {timeout_s:g} s")
            sleep(POLL_S)

    @overload
    def results(self) -> dict[str, list[Any]]: ...

    @overload
    def results(self, step: str) -> list[Any]: ...

    def results(self, step: str | None = None) -> dict[str, list[Any]] | list[Any]:
        """What the collecting sinks hold, by step; or of one step."""
        found: dict[str, list[Any]] = {}
        for name, content in call(self._coordinator.results, self.name):
            found.setdefault(name, []).extend(codec.decode_one(content))
        return found if step is None else found.get(step, [])

    def logs(self, since: int = 0) -> tuple[int, list[LogLine]]:
        """(the number to ask for next, the lines from `since` on): what its workers logged and printed."""
        answer: tuple[int, list[LogLine]] = call(self._coordinator.logs, self.name, since)
        return answer

    def errors(self) -> list[dict[str, Any]]:
        """What went wrong in user code, newest last."""
        answer: list[dict[str, Any]] = call(self._coordinator.errors, self.name)
        return answer

    def explain(self) -> list[dict[str, Any]]:
        """What its policies decided, oldest first: what they saw, forecast and did."""
        answer: list[dict[str, Any]] = call(self._coordinator.explain, self.name)
        return answer

    def history(self) -> list[dict[str, Any]]:
        """What the monitor measured, a line for each second, oldest first."""
        answer: list[dict[str, Any]] = call(self._coordinator.history, self.name)
        return answer

    def stalls(self) -> list[Stall]:
        """When its sinks heard nothing of a sender for a while."""
        answer: list[Stall] = call(self._coordinator.stalls, self.name)
        return answer

    def recording(self) -> dict[str, Any]:
        """Its load by the second and what its steps cost: what `rstream lab compare --recorded` replays."""
        answer: dict[str, Any] = call(self._coordinator.recording, self.name)
        return answer

    def ingest_target(self, step: str = "") -> IngestTarget:
        """Where and with what token to send records to its ingest source; `step` where it has several.

        Waits for a topology that is being started: whoever has just submitted it need not.
        """
        from rstream.runtime.ingest_client import IngestTarget

        clock = SystemClock()
        end_s = clock.monotonic() + START_S
        while (found := call(self._coordinator.ingest, self.name))["starting"] and clock.monotonic() < end_s:
            sleep(POLL_S)
        return IngestTarget(tuple(found["workers"]), found["token"], step, found["tls"])

    def set_policy(self, policy: str, control: ControlConfig | None = None) -> None:
        """Let another policy steer it from now on; `control` are its settings, by default the defaults."""
        control = control or ControlConfig()
        check_policy(policy, control)
        call(self._coordinator.set_policy, self.name, policy, control)

    def move(self, targets: Mapping[str, str]) -> None:
        """Let tasks go on in other workers while the stream runs: `{"count#1": id of a worker in status}`."""
        wanted = {}
        for task, worker in targets.items():
            operator, _, number = task.rpartition("#")
            if not number.isdecimal():
                raise UsageError(f"a task is named step#number as in status, got {task!r}")
            wanted[TaskId(operator, int(number))] = worker
        call(self._coordinator.move, self.name, wanted)

    def activate(self) -> None:
        """Read the sources again."""
        call(self._coordinator.pause, self.name, False)

    def deactivate(self) -> None:
        """Stop reading the sources; everything on its way is processed."""
        call(self._coordinator.pause, self.name, True)

    def rebalance(self, parallelism: Mapping[str, int] | None = None, workers: int | None = None) -> None:
        """Change the parallelism of steps while it runs; another number of workers starts it from the beginning."""
        call(self._coordinator.rebalance, self.name, dict(parallelism or {}), workers)

    def savepoint(self, uri: str, *, stop: bool = False, timeout_s: float = SAVEPOINT_TIMEOUT_S) -> dict[str, Any]:
        """Write all state to a place that any later run can start from, and wait for it; with `stop`, end it there.

        Sources are not read until everything on its way is processed and cut, `still_s` seconds in the answer. What
        is written to a path has to be on storage that every node sees.
        """
        from rstream.runtime.savepoints import full_uri

        number = call(self._coordinator.savepoint, self.name, full_uri(uri), stop)
        clock = SystemClock()
        end_s = clock.monotonic() + timeout_s
        while (result := call(self._coordinator.savepoint_result, self.name, number)) is None:
            if clock.monotonic() >= end_s:
                why = f"it was not there after {timeout_s:g} s"
                call(self._coordinator.cancel_savepoint, self.name, number, why)
            sleep(POLL_S)
        if result["error"]:
            raise RunError(f"topology {self.name!r} was not saved: {result['error']}")
        return dict(result)

    def restart(self, parallelism: Mapping[str, int]) -> None:
        """The same change as Storm makes it: stop everything, and start from a savepoint in between.

        It is there to be compared with; `rebalance` changes the parallelism without a stop.
        """
        call(self._coordinator.restart, self.name, dict(parallelism))

    def kill(self, drain: bool = False) -> None:
        """End it; with `drain`, after what is on its way has been processed."""
        call(self._coordinator.kill, self.name, drain)

    def report(self, interrupted: bool = False) -> Report:
        """How it ended."""
        return Report(self.status(), self.results(), self.errors(), self.explain(), interrupted)


def check_policy(policy: str, control: ControlConfig) -> None:
    """Raise one clear line where a policy's name or settings are wrong.

    The defaults are right: the policies, and numpy with them, are not loaded to say so.
    """
    if (policy, control) != (Config().policy, ControlConfig()):
        from rstream.core.steering import check

        check(policy, control)


def call(method: Any, *arguments: Any) -> Any:
    """Call the coordinator; wait while Ray brings it back, and raise its errors as what they are."""
    import ray

    from rstream.runtime.cluster import first_line

    clock = SystemClock()
    end_s = clock.monotonic() + 30.0
    while True:
        try:
            return ray.get(method.remote(*arguments))
        except ray.exceptions.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, RStreamError):
                raise cause from None
            raise RunError(f"the coordinator failed: {type(cause).__name__}: {cause}") from error
        except ray.exceptions.RayActorError:
            if clock.monotonic() >= end_s:
                raise ClusterError("the cluster's coordinator does not answer; check the cluster: ray status") from None
            sleep(0.1)
        except ray.exceptions.RayError as error:
            raise ClusterError(f"the cluster does not answer ({first_line(error)}); check it: ray status") from None


def _submit(graph: Graph, settings: Settings, folder: str | None, start_from: str) -> Handle:
    from rstream.core.placement import deploy
    from rstream.core.records import FallBack, TopologyRecord
    from rstream.core.savepoint import splits_of
    from rstream.runtime import cluster
    from rstream.runtime.checkpoint_store import CheckpointStore
    from rstream.runtime.code import pack_folder
    from rstream.runtime.coordinator_actor import get_coordinator
    from rstream.runtime.journal import open_store
    from rstream.runtime.savepoints import full_uri, open_savepoint

    config = settings.config
    check_policy(config.policy, config.control)
    tasks = sum(operator.parallelism for operator in graph.operators)
    widest = max(operator.parallelism for operator in graph.operators)
    cpus = int(sum(node.cpus for node in cluster.nodes())) or 1
    workers = min(config.workers or max(1, min(cpus, widest)), tasks)
    checkpointed = config.state.backend == "checkpoint" and config.delivery == "exactly_once"
    if checkpointed:
        if config.state.store is None:
            raise ConfigError("state.backend checkpoint needs state.store, the URI of a folder that all workers reach")
        CheckpointStore(config.state.store)
    first = deploy(graph, [str(number) for number in range(workers)])
    start_from = full_uri(start_from) if start_from else ""
    savepoint = open_savepoint(start_from, graph)
    splits = first.splits if savepoint is None else splits_of(savepoint.manifest, graph, first.splits)
    store = open_store(config.coordinator.store)
    actor = get_coordinator(config.coordinator.store)
    code = ""
    folder = _main_folder() if folder is None else folder
    if folder:
        code, archive = pack_folder(folder)
        if store.get(f"code/{code}") is None:
            store.put(f"code/{code}", archive)
    active = {line["name"] for line in call(actor.overview) if line["state"] not in OVER}
    if graph.name not in active:
        store.put(f"graph/{graph.name}", cloudpickle.dumps(graph))
    record = TopologyRecord(
        name=graph.name,
        outline=graph.outline(),
        splits=splits,
        start_from=start_from,
        fall_back=FallBack(start_from, dict(first.parallelism)) if start_from else None,
        parallelism=dict(first.parallelism),
        policy=config.policy,
        worker_count=workers,
        spare_count=config.spares,
        pool={operator.name: config.pools.get(operator.name, config.pool) for operator in graph.operators},
        token=fresh_id() + fresh_id(),
        code=code,
        config=cloudpickle.dumps(config),
        recovers=config.delivery != "at_most_once",
        exact=config.delivery == "exactly_once",
        checkpointed=checkpointed,
        crashes_max=config.crashes_max,
        poison_max=config.poison_max,
        control=config.control,
        settings=tuple(settings.rows()),
    )
    call(actor.submit, record, config.errors_max)
    return Handle(graph.name, actor)


def _main_folder() -> str:
    """The folder of the running script, which its workers need for what it imports; none in a notebook or shell."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return os.path.dirname(os.path.abspath(file)) if file else ""


@contextmanager
def _cluster(address: str | None, cluster: Any) -> Iterator[None]:
    import ray

    if ray.is_initialized():
        yield
    elif address:
        cluster.connect(address)
        yield
    else:
        with cluster.private():
            yield


def _run_embedded(
    graph: Graph,
    settings: Settings,
    duration_s: float | None,
    on_status: Callable[[dict[str, Any]], None] | None,
    on_start: Callable[[], None] | None,
    start_from: str,
) -> Report:
    from rstream.runtime.embedded import Embedded
    from rstream.runtime.savepoints import full_uri

    tasks = sum(operator.parallelism for operator in graph.operators)
    workers = min(settings.config.workers or 1, tasks)
    host = Embedded(graph, settings.config, workers, start_from=full_uri(start_from) if start_from else "")
    if on_start is not None:
        on_start()
    clock = SystemClock()
    shown_s = clock.monotonic()
    rows = [{"key": key, "value": value, "origin": origin} for key, value, origin in settings.rows()]

    def show() -> bool:
        nonlocal shown_s
        if on_status is not None and clock.monotonic() - shown_s > 0.25:
            shown_s = clock.monotonic()
            on_status(host.status())
        return False

    host.run(until=show, duration_s=duration_s)
    status = {**host.status(), "settings": rows}
    if on_status is not None:
        on_status(status)
    results = {operator.name: host.results(operator.name) for operator in graph.operators if operator.kind == "sink"}
    return Report(status, results, host.errors(), [], host.interrupted)


def _graph(topology: Topology | Graph) -> Graph:
    if isinstance(topology, Topology):
        return topology.build()
    if isinstance(topology, Graph):
        return topology
    raise UsageError(f"wanted a Topology, got {type(topology).__name__}")


def _failure(name: str, error: bytes) -> RStreamError:
    cause = cloudpickle.loads(error) if error else None
    return cause if isinstance(cause, RStreamError) else TopologyFailed(f"topology {name!r} failed")
