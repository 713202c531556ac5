"""Routers: which channel each emitted value goes to. A choice depends on the task's own state and nothing else.

One router serves one out-edge of one task. `push` adds a step's values to the `pending` lists of the edge's channels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rstream import groupings
from rstream.core.channel import OutChannel
from rstream.core.versions import SlotMap, Span, Version
from rstream.errors import RunError
from rstream.groupings import Grouping
from rstream.keys import slot_of, stable_hash
from rstream.schedulers.balancing import LoadBalancer

ROUTE_CACHE_MAX = 1_000_000
"""Keys whose route is remembered; beyond it the cache starts anew."""


class Router:
    """The base: sends everything to the first channel (the global grouping)."""

    def __init__(self, channels: Sequence[OutChannel]) -> None:
        self.channels = list(channels)

    def state(self) -> Any:
        """What the next choice depends on, for snapshots."""
        return None

    def restore(self, state: Any) -> None:
        """Go on from a state."""

    def apply(self, version: Version, channels: Sequence[OutChannel]) -> None:
        """Route by another version from now on; `channels` are those to all tasks, active or not."""
        self.channels = [channels[task] for task in version.active]

    def push(self, values: list[Any], kind: int, born_s: float) -> None:
        """Route a step's values."""
        channel = self.channels[0]
        channel.note(kind, born_s)
        channel.pending.extend(values)

    def push_direct(self, task: int, values: list[Any], kind: int, born_s: float) -> None:
        """Route values that name their receiver; only the direct grouping has receivers for it."""

    def _note_all(self, kind: int, born_s: float) -> None:
        for channel in self.channels:
            channel.note(kind, born_s)

    def _forget_empty(self) -> None:
        for channel in self.channels:
            if not channel.pending:
                channel.pending_kind = -1


class RoundRobin(Router):
    """Every channel in turn, value by value."""

    def __init__(self, channels: Sequence[OutChannel]) -> None:
        super().__init__(channels)
        self.position = 0

    def state(self) -> Any:
        return self.position

    def restore(self, state: Any) -> None:
        self.position = state

    def apply(self, version: Version, channels: Sequence[OutChannel]) -> None:
        super().apply(version, channels)
        self.position = 0

    def push(self, values: list[Any], kind: int, born_s: float) -> None:
        count = len(self.channels)
        if count == 1:
            return super().push(values, kind, born_s)
        for turn in range(min(count, len(values))):
            channel = self.channels[(self.position + turn) % count]
            channel.note(kind, born_s)
            channel.pending.extend(values[turn::count])
        self.position = (self.position + len(values)) % count
        return None


class ToAll(Router):
    """Every value to every channel."""

    def push(self, values: list[Any], kind: int, born_s: float) -> None:
        for channel in self.channels:
            channel.note(kind, born_s)
            channel.pending.extend(values)


class ByKey(Router):
    """Equal keys to the channel of the task that owns their slot."""

    def __init__(
        self, channels: Sequence[OutChannel], key_of: Callable[[Any], Any] | None, spans: Sequence[Span]
    ) -> None:
        super().__init__(channels)
        self.key_of = key_of
        self._routes = _KeyRoutes(self.channels, spans)

    def apply(self, version: Version, channels: Sequence[OutChannel]) -> None:
        self.channels = list(channels)
        self._routes = _KeyRoutes(self.channels, version.spans)

    def push(self, values: list[Any], kind: int, born_s: float) -> None:
        if len(self.channels) == 1:
            return super().push(values, kind, born_s)
        self._note_all(kind, born_s)
        routes, key_of = self._routes, self.key_of
        # The hot path of keyed streams: one lookup and one append for each value.
        try:
            if key_of is None:
                for value in values:
                    routes[value](value)
            else:
                for value in values:
                    routes[key_of(value)](value)
        except TypeError:
            for value in values:
                slot_of(value if key_of is None else key_of(value))  # says it better where a key cannot be hashed
            raise
        self._forget_empty()
        return None


class _KeyRoutes(dict[Any, Callable[[Any], None]]):
    """From a key to the `append` of its channel's pending list, found by slot the first time."""

    def __init__(self, channels: Sequence[OutChannel], spans: Sequence[Span]) -> None:
        super().__init__()
        self._appends = [channel.pending.append for channel in channels]
        self._slots = SlotMap(spans)

    def __missing__(self, key: Any) -> Callable[[Any], None]:
        if len(self) >= ROUTE_CACHE_MAX:
            self.clear()
        route = self[key] = self._appends[self._slots[slot_of(key)][0]]
        return route


