"""The coordinator's hands for savepoints: asks the workers as the machine says, and writes the manifest."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from rstream.clock import SystemClock
from rstream.core.coordinator import CoordinatorMachine
from rstream.core.instructions import Close, Cut, Hold, Instruction, Resume, Save
from rstream.core.savepoint import SavedTask, manifest_of
from rstream.errors import SavepointError
from rstream.runtime.savepoints import SavepointFolder, made_by


class Saver:
    """Carries out the instructions of `rstream.core.savepoints`."""

    def __init__(
        self,
        machine: CoordinatorMachine,
        handles: dict[str, Any],
        when: Callable[[Any, Callable[[Any], None], Callable[[BaseException], None]], None],
        execute: Callable[[list[Instruction]], None],
        answer: Callable[[Callable[[Any], None], Any], None],
        failed: Callable[[str, str, BaseException], None],
    ) -> None:
        self._machine, self._handles = machine, handles
        self._when, self._execute, self._answer, self._failed = when, execute, answer, failed
        self._clock = SystemClock()
        self._held_s: dict[str, float] = {}
        self.still_s: dict[str, float] = {}
        """How long the sources of each topology were not read, for its newest savepoint."""

    def begin(self, lock: threading.RLock, name: str, uri: str, stop: bool) -> int:
        """Begin a savepoint; gives its number, to ask for it with."""
        with lock:
            self._machine.find(name)
        SavepointFolder(uri).prepare()  # without the lock: storage may be slow
        with lock:
            number, instructions = self._machine.savepoint(name, uri, stop)
            self._execute(instructions)
            return number

    def result(self, name: str, number: int) -> dict[str, Any] | None:
        """How a savepoint ended; None while it is under way."""
        result = self._machine.find(name).result
        if result is None or result.number < number:
            return None
        return {**asdict(result), "still_s": self.still_s.get(name, 0.0)}

    def do(self, instruction: Hold | Cut | Save | Resume | Close) -> None:
        """Tell a worker, and pass its answer on to the machine."""
        machine = self._machine
        match instruction:
            case Hold(topology, worker, attempt, probe):
                self._held_s.setdefault(topology, self._clock.monotonic())
                self._ask(
                    topology,
                    worker,
                    self._handles[worker].hold.remote(attempt),
                    lambda activity: machine.quieted(topology, worker, attempt, probe, activity),
                )
            case Cut(topology, worker, attempt):
                reference = self._handles[worker].cut.remote(attempt)
                self._ask(topology, worker, reference, lambda _: machine.cut(topology, worker, attempt))
            case Save(topology, worker, attempt, uri):
                self._when(
                    self._handles[worker].save.remote(attempt, uri),
                    lambda files: self._saved(topology, worker, attempt, files),
                    lambda error: self._refused(topology, worker, attempt, error),
                )
            case Resume(topology, worker, attempt, abandon):
                held_s = self._held_s.pop(topology, None)
                if held_s is not None:
                    self.still_s[topology] = self._clock.monotonic() - held_s
                if worker in self._handles:
                    self._handles[worker].resume.remote(attempt, abandon)
            case Close(topology, attempt, uri, files):
                self._close(topology, attempt, uri, files)

    def _ask(self, topology: str, worker: str, reference: Any, then: Callable[[Any], list[Instruction]]) -> None:
        def answered(answer: Any) -> None:
            if answer is not None and answer is not False:
                self._execute(then(answer))

        self._when(reference, answered, lambda error: self._failed(topology, worker, error))

    def _saved(self, topology: str, worker: str, attempt: int, files: list[SavedTask] | None) -> None:
        if files is not None:
            self._execute(self._machine.saved(topology, worker, attempt, files))

    def _refused(self, topology: str, worker: str, attempt: int, error: BaseException) -> None:
        cause = getattr(error, "cause", error)
        if isinstance(cause, SavepointError):
            self._execute(self._machine.unsaved(topology, attempt, str(cause)))
        else:
            self._failed(topology, worker, error)

    def _close(self, topology: str, attempt: int, uri: str, files: tuple[SavedTask, ...]) -> None:
        """Write the manifest, on a thread of its own: a slow store must not hold up the other topologies."""
        record = self._machine.topologies[topology]
        manifest = manifest_of(record.outline, record.splits, files, self._clock.now(), made_by())

        def write() -> None:
            try:
                SavepointFolder(uri).close(manifest)
            except SavepointError as error:
                self._answer(lambda why: self._execute(self._machine.unsaved(topology, attempt, why)), str(error))
            else:
                self._answer(lambda _: self._execute(self._machine.closed(topology, attempt)), None)

        threading.Thread(target=write, name="rstream-savepoint", daemon=True).start()
