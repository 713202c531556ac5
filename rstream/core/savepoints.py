"""Savepoints of a running topology, as the coordinator orders them: a consistent cut without anything on its way.

1. *Hold*: every worker is still: sources are not read, ticks and timers wait, what has arrived is processed, and sinks
   commit. A worker answers when it has nothing to do, with a number that grows with every step it takes. That each of
   them once had nothing to do does not say that nobody has, so they are asked again: when all numbers are those of the
   probe before, nothing happened between the last answer to that one and the first question of this one.
2. *Cut*: every worker cuts the state of its tasks, which takes no time, and all go on (or wait for their end).
3. *Save*: they write what they have cut while they run; when all have, the manifest makes it a savepoint.

A change of the topology waits until after a savepoint, and a savepoint until after a change. Whatever disturbs one, a
crash of a worker or of the coordinator, starts it anew as another attempt: nothing of an earlier one is ever mixed in.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from rstream.core.channel import TaskId
from rstream.core.checkpointing import Checkpointing
from rstream.core.instructions import Close, Cut, Hold, Instruction, Persist, Resume, Save
from rstream.core.live_changes import checked
from rstream.core.moving import TaskMoves
from rstream.core.records import OVER, FallBack, SavepointOrder, SavepointResult, State, TopologyRecord
from rstream.core.savepoint import SavedTask
from rstream.errors import UsageError
from rstream.schedulers.tables import Slot

ATTEMPTS_MAX = 5


class Savepoints(TaskMoves, Checkpointing):
    """The part of the coordinator machine that makes savepoints."""

    @abstractmethod
    def _find_running(self, topology: str) -> TopologyRecord | None:
        """The topology, if it runs."""

    @abstractmethod
    def _over(self, record: TopologyRecord, state: State) -> list[Instruction]:
        """The topology ends."""

    def savepoint(self, name: str, uri: str, stop: bool = False) -> tuple[int, list[Instruction]]:
        """Make a savepoint at a place, and with `stop` end the topology there; gives its number."""
        record = self._running(name, "save")
        if record.savepoint is not None:
            raise UsageError(f"topology {name!r} is being saved to {record.savepoint.uri} already; wait for its end")
        if record.draining is not None:
            raise UsageError(f"topology {name!r} is ending: there is nothing to save")
        record.savepoints += 1
        record.savepoint = SavepointOrder(record.savepoints, uri, stop)
        return record.savepoints, [Persist(name), *self._advance(record)]

    def restart(
        self,
        name: str,
        uri: str,
        parallelism: Mapping[str, int],
        drop: bool = False,
        places: Mapping[TaskId, Slot] | None = None,
    ) -> list[Instruction]:
        """Storm's rebalance: stop the topology with all its processes, and start it from a savepoint, resized.

        Its tasks start in the slots of `places`, if these nodes are there then. With `drop` what is queued is lost, as
        where nobody keeps it; for `delivery: at_most_once` alone.
        """
        checked(self._running(name, "restart"), parallelism, live=False)
        emptied = self.empty(name) if drop else []
        _, instructions = self.savepoint(name, uri)
        record = self._running(name, "restart")
        assert record.savepoint is not None, "it was just asked for"
        record.savepoint.restart, record.savepoint.places = dict(parallelism), dict(places or {})
        return [Persist(name), *emptied, *instructions]

    @abstractmethod
    def empty(self, name: str) -> list[Instruction]:
        """Drop what is queued."""

    @abstractmethod
    def _start_again(self, record: TopologyRecord, why: str, asked: bool = False) -> list[Instruction]:
        """Stop everything, and start from the newest savepoint."""

    def cancel_savepoint(self, name: str, number: int, why: str) -> list[Instruction]:
        """Give up a savepoint that is still under way."""
        record = self.topologies_by_name(name)
        order = None if record is None else record.savepoint
        if record is None or order is None or order.number != number:
            return []
        return self._end_savepoint(record, SavepointResult(order.number, order.uri, why))

    @abstractmethod
    def topologies_by_name(self, name: str) -> TopologyRecord | None:
        """The topology of that name, if there is one."""

    def balance(self, name: str, step: str, use: Sequence[float], use_step: float) -> list[Instruction]:
        """As ever, but not in the middle of a savepoint: another version would be something to do."""
        order = self._running(name, "rebalance").savepoint
        return [] if order is not None and order.attempt else super().balance(name, step, use, use_step)

    def _advance(self, record: TopologyRecord) -> list[Instruction]:
        """As for changes, with a savepoint as one more thing that may be next; they do not overlap."""
        if record.savepoint is not None and record.savepoint.attempt:
            return []
        return super()._advance(record) or self._begin_savepoint(record)

    def _begin_savepoint(self, record: TopologyRecord) -> list[Instruction]:
        order = record.savepoint
        ready = all(worker.phase in ("running", "finished") for worker in record.hosts().values())
        if order is None or record.state in OVER or record.round is not None or record.changing or not ready:
            return []
        if order.attempts == ATTEMPTS_MAX:
            why = f"it was disturbed {ATTEMPTS_MAX} times, by crashes of workers or of the coordinator"
            return self._end_savepoint(record, SavepointResult(order.number, order.uri, why))
        record.attempts += 1
        order.attempt = record.attempts
        order.attempts += 1
        order.asked = set(record.hosts())
        order.before, order.cutting, order.cut, order.saved = None, False, set(), {}
        # Where sinks commit with checkpoints, the next one commits what they have.
        checkpoint = self.checkpoint_due(record.name)
        return [Persist(record.name), *self._probe(record, order), *checkpoint]

    def _probe(self, record: TopologyRecord, order: SavepointOrder) -> list[Instruction]:
        order.probe += 1
        order.quiet = {}
        return [Hold(record.name, worker, order.attempt, order.probe) for worker in sorted(order.asked)]

    def _disturb(self, record: TopologyRecord) -> None:
        """What was done for an open savepoint is worth nothing any more: it begins anew when that is possible."""
        if record.savepoint is not None:
            record.savepoint.attempt, record.savepoint.cutting = 0, False

    def _current(self, topology: str, attempt: int) -> tuple[TopologyRecord | None, SavepointOrder | None]:
        record = self._find_running(topology)
        order = None if record is None else record.savepoint
        return record, order if order is not None and order.attempt == attempt else None

    def quieted(self, topology: str, worker: str, attempt: int, probe: int, activity: int) -> list[Instruction]:
        """A worker has nothing to do; when all had nothing to do twice and did nothing in between, the cut is made."""
        record, order = self._current(topology, attempt)
        if record is None or order is None or order.probe != probe or order.cutting:
            return []
        order.quiet[worker] = activity
        if set(order.quiet) != order.asked:
            return []
        if order.quiet != order.before or record.checkpoints.open:
            order.before = order.quiet
            return self._probe(record, order)
        order.cutting = True
        return [Cut(topology, each, attempt) for each in sorted(order.asked)]

    def cut(self, topology: str, worker: str, attempt: int) -> list[Instruction]:
        """A worker has cut its tasks; when all have, they go on, unless this is their end."""
        record, order = self._current(topology, attempt)
        if record is None or order is None or worker in order.cut:
            return []
        order.cut.add(worker)
        # What was done after the cut of a restart would be done again by those who come after.
        goes_on = order.cut == order.asked and not order.stop and order.restart is None
        resumes = [Resume(topology, each, attempt, False) for each in sorted(order.asked)] if goes_on else []
        return [Save(topology, worker, attempt, order.uri), *resumes]

    def saved(self, topology: str, worker: str, attempt: int, files: Sequence[SavedTask]) -> list[Instruction]:
        """A worker has written its tasks; when all have, the savepoint can be completed."""
        record, order = self._current(topology, attempt)
        if record is None or order is None:
            return []
        order.saved[worker] = tuple(files)
        if set(order.saved) != order.asked:
            return []
        return [Close(topology, attempt, order.uri, tuple(each for some in order.saved.values() for each in some))]

    def closed(self, topology: str, attempt: int) -> list[Instruction]:
        """The savepoint is complete."""
        record, order = self._current(topology, attempt)
        if record is None or order is None:
            return []
        files = [each for some in order.saved.values() for each in some]
        record.fall_back = FallBack(order.uri, dict(record.parallelism))
        done = SavepointResult(order.number, order.uri, "", len(files), sum(each.bytes for each in files))
        return self._end_savepoint(record, done)

    def unsaved(self, topology: str, attempt: int, why: str) -> list[Instruction]:
        """The savepoint cannot be made: somebody could not write it."""
        record, order = self._current(topology, attempt)
        if record is None or order is None:
            return []
        return self._end_savepoint(record, SavepointResult(order.number, order.uri, why))

    def _give_up_savepoint(self, record: TopologyRecord, why: str) -> None:
        """The workers that were making it are going: there is nobody to tell."""
        if record.savepoint is not None:
            record.result = SavepointResult(record.savepoint.number, record.savepoint.uri, why)
            record.savepoint = None

    def _end_savepoint(self, record: TopologyRecord, result: SavepointResult) -> list[Instruction]:
        order = record.savepoint
        assert order is not None, "one is under way"
        record.savepoint, record.result = None, result
        if order.stop and not result.error:
            return self._over(record, "KILLED")
        if order.restart is not None and not result.error:
            record.fall_back = FallBack(order.uri, {**record.parallelism, **order.restart})
            record.start_places = order.places
            return self._start_again(record, "a restart was asked for", asked=True)
        # Those that have gone on already do not mind; whatever somebody has cut is written, or not wanted.
        resumes = [Resume(record.name, worker, record.attempts, True) for worker in record.hosts()]
        return [Persist(record.name), *resumes, *self._advance(record)]