class ByPartialKey(Router):
    """Each key to one of two channels, the one that got less from this task so far."""

    def __init__(self, channels: Sequence[OutChannel], key_of: Callable[[Any], Any] | None) -> None:
        super().__init__(channels)
        self.key_of = key_of
        self.sent = [0] * len(channels)

    def state(self) -> Any:
        return self.sent

    def restore(self, state: Any) -> None:
        self.sent = list(state)

    def apply(self, version: Version, channels: Sequence[OutChannel]) -> None:
        super().apply(version, channels)
        self.sent = [0] * len(self.channels)

    def push(self, values: list[Any], kind: int, born_s: float) -> None:
        self._note_all(kind, born_s)
        count, sent = len(self.channels), self.sent
        for value in values:
            digest = stable_hash(value if self.key_of is None else self.key_of(value))
            first, second = digest % count, (digest >> 32) % count
            chosen = first if sent[first] <= sent[second] else second
            sent[chosen] += 1
            self.channels[chosen].pending.append(value)
        self._forget_empty()


class ByChoice(Router):
    """A function of the user's names the channel or channels."""

    def __init__(self, channels: Sequence[OutChannel], choose: Callable[[Any, int], int | Sequence[int]]) -> None:
        super().__init__(channels)
        self.choose = choose

    def push(self, values: list[Any], kind: int, born_s: float) -> None:
        self._note_all(kind, born_s)
        count = len(self.channels)
        for value in values:
            chosen = self.choose(value, count)
            for task in (chosen,) if isinstance(chosen, int) else chosen:
                if not 0 <= task < count:
                    raise RunError(f"the custom grouping chose task {task} of {count}")
                self.channels[task].pending.append(value)
        self._forget_empty()


class ByName(Router):
    """The emitting bolt names the task; values emitted without a name do not pass here."""

    def push(self, values: list[Any], kind: int, born_s: float) -> None:
        pass

    def push_direct(self, task: int, values: list[Any], kind: int, born_s: float) -> None:
        if not 0 <= task < len(self.channels):
            raise RunError(f"emit_direct named task {task} of {len(self.channels)}")
        channel = self.channels[task]
        channel.note(kind, born_s)
        channel.pending.extend(values)


class ByLoad(Router):
    """PSPS, algorithm 1 (`schedulers.balancing`): the replica with the least use; round robin once all are full.

    A version with measured figures starts the interval: `use` is what waits before each replica and `use_step` what one
    tuple adds. A version without them is a change of replicas: figures of before say nothing of after it, so that all
    start at 0 with the step known so far. Until a first interval has been measured all count as full: round robin.
    """

    def __init__(self, channels: Sequence[OutChannel]) -> None:
        super().__init__(channels)
        self.reset([0.0] * len(channels), 0.0)

    def state(self) -> Any:
        return [list(self.balancer.utilisations), self.balancer.step, self.balancer.turn]

    def restore(self, state: Any) -> None:
        self.balancer = LoadBalancer(state[0], state[1], state[2])

    def apply(self, version: Version, channels: Sequence[OutChannel]) -> None:
        super().apply(version, channels)
        self.reset(version.use or [0.0] * len(self.channels), version.use_step or self.balancer.step)

    def reset(self, use: Sequence[float], step: float) -> None:
        """Start an interval with these uses; `step` is senders x service time / interval, 0 while it is not known."""
        self.balancer = LoadBalancer(use if step else [1.0] * len(use), step)

    def push(self, values: list[Any], kind: int, born_s: float) -> None:
        self._note_all(kind, born_s)
        choose = self.balancer.choose
        for value in values:
            self.channels[choose()].pending.append(value)
        self._forget_empty()


def make_router(
    grouping: Grouping, channels: Sequence[OutChannel], near: Sequence[int] = (), first: Version | None = None
) -> Router:
    """The router of one out-edge of one task; `near` are the receivers that local-or-shuffle prefers.

    They are those that shared the sender's worker when the topology was first placed: a choice that followed the
    placement of the moment would come out differently after a recovery. `first` is the version to begin with, without
    which all channels take part.
    """
    first = first or Version.first(len(channels))
    if isinstance(grouping, groupings.Key):
        return ByKey(channels, grouping.of, first.spans)
    channels = [channels[task] for task in first.active]
    match grouping:
        case groupings.PartialKey(of):
            return ByPartialKey(channels, of)
        case groupings.All():
            return ToAll(channels)
        case groupings.Global():
            return Router(channels)
        case groupings.Direct():
            return ByName(channels)
        case groupings.Custom(choose):
            return ByChoice(channels, choose)
        case groupings.LoadBalanced():
            return ByLoad(channels)
        case groupings.LocalOrShuffle():
            return RoundRobin([channels[number] for number in near if number < len(channels)] or channels)
    return RoundRobin(channels)
