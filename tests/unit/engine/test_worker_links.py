"""When tuples leave on a link: at once where the receiver could be idle, in ever larger batches where it is not."""

from __future__ import annotations

from typing import Any

from rstream import Spout, Topology
from rstream.clock import ManualClock
from rstream.config import Config
from rstream.core import messages
from rstream.core.link import OutLink
from rstream.core.messages import Ack, Data, Frame
from rstream.core.worker import WorkerMachine
from rstream.groupings import Custom
from rstream.runtime.embedded import Embedded

FED: list[int] = []
BATCH_MAX = 100


class Fed(Spout):
    """What the test feeds."""

    def next_tuple(self, out: Any) -> None:
        if FED:
            out.emit(FED.pop(0))


def _to_the_other_worker(value: Any, tasks: int) -> int:
    return 1


class Watched(Embedded):
    """Two workers whose data frames are seen, and whose acknowledgements can be held back: the receiver is busy."""

    def __init__(self) -> None:
        FED.clear()
        topology = Topology("watched")
        topology.spout("fed", Fed()).grouped(Custom(_to_the_other_worker)).sink("out", parallelism=2)
        self.time = ManualClock()
        super().__init__(topology.build(), Config(batch={"max_tuples": BATCH_MAX}), workers=2, clock=self.time)
        self.sent: list[int] = []
        self.busy = False
        self._held: list[tuple[WorkerMachine, str, bool, Frame]] = []
        self.start()
        self.pass_time()

    def _carry(self, machine: WorkerMachine, peer: str, ours: bool, frame: Frame) -> None:
        message = messages.decode(frame.header)
        if isinstance(message, Data):
            self.sent.append(message.count)
        if self.busy and isinstance(message, Ack):
            self._held.append((machine, peer, ours, frame))
        else:
            super()._carry(machine, peer, ours, frame)

    def pass_time(self) -> None:
        """A turn of everybody."""
        self.time.advance(0.1)
        self.turn()

    def feed(self, count: int) -> None:
        """Tuples one after the other, a turn each."""
        for number in range(count):
            FED.append(number)
            self.pass_time()

    def free(self) -> None:
        """The receiver has done what it had."""
        self.busy = False
        for each in self._held:
            super()._carry(*each)
        self._held.clear()

    @property
    def link(self) -> OutLink:
        """The sender's end."""
        return self.machines["watched/w0"].out_links["watched/w1"]


def test_a_lone_tuple_leaves_in_the_turn_in_which_it_was_made() -> None:
    host = Watched()
    for before in range(5):
        host.feed(1)
        assert host.sent == [1] * (before + 1)
    host.close()


def test_while_the_receiver_is_busy_tuples_gather_and_leave_together_once_it_is_not() -> None:
    host = Watched()
    host.busy = True
    host.feed(50)
    assert host.sent == [1, 1], "two batches are on their way, the others wait for an answer"
    host.free()
    host.pass_time()
    assert host.sent == [1, 1, 48]
    host.close()


def test_a_full_batch_leaves_although_the_receiver_is_busy() -> None:
    host = Watched()
    host.busy = True
    host.feed(2 + 2 * BATCH_MAX + 7)
    assert host.sent == [1, 1, BATCH_MAX, BATCH_MAX]
    host.close()


def test_while_a_link_is_full_tuples_wait_in_their_channel_and_none_is_lost() -> None:
    host = Watched()
    host.feed(3)
    host.link.full = True
    host.feed(20)
    assert host.sent == [1, 1, 1]
    host.link.full = False
    host.pass_time()
    assert sum(host.sent) == 23
    host.pass_time()
    assert host.results("out") == [0, 1, 2, *range(20)]
    host.validate()
    host.close()
