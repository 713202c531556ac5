"""Which slots a keyed task owns while they change hands (PROTOCOL.md section 8, rules K2 to K5).

Senders mark the change in every channel. A slot's old owner hands its state over once all channels are marked; the new
owner holds back what comes for the slot until then. Everything here is task state: it is in snapshots, and it changes
only with recorded steps and numbered elements, so that a failure in the middle needs no rule of its own. A task with
nothing on the move is *settled*, and then nobody asks this object about any tuple.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from rstream.core.channel import ChannelId
from rstream.core.versions import Ranges, SlotMap, Span
from rstream.errors import ProtocolError
from rstream.keys import slot_of

Held = tuple[int, int, Any, float]
"""(edge, sender, value, age) of a tuple that waits for its key's state."""


class HandOver(NamedTuple):
    """Slots to hand over now, and the task that version `version` gives them to."""

    low: int
    high: int
    version: int
    owner: int


class Ownership:
    """What one task of a keyed operator owns, waits for and has handed over."""

    def __init__(self, me: int, first: Iterable[Span]) -> None:
        self.me = me
        spans = tuple(first)
        self.maps: dict[int, tuple[Span, ...]] = {0: spans}
        self.marks: dict[ChannelId, int] = {}
        """The newest version marked in each channel."""
        self.installed = Ranges((span.low, span.high, span.since) for span in spans if span.owner == me)
        self.gone: dict[int, Ranges] = {}
        self.hold: dict[int, dict[int, list[Held]]] = {}
        """By version and slot: what came before the state did."""
        self.backlog: dict[int, list[Held]] = {}
        """By slot: what was held and can be processed now; what comes for these slots goes behind it."""
        self.floor = 0
        """Up to this version everything is settled, and older maps are forgotten."""
        self.settled = True
        self._lookups: dict[int, SlotMap] = {}

    @property
    def newest(self) -> int:
        """The newest version that was seen."""
        return max(self.maps)

    # What arrives.

    def mark(self, channel: ChannelId, version: int, spans: Iterable[Any]) -> None:
        """From here on the sender of this channel routes by a version."""
        self.marks[channel] = version
        if version > self.floor:
            self.maps.setdefault(version, tuple(Span(*span) for span in spans))
        self.settled = False

    def admit(
        self,
        channel: ChannelId,
        version: int,
        spans: Sequence[Span],
        values: list[Any],
        key_of: Callable[[Any], Any] | None,
        born_s: float,
    ) -> list[Any]:
        """Those of the values, which were routed by a version, whose keys are here; the others wait (K2)."""
        lookup = self._lookups.get(version)
        if lookup is None:
            lookup = self._lookups[version] = SlotMap(spans)
        admitted = []
        for value in values:
            slot = slot_of(value if key_of is None else key_of(value))
            owner, since = lookup[slot]
            if owner != self.me:
                raise ProtocolError(
                    f"channel {channel}: a tuple of slot {slot} came, which version {version} gives to {owner}"
                )
            if self.installed.get(slot) != since:
                self.hold.setdefault(since, {}).setdefault(slot, []).append(
                    (channel.edge, channel.source, value, born_s)
                )
            elif slot in self.backlog:
                self.backlog[slot].append((channel.edge, channel.source, value, born_s))
            else:
                admitted.append(value)
        return admitted

    def install(self, low: int, high: int, version: int) -> None:
        """The state of these slots is here (K4); what was held for them can be processed."""
        for start, end, _ in self.installed:
            if start < high and low < end:
                raise ProtocolError(
                    f"slots {low} to {high} were handed over for version {version}, but are here already"
                )
        self.installed.set(low, high, version)
        held = self.hold.get(version, {})
        for slot in [slot for slot in held if low <= slot < high]:
            self.backlog[slot] = held.pop(slot)
        if not held:
            self.hold.pop(version, None)
        self.settled = False

    # What to do next.

    def next_hand_over(self, reached: float) -> HandOver | None:
        """The next slots to hand over (K3); every data channel has come to version `reached`.

        One version after the other: by then this task's watermark stands where the version's marks found it.
        """
        if self.backlog:
            return None
        for version in sorted(self.maps):
            if version > reached:
                break
            leaving = self._leaving(version)
            if leaving is not None:
                return leaving
            if not self._arrived(version):
                break
        return None

    def _leaving(self, version: int) -> HandOver | None:
        """Slots that are here and that a version gives to another task."""
        for start, end, since in self.installed:
            if version > since:
                for span in self.maps[version]:
                    if span.since > since and span.low < end and start < span.high:
                        return HandOver(max(start, span.low), min(end, span.high), version, span.owner)
        return None

    def _arrived(self, version: int) -> bool:
        """Whatever a version gives this task has come; it may have left since."""
        return all(self._has(span) or self._had(span) for span in self.maps[version] if span.owner == self.me)

    def passed(self) -> float:
        """The version up to which all that was given has come, and all that was taken has left; infinite if all has."""
        passed = -1.0
        for version in sorted(self.maps):
            if self.backlog or self._leaving(version) is not None or not self._arrived(version):
                return passed
            passed = version
        return math.inf

    def hand_over(self, low: int, high: int) -> None:
        """These slots have left."""
        since = self.installed.get(low)
        assert since is not None, "what is handed over is here"
        assert self.installed.covers(low, high, since), "slots that leave together came together"
        self.installed.clear(low, high)
        self.gone.setdefault(since, Ranges()).set(low, high, 0)

    def take_backlog(self, limit: int) -> list[Held]:
        """Tuples of one sender that were held and are to be processed now, at most so many."""
        taken: list[Held] = []
        for slot in list(self.backlog):
            held = self.backlog[slot]
            count = 0
            while count < len(held) and len(taken) < limit and held[count][:2] == (taken or held)[0][:2]:
                taken.append(held[count])
                count += 1
            if count < len(held):
                self.backlog[slot] = held[count:]
                break
            del self.backlog[slot]
        return taken

    @property
    def waits(self) -> bool:
        """Some tuple is held back, or comes after one that was."""
        return bool(self.hold) or bool(self.backlog)

    def is_complete(self) -> bool:
        """Nothing is held, and whatever any seen version gave this task has come, and has left if it had to (K5)."""
        return not self.waits and all(map(self._arrived, self.maps))

    def _has(self, span: Span) -> bool:
        return self.installed.covers(span.low, span.high, span.since)

    def _had(self, span: Span) -> bool:
        pieces = Ranges((low, high, 0) for low, high, _ in self.gone.get(span.since, ()))
        for low, high, since in self.installed:
            if since == span.since:
                pieces.set(low, high, 0)
        return pieces.covers(span.low, span.high, 0)

    def settle(self, reached: float) -> bool:
        """Forget what is over once every channel has come to the newest version and all is where it belongs."""
        newest = self.newest
        if reached < newest or not self.is_complete():
            return False
        mine = Ranges()
        for span in self.maps[newest]:
            if span.owner == self.me:
                mine.set(span.low, span.high, span.since)
        if list(mine) != list(self.installed):
            return False
        self.maps = {newest: self.maps[newest]}
        self._lookups.clear()
        self.gone.clear()
        self.floor = newest
        self.settled = True
        return True

    # Snapshots.

    def content(self) -> list[Any]:
        """All of it, as values that can travel."""
        return [
            [[version, [list(span) for span in spans]] for version, spans in self.maps.items()],
            [[*id, version] for id, version in self.marks.items()],
            [list(each) for each in self.installed],
            [[since, [list(each) for each in ranges]] for since, ranges in self.gone.items()],
            [
                [since, slot, [list(each) for each in held]]
                for since, by in self.hold.items()
                for slot, held in by.items()
            ],
            [[slot, [list(each) for each in held]] for slot, held in self.backlog.items()],
            self.floor,
            self.settled,
        ]

    def restore(self, content: Any) -> None:
        """Take back what `content` gave."""
        maps, marks, installed, gone, hold, backlog, self.floor, self.settled = content
        self.maps = {version: tuple(Span(*span) for span in spans) for version, spans in maps}
        self.marks = {ChannelId(edge, source, target): version for edge, source, target, version in marks}
        self.installed = Ranges((low, high, value) for low, high, value in installed)
        self.gone = {since: Ranges((low, high, value) for low, high, value in ranges) for since, ranges in gone}
        self.hold = {}
        for since, slot, held in hold:
            self.hold.setdefault(since, {})[slot] = [
                (edge, source, value, born_s) for edge, source, value, born_s in held
            ]
        self.backlog = {
            slot: [(edge, source, value, born_s) for edge, source, value, born_s in held] for slot, held in backlog
        }
        self._lookups.clear()
