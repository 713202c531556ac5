"""Looks, after a crash of tasks that crash again and again, at the note that their worker left on its node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cloudpickle
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rstream.clock import SystemClock
from rstream.core.coordinator import CoordinatorMachine
from rstream.core.instructions import Instruction
from rstream.core.poison import CALM_S, Evidence, poisoned
from rstream.runtime.notes import take_note


class PoisonWatch:
    """Gathers evidence for the coordinator machine (`rstream.core.poison`)."""

    def __init__(
        self,
        machine: CoordinatorMachine,
        when: Callable[[Any, Callable[[Any], None], Callable[[BaseException], None]], None],
        execute: Callable[[list[Instruction]], None],
        note: Callable[[str, str, Any], None],
    ) -> None:
        self._machine, self._when, self._execute, self._note = machine, when, execute, note
        self._clock = SystemClock()
        self._crashed_s: dict[str, float] = {}

    def crashed(self, topology: str, worker: str) -> None:
        """A worker is gone: ask its node what it was at, if its tasks were run carefully."""
        record = self._machine.topologies.get(topology)
        found = None if record is None else record.workers.get(worker)
        if record is None or found is None:
            return
        self._crashed_s[topology] = self._clock.monotonic()
        node = found.address.node
        if not any(record.losses.get(task, 0) > 1 for task, host in record.placement.items() if host == worker):
            return
        reader = ray.remote(num_cpus=0, max_retries=0)(take_note)
        pinned = NodeAffinitySchedulingStrategy(node, soft=False)
        self._when(
            reader.options(scheduling_strategy=pinned).remote(worker),
            lambda evidence: self._found(topology, worker, node, evidence),
            lambda _: None,  # the node is gone too: then it was no tuple
        )

    def _found(self, topology: str, worker: str, node: str, evidence: Evidence | None) -> None:
        if evidence is None:
            return
        too_often, instructions = self._machine.found_at(topology, evidence)
        self._execute(instructions)
        if too_often:
            error = poisoned(self._machine.topologies[topology].evidence, node)
            self._note(topology, worker, error)
            self._execute(self._machine.give_up(topology, cloudpickle.dumps(error)))

    def look(self, topology: str) -> None:
        """Some time has passed: forget crashes that were long ago."""
        at_s = self._crashed_s.get(topology)
        if at_s is not None and self._clock.monotonic() - at_s > CALM_S:
            del self._crashed_s[topology]
            self._machine.calm(topology)
