"""The coordinator's hands for moves of tasks: asks the workers as the machine says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rstream.core.coordinator import CoordinatorMachine
from rstream.core.instructions import Instruction, Park


class Mover:
    """Carries out the instructions of `rstream.core.moving`."""

    def __init__(
        self,
        machine: CoordinatorMachine,
        handles: dict[str, Any],
        when: Callable[[Any, Callable[[Any], None], Callable[[BaseException], None]], None],
        execute: Callable[[list[Instruction]], None],
        failed: Callable[[str, str, BaseException], None],
    ) -> None:
        self._machine, self._handles = machine, handles
        self._when, self._execute, self._failed = when, execute, failed

    def park(self, order: Park) -> None:
        """Let a worker stop tasks; when it has, the machine goes on."""
        topology, worker = order.topology, order.worker

        def answered(stopped_s: float | None) -> None:
            if stopped_s is not None:  # else other tables came in between, and the order was taken back with them
                self._execute(self._machine.parked(topology, worker, order.order, stopped_s))

        self._when(
            self._handles[worker].park.remote(order.order, order.version, dict(order.targets)),
            answered,
            lambda error: self._failed(topology, worker, error),
        )
