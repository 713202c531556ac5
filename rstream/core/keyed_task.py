"""Tasks with keyed inputs: what they do while keys change hands. At all other times they are bolt tasks like any other.

A change of owners is ordinary data flow: marks arrive in the data channels and hand-overs in the channels from peers,
both consumed like tuples; handing over a piece of state and processing what was held back are steps with records of
their own, taken in turn with other keys' tuples.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rstream import values as codec
from rstream.core import order
from rstream.core.bolt_task import BoltTask
from rstream.core.channel import ChannelId, InChannel
from rstream.core.control import HAND, MARK, control
from rstream.core.order import Record
from rstream.core.ownership import Ownership
from rstream.core.task import LAST_VERSION
from rstream.state.table import Entry

HAND_BYTES = 128 << 10
"""A hand-over goes in pieces of about this size, so that other keys' tuples get their turn in between."""
HAND_UNACKED_BYTES_MAX = 1 << 20
"""No further piece leaves while so much is on its way to the new owner."""


class KeyedBoltTask(BoltTask):
    """A task whose inputs are keyed."""

    def __init__(self, *arguments: Any, **common: Any) -> None:
        super().__init__(*arguments, **common)
        first = self.deployment.versions_of(self.id.operator)[0]
        self.ownership = Ownership(self.id.number, first.spans)
        self._piece_cells = 256

    def _reached(self) -> float:
        """The version that all data channels have come to; the end of a stream counts as every mark."""
        return min((self._marked(each.id) for each in self.data_channels() if not each.ended), default=math.inf)

    def _marked(self, channel: ChannelId) -> int:
        """The version by which the sender of a channel routes what is next in it."""
        marked = self.ownership.marks.get(channel)
        if marked is not None:
            return marked
        return self.deployment.born_version(self.deployment.ends(channel)[0], self.id.operator)

    def _follow_up(self) -> None:
        before = self.ownership.floor
        self.moving = not self.ownership.settle(self._reached())
        self.time.passed(self.ownership.passed())
        self.news = self.news or self.ownership.floor != before

    def reached(self) -> dict[str, int]:
        own = LAST_VERSION if self.ended else self.ownership.floor
        return {**super().reached(), self.id.operator: own}

    def _apply_switch(self, record: Record) -> None:
        super()._apply_switch(record)
        if record[0] == order.GROW:
            self._follow_up()

    # What arrives.

    def _admit(self, channel: InChannel, values: list[Any], born_s: float) -> list[Any]:
        version = self._marked(channel.id)
        spans = self.ownership.maps.get(version)
        if spans is None:
            # A sender that was born with it has sent no mark; the tables, which named that sender, have it.
            spans = self.deployment.versions_of(self.id.operator)[version].spans
        return self.ownership.admit(channel.id, version, spans, values, self.ctx.key_of, born_s)

    def _control_of_peers(self, channel: InChannel, tag: str, fields: list[Any]) -> None:
        if tag == MARK:
            version, spans = fields
            self.ownership.mark(channel.id, version, spans)
            self.time.marked(channel.id[:2], version)
        else:
            assert tag == HAND, tag
            version, low, high, kind, count, body = fields
            self.ctx.state.import_range(codec.decode(kind, count, body))
            self.ctx.timers.adopt(low, high)
            self.ctx.event_timers.adopt(low, high)
            self.ownership.install(low, high, version)
        self._follow_up()

    def _may_end(self) -> bool:
        return self.ownership.is_complete() and self.ownership.next_hand_over(math.inf) is None

    # Steps of a change.

    def can_move(self) -> bool:
        """There is something to process that was held back, or a piece to hand over."""
        if self.held or self.ended or self.replay or not self.opened:
            return False
        if self.ownership.backlog:
            return not self.blocked
        due = self.ownership.next_hand_over(self._reached())
        return due is not None and self.peers[due.owner].bytes_unacked < HAND_UNACKED_BYTES_MAX

    def move(self, now_s: float) -> Callable[[], None] | None:
        if self.ownership.backlog:
            count = min(self.step_limit, sum(map(len, self.ownership.backlog.values())))
            return self._step_again((order.DRAIN, 0, 0, count, now_s))
        due = self.ownership.next_hand_over(self._reached())
        assert due is not None, "asked for when there is something to do"
        high = self.ctx.state.range_end(due.low, due.high, self._piece_cells)
        return self._step_again((order.HAND, due.low, high, due.version, now_s))

    def _step_again(self, record: Record) -> Callable[[], None] | None:
        if record[0] == order.HAND:
            self._begin(record)
            self._hand_over(*record[1:])
            self._follow_up()
            self._go_on(record[4])
            return None
        if record[0] == order.DRAIN:
            self._begin(record)
            return self._drain(record[3])
        return super()._step_again(record)

    def _hand_over(self, low: int, high: int, version: int, now_s: float) -> None:
        """Send the state of some slots to the owner that a version gives them (K3)."""
        owner = next(span.owner for span in self.ownership.maps[version] if span.low <= low < span.high)
        entries = [_ordered(entry) for entry in self.ctx.state.export_range(low, high)]
        kind, body = codec.encode(entries)
        self.ctx.state.drop_range(low, high)
        self.ownership.hand_over(low, high)
        self.peers[owner].control(control(HAND, version, low, high, kind, len(entries), body), now_s)
        self.touched = True
        if len(body) > 2 * HAND_BYTES:
            self._piece_cells = max(1, self._piece_cells // 2)
        elif len(body) < HAND_BYTES // 2:
            self._piece_cells = min(4096, self._piece_cells * 2)

    def _drain(self, count: int) -> Callable[[], None] | None:
        """Process tuples that were held back until their keys' state came (K4)."""
        held = self.ownership.take_backlog(count)
        edge, source, _, _ = held[0]
        self.lane = (edge, source)
        if self._key_of_input is not None:
            self._key_of_input.current = self._key_of_input.by_edge[edge]
        values = [value for _, _, value, _ in held]
        self._step = (None, 0, min(born_s for _, _, _, born_s in held), self.clock())
        if self.operator.blocking:
            self.in_thread = True
            return lambda: self._call(self.run, values)
        self._call(self.run, values)
        self._ran()
        return None

    def _finish_step(self) -> None:
        super()._finish_step()
        if self.moving:
            self._follow_up()
            self._go_on(self.ctx.now_s)

    def _go_on(self, now_s: float) -> None:
        """After a step that may have been the last that the end of the stream, or a watermark, waited for."""
        if not self._end_if_over(now_s):
            self._advance()
            self._look()
            self._replayed()

    # Snapshots.

    def _own_snapshot(self) -> Any:
        return [*super()._own_snapshot(), self.ownership.content()]

    def _restore_own(self, own: Any) -> None:
        super()._restore_own(own)
        self.ownership.restore(own[3])
        self.moving = not self.ownership.settled


def _ordered(entry: Entry) -> Entry:
    """The items of a map in an order that does not depend on how it came about: a replay must send the same bytes."""
    if entry[0] != "m":
        return entry
    items = sorted(zip(entry[4::2], entry[5::2], strict=True), key=lambda item: repr(item[0]))
    return (*entry[:4], *(part for item in items for part in item))
