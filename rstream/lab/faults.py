"""Fault simulation: the real core, coordinator machine included, on virtual time with seeded crashes.

One `Schedule` is one seed: a random topology, placement and network, and crashes of workers (several at once, during
recovery, during snapshots, of holders), of the coordinator between any two of its steps, link resets and zombies. The
result is compared with what a serial run must give. The same seed gives the same schedule, event by event.
"""

from __future__ import annotations

import heapq
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rstream.core.channel import TaskId
from rstream.core.coordinator import CoordinatorMachine
from rstream.core.records import OVER
from rstream.errors import ProtocolError, StateLost
from rstream.lab.fault_changes import ChangingCluster
from rstream.lab.fault_cluster import Pipe, SimWorker
from rstream.lab.fault_topologies import Workload
from rstream.state.fragments import FragmentStore, Held, newest_chain

END_S = 30.0
LOUD = ("stopped loudly", "ended FAILED")
"""How the verdict begins where a topology stopped and said why."""
FAULTS = {
    "crash": 4,
    "crash of several": 3,
    "loss of a domain": 2,
    "crash during recovery": 3,
    "crash in the middle of a round": 2,
    "zombie": 3,
    "coordinator restart": 1,
    "coordinator restart between two steps": 2,
    "link reset": 1,
    "slow link": 1,
    "fragment lost": 1,
    "fragment spoiled": 1,
}
"""What may happen, by weight."""
HARMLESS = ("coordinator restart", "coordinator restart between two steps", "link reset", "slow link")
"""These may come at any time, also while others are being recovered from."""
ZOMBIE_S = 0.5
"""A process that was given up goes on at most so long."""


@dataclass(slots=True)
class Outcome:
    """How a schedule ended."""

    seed: int
    exact: bool
    verdict: str
    events: Counter[str]
    virtual_s: float
    faults: int = 0
    """How many faults happened."""
    beyond: bool = False
    """More was lost than the guarantee is for: stopping loudly is as good as being exact."""

    @property
    def passed(self) -> bool:
        """It went as it has to."""
        return self.exact or (self.beyond and self.verdict.startswith(LOUD))

    @property
    def situations(self) -> list[str]:
        """What kinds of things happened, each once."""
        return sorted(self.events)


