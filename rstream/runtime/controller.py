"""The controller's thread in the coordinator: asks each topology's policy in its time, has plans carried out, journals.

Everything that needs thought is in `rstream.core.steering` and `rstream.core.executor`. Policies run outside the
coordinator's lock, so that a plan that takes seconds holds up no worker; what they decide is dropped when the topology
has changed meanwhile.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rstream.clock import Clock, sleep
from rstream.config import ControlConfig
from rstream.core.channel import TaskId
from rstream.core.coordinator import CoordinatorMachine
from rstream.core.decisions import EVACUATION, fail, said
from rstream.core.evacuation import threatened
from rstream.core.executor import Executor, given_up, under_way
from rstream.core.feasible import way_of
from rstream.core.first_places import first_places
from rstream.core.instructions import Instruction
from rstream.core.nodes import NodeRequests
from rstream.core.pool import balances, missing_replicas
from rstream.core.records import OVER, TopologyRecord
from rstream.core.status import ReportBook
from rstream.core.steering import ControlMachine, Group
from rstream.core.steps import restart_steps, steps_of
from rstream.core.view import NodeFacts, Picture
from rstream.errors import PolicyError
from rstream.runtime.autoscaler import ask_for_nodes
from rstream.runtime.journal import Store
from rstream.runtime.monitor import node_facts
from rstream.runtime.savepoints import SavepointFolder
from rstream.schedulers.base import Plan, Slot
from rstream.schedulers.guards import Veto

TICK_S = 0.2
STEP_TICK_S = 0.01
"""How often it looks whether a step of a plan is done."""
NODES_EVERY_S = 1.0
_LOG = logging.getLogger(__name__)


class Controller:
    """The MAPE loop of a cluster."""

    def __init__(
        self,
        machine: CoordinatorMachine,
        books: Mapping[str, ReportBook],
        lock: threading.RLock,
        store: Store,
        clock: Clock,
        execute: Callable[[list[Instruction]], None],
        list_nodes: Callable[[], list[NodeFacts]] = node_facts,
        ask_for_nodes: Callable[[int, float], None] = ask_for_nodes,
    ) -> None:
        self._machine, self._books, self._lock = machine, books, lock
        self._store, self._clock, self._execute = store, clock, execute
        self._list_nodes, self._ask = list_nodes, ask_for_nodes
        self.control = ControlMachine(load_veto)
        self.executor = Executor(machine, self.control.book)
        self._nodes: list[NodeFacts] = []
        self._nodes_s = -NODES_EVERY_S
        self._recall()

    def run(self) -> None:
        """Look after all topologies, for ever."""
        while True:
            sleep(STEP_TICK_S if self.executor.running else TICK_S)
            try:
                self.turn()
            except Exception:
                _LOG.exception("the controller could not finish a turn")

    def turn(self) -> None:
        """Ask every policy whose time has come. What goes wrong with one of them is no matter of the others."""
        now_s = self._clock.now()
        refreshed = self._refresh_nodes()
        with self._lock:
            self._keep_decisions(self.control.regroup(self._machine.topologies.values(), now_s))
            if refreshed:
                self._leave_ending_nodes(now_s)
            self._carry_out(now_s)
            due = [group for group in self.control.due(now_s) if not self.executor.running.keys() & {*group.topologies}]
        if refreshed:
            self._ask_for_nodes()
        for group in due:
            try:
                self._steer(group)
            except Exception as error:
                _LOG.exception("policy %s could not look after %s", group.policy.name, ", ".join(group.topologies))
                self._note_failure(group, error)

    def _note_failure(self, group: Group, error: BaseException) -> None:
        now_s = self._clock.now()
        group.next_s = now_s + group.interval_s
        with self._lock:
            records = [self._machine.topologies[name] for name in group.topologies if name in self._machine.topologies]
            self._keep_decisions(self.control.failed(records, error, now_s))

    def _steer(self, group: Group) -> None:
        records = self._machine.topologies
        nodes = self._shown(group.control)
        with self._lock:
            meters = {name: book.meter for name, book in self._books.items()}
            picture = self.control.look(group, records, meters, nodes)
            versions = {name: records[name].version for name in group.topologies if name in records}
        now_s = self._clock.now()
        if picture is None:
            return
        plan = self.control.decide(group, picture, now_s)
        with self._lock:
            plan = self.control.within_reach(group, picture, plan, records)
            entries = self.control.note(group, records, picture, plan, now_s)
            changed = [name for name, version in versions.items() if records[name].version != version]
            for name, entry in entries.items():
                try:
                    if entry["state"] == "planned":
                        self._begin(group, name, entry, picture, plan, changed)
                    elif name not in changed:
                        self._balance(picture, name)
                except Exception as error:
                    _LOG.exception("a plan for %s could not be begun", name)
                    fail(entry, error)
                    self.control.undo(group, name)
            self._keep_memory(group)
            self._keep_decisions(entries)
            self._carry_out(now_s)

    def _balance(self, picture: Picture, name: str) -> None:
        """Tell the senders of load-balanced steps how much their receivers are used, where nothing else changes."""
        for operator, use, step in balances(picture.view, picture.view.topology(name)):
            self._execute(self._machine.balance(name, operator, use, step))

    # Doing what was decided.

    def _begin(
        self, group: Group, name: str, entry: dict[str, Any], picture: Picture, plan: Plan, changed: Sequence[str]
    ) -> None:
        if name in changed:
            entry["state"] = "the topology changed meanwhile"
            self.control.undo(group, name)
            return
        record = self._machine.topologies[name]
        execute = way_of(record, plan.topologies.get(name))
        if execute == "live":
            steps = steps_of(picture.view, picture.numbering, plan, name, self.control.present(record))
        else:
            uri, drop = self.restart_uri(record), execute == "restart-drop"
            steps = restart_steps(picture.view, picture.numbering, plan, name, uri, drop)
        if steps:
            self.control.begun(plan)
            self._keep_nodes()
            self.executor.begin(name, entry, steps, self._clock.now())
        else:
            entry["state"] = "nothing to do"

    def _leave_ending_nodes(self, now_s: float) -> None:
        """Move tasks away from nodes whose end was announced; what policies have begun there has no time any more."""
        if not any(node.draining for node in self._nodes):
            return
        for name, record in self._machine.topologies.items():
            if record.state not in OVER:
                try:
                    self._leave(record, now_s)
                except Exception as error:
                    _LOG.exception("%s could not be moved away from nodes that are about to end", name)
                    self._keep_decisions(self.control.failed([record], error, now_s))

    def _leave(self, record: TopologyRecord, now_s: float) -> None:
        name, nodes, running = record.name, self._shown(record.control), self.executor.running.get(record.name)
        if running is not None:
            if running.entry["policy"] != EVACUATION and threatened(record, nodes):
                self._give_up(name, "a node is about to end")
            return
        decided = self.control.evacuate(record, self._machine.topologies.values(), nodes, now_s)
        if decided is not None:
            entry, steps = decided
            if steps:
                self.executor.begin(name, entry, steps, now_s)
            self._keep_decisions([name])

    def _ask_for_nodes(self) -> None:
        """Ask the autoscaler for the nodes that plans need, and let those go that were asked for and emptied."""
        before, more = replace(self.control.requests), self.executor.nodes_more
        with self._lock:
            wanted = self.control.nodes_to_ask(self._machine.topologies.values(), more)
        if wanted is not None:
            try:
                self._ask(wanted, min((node.cpus for node in self._nodes), default=1.0))
            except Exception:
                _LOG.exception("the autoscaler could not be asked for nodes")
                self.control.requests = before  # it will be asked again
                return
        self.executor.nodes_more = 0
        if self.control.requests != before:
            self._keep_nodes()

    def restart_uri(self, record: TopologyRecord) -> str:
        """A new folder for the state of a topology while it is restarted."""
        folder = record.control.restart_uri or os.path.join(tempfile.gettempdir(), "rstream-restarts")
        uri = f"{folder.rstrip('/')}/{record.name}-{record.run}-{record.savepoints}"
        SavepointFolder(uri).prepare()
        return uri

    def _carry_out(self, now_s: float) -> None:
        """Take the plans under way as far as they go now."""
        for name, execution in list(self.executor.running.items()):
            try:
                instructions, noted = self.executor.turn(name, now_s)
                if noted:
                    self._keep_decisions([name])
                if given_up(execution.entry) and execution.entry["policy"] != EVACUATION:
                    self._undo(name)
                self._execute(instructions)
            except Exception as error:
                _LOG.exception("the plan for %s could not be carried out", name)
                self._give_up(name, said(error))

    def changed_by_hand(self, name: str) -> None:
        """Somebody asked for another change of the topology: what its policy has begun is left where it is."""
        self._give_up(name, "the topology was changed by hand")

    def _give_up(self, name: str, why: str) -> None:
        running = self.executor.running.get(name)
        if running is not None and running.entry["policy"] != EVACUATION:
            self._undo(name)
        self._execute(self.executor.give_up(name, why, self._clock.now()))
        if name in self.control.logs:
            self._keep_decisions([name])

    def _undo(self, name: str) -> None:
        """The plan that a policy remembers was not carried out, or not to its end."""
        group = self.control.group_of(name)
        if group is not None:
            self.control.undo(group, name)
            self._keep_memory(group)

    def fill_pool(self, name: str) -> list[Instruction]:
        """Load the replicas that the topology's policy wants to have at hand and that are not there yet."""
        record = self._machine.topologies[name]
        self._refresh_nodes()
        pools = missing_replicas(record, self._slots_for(name, self._shown(record.control)))
        return self._machine.load(name, pools) if pools else []

    def _slots_for(self, name: str, nodes: Sequence[NodeFacts]) -> int:
        """How many slots a topology has or could have."""
        self.control.book.sync(self._machine.topologies.values())
        shown = self.control.book.numbering([name], {node.id: node.slots for node in nodes})
        return sum(shown.processes(node.id) for node in nodes)

    def _shown(self, control: ControlConfig) -> list[NodeFacts]:
        slots = control.slots_per_node
        return [replace(node, slots=slots or node.slots) for node in self._nodes]

    def _refresh_nodes(self) -> bool:
        """Ask now and then which nodes there are; whether it was asked now."""
        if self._clock.monotonic() - self._nodes_s < NODES_EVERY_S:
            return False
        self._nodes_s = self._clock.monotonic()
        try:
            self._nodes = self._list_nodes()
        except Exception:
            _LOG.exception("the nodes of the cluster could not be listed: those of before count")
            return False
        return True

    def first_places(self, record: TopologyRecord, nodes: Sequence[str]) -> Mapping[TaskId, Slot] | None:
        """Where the policy of a new topology wants its tasks; None where it does not say."""
        self._nodes_s = -NODES_EVERY_S
        self._refresh_nodes()
        facts = [node for node in self._shown(record.control) if node.id in nodes]
        running = [each for each in self._machine.topologies.values() if each.state not in OVER]
        self.control.logs.pop(record.name, None)
        self._forget(record.name)
        pools = missing_replicas(record, self._slots_for(record.name, facts))
        record.pool.update({name: size - record.parallelism[name] for name, size in pools.items()})
        return first_places(record, running, facts, self.control.book)

    def slots(self, record: TopologyRecord) -> dict[str, int]:
        """The slot of each worker, by its number on its node."""
        self.control.book.sync(self._machine.topologies.values())
        return {worker: slot.process for worker in record.workers if (slot := self.control.book.slot(worker))}

    # The record.

    def decisions(self, name: str) -> list[dict[str, Any]]:
        """What was decided for a topology, oldest first."""
        log = self.control.logs.get(name)
        return [dict(entry) for entry in log.entries] if log is not None else []

    def _keep_memory(self, group: Group) -> None:
        memory = json.dumps({"key": group.key, "memory": group.memory, "before": group.before}).encode()
        self._store.put(f"control/memory/{group.topologies[0] if group.topologies else ''}", memory)

    def _keep_nodes(self) -> None:
        nodes = {"requests": self.control.requests.to_data(), "added": self.control.added}
        self._store.put("control/nodes", json.dumps(nodes).encode())

    def _keep_decisions(self, names: Iterable[str]) -> None:
        for name in names:
            kept = list(self.control.logs[name].entries)[-KEPT_DECISIONS:]
            self._store.put(f"control/decisions/{name}", json.dumps(kept).encode())

    def _recall(self) -> None:
        for name in self._store.names("control/memory/"):
            content = self._store.get(name)
            if content is not None:
                kept = json.loads(content)
                self.control.memories[kept["key"]] = kept["memory"], kept.get("before", {})
        nodes = self._store.get("control/nodes")
        if nodes is not None:
            kept = json.loads(nodes)
            self.control.requests, self.control.added = NodeRequests(**kept["requests"]), kept["added"]
        for name, record in self._machine.topologies.items():
            content = self._store.get(f"control/decisions/{name}")
            if content is not None:
                log = self.control.log(record)
                log.entries.extend(json.loads(content))
                log.made = max((entry["number"] for entry in log.entries), default=0)
                if log.entries and under_way(log.entries[-1]):
                    self.executor.resume(name, log.entries[-1], self._clock.now())

    def _forget(self, name: str) -> None:
        for key in (f"control/memory/{name}", f"control/decisions/{name}"):
            self._store.delete(key)


KEPT_DECISIONS = 100
"""So many of a topology's newest decisions survive a restart of the coordinator."""


def load_veto(where: str) -> Veto:
    """The function that `control.veto` names."""
    module, _, name = where.partition(":")
    try:
        found: Veto = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise PolicyError(f"control.veto: {where!r} must name a function as module:name ({error})") from None
    return found