class Schedule(ChangingCluster):
    """One seeded run."""

    def __init__(
        self,
        seed: int,
        faults: int | None = None,
        trace: Callable[[str], None] | None = None,
        workload: Workload | None = None,
        style: str | None = None,
        kinds: Sequence[str] = tuple(FAULTS),
    ) -> None:
        self._steps_left = -1
        self.faults = 0
        """How many faults have happened."""
        self._harmed = 0
        """How often something was harmed; what is planned for a healthy cluster is off then."""
        self._kinds = {kind: FAULTS[kind] for kind in kinds}
        self._doomed: list[str] = []
        """Workers of a failing domain, one of which ends while a recovery asks what everybody knows."""
        super().__init__(seed, trace, workload, style)
        count = self.random.randint(2, 5) if faults is None else faults
        at_s = 0.0
        for _ in range(count):
            at_s += self.random.expovariate(1.0 / (self.delay_s * self.random.choice([1.0, 4.0, 15.0])))
            self.after(at_s, self._fault)
        self.plan_changes()
        self.plan_moves()

    def run(self) -> Outcome:
        """Run to the end and judge."""
        try:
            while self._queue and self.now_s < END_S and self.record.state not in OVER:
                self.step()
        except (ProtocolError, StateLost) as error:
            return Outcome(self.seed, False, f"stopped loudly: {error}", self.events, self.now_s)
        state = self.record.state
        if state != "FINISHED":
            return Outcome(self.seed, False, f"ended {state} at {self.now_s:.1f} s", self.events, self.now_s)
        problem = self.workload.check(self.results)
        if not problem and self.exact and self.workload.check_state is not None:
            problem = self.workload.check_state(self.final_state)
        return Outcome(self.seed, problem == "", problem or "exact", self.events, self.now_s)

    def final_state(self, operator: str, name: str) -> Iterator[tuple[int, Any, Any]]:
        """(task, key, what is held) of a state, wherever the tasks of an operator are now."""
        for worker in self.workers.values():
            if worker.name in self.record.workers and worker.machine is not None:
                for task in worker.machine.tasks:
                    if task.id.operator == operator:
                        for key, held in task.ctx.state.items(name):
                            yield task.id.number, key, held

    def step(self) -> None:
        """Do what comes next."""
        self.now_s, _, action = heapq.heappop(self._queue)
        action()

    # Faults.

    def _happened(self, kind: str) -> None:
        """A fault has happened; what was only planned, or met nothing, is not counted."""
        self.events[kind] += 1
        self.faults += 1

    def note_harm(self) -> None:
        """Something is lost now: what was planned for a healthy cluster is off."""
        self._harmed += 1
        self._doomed = []  # another domain may be the failing one now

    def _fault(self, kind: str = "") -> None:
        if self.record.state in OVER:
            return
        kind = kind or self.random.choices(list(self._kinds), list(self._kinds.values()))[0]
        if kind not in HARMLESS and not self.is_well():
            # The guarantee is for one failing domain until all is well again.
            self.after(max(self.delay_s, 0.005), lambda: self._fault(kind))
            return
        if kind not in HARMLESS:
            self.note_harm()
        hosts = [worker for worker in self.workers.values() if self._is_member(worker)]
        if kind == "coordinator restart":
            self._crash_coordinator()
            self._happened(kind)
        elif kind == "coordinator restart between two steps":
            self._steps_left = self.random.randint(1, 6)
        elif kind in ("slow link", "link reset"):
            pipes = [pipe for pipe in self.pipes.values() if pipe.open]
            if pipes:
                (self._slow_down if kind == "slow link" else self._cut)(self.random.choice(pipes))
                self._happened(kind)
        elif kind in ("fragment lost", "fragment spoiled"):
            if self._harm_fragment(kind == "fragment lost"):
                self._happened(kind)
        elif hosts:
            self._end_some(kind, self.random.choice(hosts), hosts)

    def _end_some(self, kind: str, victim: SimWorker, hosts: list[SimWorker]) -> None:
        """A worker ends, alone or with others of its domain, at once or one after the other."""
        domain = [each for each in hosts if self._domain(each) == self._domain(victim)]
        several = kind == "crash of several" or (kind == "zombie" and self.random.random() < 0.5)
        victims = [victim]
        if several and len(domain) > 1:
            victims = self.random.sample(domain, self.random.randint(2, len(domain)))
        again = kind in ("crash during recovery", "crash in the middle of a round")
        if not self._survivable(domain if again or kind == "loss of a domain" else victims):
            self.events["put off"] += 1
            self.after(max(self.delay_s, 0.005), lambda: self._fault(kind))
            return
        if kind == "loss of a domain":
            victims = domain
        self._note(victim)
        if kind == "crash in the middle of a round":
            self._doomed = [each.name for each in domain if each is not victim]
        for each in victims:
            (self._cut_off if kind == "zombie" else self._crash)(each)
        if kind == "crash during recovery":
            home = self._domain(victim)  # nobody knows any more when it is gone
            self.after(self.random.uniform(0.0, 4 * self.delay_s), lambda: self._crash_again(home))
        # Those that end during a recovery are counted when they do; one worker is neither several nor a domain of many.
        self._happened("crash" if again or (len(victims) == 1 and kind != "zombie") else kind)

    def break_move(self, targets: dict[TaskId, str]) -> None:
        """In the middle of a move the old host, the target, another worker or the coordinator ends."""
        if not targets or "crash" not in self._kinds:
            return
        task, target = self.walks.choice(sorted(targets.items()))
        old = self.record.placement.get(task, target)
        others = sorted(self.record.workers.keys() - {old, target})
        who = self.walks.choice(
            ["the old host", "the old host", "the target", "the target", "another worker", "the coordinator"]
        )
        victim = {"the old host": old, "the target": target}.get(who) or (self.walks.choice(others) if others else old)
        before, delay_s = self._harmed, self.walks.uniform(0.0, 10 * self.delay_s)
        self.after(delay_s, lambda: self._break_move(who, victim, before))

    def _break_move(self, who: str, victim: str, before: int) -> None:
        worker = self.workers[victim]
        moving = self.record.parking is not None or self.record.round is not None or self.record.moves
        if self.record.state in OVER or self._harmed != before or not moving:
            return
        if who == "the coordinator":
            self._crash_coordinator()
        elif self._is_member(worker) and self._survivable([worker]):
            self._harmed += 1
            self._crash(worker)
        else:
            return
        self._happened(f"end of {who} during a move")

    def _note(self, victim: SimWorker) -> None:
        """What the crash meets."""
        machine = victim.machine
        assert machine is not None, "victims have machines"
        if machine.backups.in_flight:
            self.events["during a snapshot"] += 1
        if machine.backups.store.tasks():
            self.events["of a holder"] += 1
        if not machine.tasks:
            self.events["of a spare"] += 1

    def _crash_again(self, domain: str) -> None:
        """Another worker of the same domain while the first recovery goes on."""
        again = self._members(domain)
        if again and self.record.state not in OVER:
            recovering = not self.is_well()
            self._crash(self.random.choice(again))
            self._happened("crash during recovery" if recovering else "crash")

    def _members(self, domain: str) -> list[SimWorker]:
        return [each for each in self.workers.values() if self._is_member(each) and self._domain(each) == domain]

    def _fence(self, worker: SimWorker, number: int, table: Any, lost: list[Any]) -> None:
        """A worker answers; one that was asked too may end before it does, with something on its way to the first."""
        super()._fence(worker, number, table, lost)
        asked = self.record.round.asked - {worker.name} if self.record.round is not None else set()
        doomed = [self.workers[name] for name in self._doomed if name in asked and self._is_member(self.workers[name])]
        if lost and doomed:
            self._doomed = []
            self._crash(self.random.choice(doomed))
            self._happened("crash in the middle of a round")

    def _domain(self, worker: SimWorker) -> str:
        known = self.record.workers.get(worker.name)
        several = len({each.address.node for each in self.record.workers.values() if not each.retiring}) > 1
        return known.address.node if known is not None and several else worker.name

    def is_well(self) -> bool:
        """PROTOCOL.md section 9: the guarantee holds for one failing domain at a time, until all is well again."""
        record = self.record
        if record.state not in ("ACTIVE", "REBALANCING") or record.round is not None:
            return False
        for name, known in record.workers.items():
            worker = self.workers.get(name)
            if worker is None or not self._is_member(worker) or known.phase in ("starting", "started"):
                return False
            if worker.machine is None or not worker.machine.healed:
                return False
        return True

    def _survivable(self, victims: list[SimWorker]) -> bool:
        """The fragments that were lost or spoiled before leave enough of every task that would be lost now."""
        return next(self.lost_with(victims), None) is None

    def lost_with(self, victims: list[SimWorker]) -> Iterator[TaskId]:
        """The tasks of these workers that could not be rebuilt from what all others hold."""
        left = [worker.machine for worker in self.workers.values() if worker not in victims and self._is_member(worker)]
        for task in [task for worker in victims if worker.machine is not None for task in worker.machine.tasks]:
            inventory = [
                held
                for machine in left
                if machine is not None
                for held in machine.backups.store.inventory(str(task.id))
                if _is_good(machine.backups.store, held)
            ]
            if not task.commits and newest_chain(inventory) is None:
                yield task.id

    def _is_member(self, worker: SimWorker) -> bool:
        known = worker.name in self.record.workers
        return known and worker.alive and not worker.cut_off and worker.machine is not None

    def _harm_fragment(self, lost: bool) -> bool:
        """A holder loses a fragment, or its memory changes a byte of it; the checksum has to find that."""
        held = [
            (worker.machine.backups.store, fragment)
            for worker in self.workers.values()
            if self._is_member(worker) and worker.machine is not None
            for task in worker.machine.backups.store.tasks()
            for each in worker.machine.backups.store.inventory(task)
            if (fragment := worker.machine.backups.store.find(task, each.label.epoch, each.index)) is not None
        ]
        if not held:
            return False
        store, fragment = self.random.choice(held)
        label = fragment.label
        self._say(f"fragment {fragment.index} of {label.task} {label.epoch} {'lost' if lost else 'spoiled'}")
        store.drop_fragment(label.task, label.epoch, fragment.index)
        self.harmed_tasks.add(label.task)
        if not lost:
            piece = bytearray(fragment.pieces[0])
            piece[self.random.randrange(len(piece))] ^= 1
            spoiled = replace(fragment, pieces=(bytes(piece), *fragment.pieces[1:]))
            store.put(spoiled, checked=True)
        return True

    def _slow_down(self, pipe: Pipe) -> None:
        """What is sent on one connection now arrives late; others overtake it, its own order stays."""
        for way in pipe.due_s:
            pipe.due_s[way] = max(pipe.due_s[way], self.now_s + self.random.uniform(2, 20) * self.delay_s)

    def _cut_off(self, worker: SimWorker) -> None:
        """The coordinator gives a worker up that goes on running, sending and committing, until it ends by itself."""
        self._say(f"zombie {worker.name}")
        worker.cut_off = True
        self.after(self._delay() + 0.001, lambda: self._do(self.coordinator.died(self.name, worker.name, b"cut off")))

        def end() -> None:
            if worker.alive:
                self.end_process(worker)

        self.after(self.random.uniform(0.0, ZOMBIE_S), end)

    def _coordinator_ends(self) -> bool:
        if self._steps_left < 0:
            return False
        self._steps_left -= 1
        if self._steps_left >= 0:
            return False
        self._crash_coordinator()
        self._happened("coordinator restart between two steps")
        return True

    def _crash(self, worker: SimWorker) -> None:
        self._say(f"crash {worker.name}")
        self.end_process(worker)
        self.after(self._delay() + 0.001, lambda: self._do(self.coordinator.died(self.name, worker.name, b"crash")))

    def _crash_coordinator(self) -> None:
        """All it knew beside the journal is gone; answers on their way reach the new one."""
        self._say("coordinator restarts")
        self._steps_left = -1
        self.results.clear()
        dead = [name for name, worker in self.workers.items() if not worker.alive or worker.cut_off]
        self.coordinator = CoordinatorMachine()
        self.coordinator.adopt(pickle.loads(self.journal[self.name]))
        self._do(self.coordinator.resume(self.name))
        for name in dead:
            self._do(self.coordinator.died(self.name, name, b"found dead"))


def _is_good(store: FragmentStore, held: Held) -> bool:
    fragment = store.find(held.label.task, held.label.epoch, held.index)
    return fragment is not None and fragment.is_good()


def run_one(seed: int) -> Outcome:
    """Run one seed; whatever it raises is a verdict too."""
    return judged(seed, lambda: Schedule(seed))


def judged(seed: int, make: Callable[[], Schedule]) -> Outcome:
    """Run a schedule; an error that no worker may survive is a verdict, whichever it is."""
    schedule = None
    try:
        schedule = make()
        return schedule.run()
    except Exception as error:
        events, now_s = (Counter[str](), 0.0) if schedule is None else (schedule.events, schedule.now_s)
        return Outcome(seed, False, f"broke: {error!r}", events, now_s)


def run_schedules(start: int, count: int) -> Iterable[Outcome]:
    """Run seeds start .. start + count - 1."""
    return map(run_one, range(start, start + count))
