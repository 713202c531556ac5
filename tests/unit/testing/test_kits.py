"""The conformance kits accept what keeps the promises, and name the promise that a broken plug-in breaks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any

import pytest

from rstream import Bolt, Reader, Source, testing
from rstream.core.messages import Frame
from rstream.errors import ValueNotSupported
from rstream.operators import sinks, transforms
from rstream.operators.sources import FromFunction, FromIterable, Rate
from rstream.testing import check_link, check_operator, check_source
from rstream.testing.links import Arrived, LinkPair

# Sources.


def test_the_sources_of_the_engine_pass() -> None:
    check_source(lambda: FromIterable([("a", 1), None, "x"] * 20))
    check_source(lambda: FromIterable([]))
    check_source(lambda: FromFunction(lambda: range(57)))
    check_source(lambda: Rate(lambda n: n * n, per_s=1000.0, limit=40))
    check_source(lambda: Rate(lambda n: n, per_s=1e6), values_max=500)


class Lists(Source):
    """A source over one list, whose parts can be broken one at a time."""

    def __init__(self, **broken: Any) -> None:
        self.broken = broken

    def splits(self, parallelism: int) -> Sequence[str]:
        names: list[str] = self.broken.get("splits", ["0"])
        return names

    def reader(self, split: str, offset: Any) -> Reader:
        return ListReader(self.broken, offset or 0)


class ListReader(Reader):
    def __init__(self, broken: dict[str, Any], position: int) -> None:
        self.broken, self.items = broken, broken.get("items", list(range(20)))
        self.position = position + broken.get("skips", 0) * (position > 0)

    def read(self, limit: int) -> list[Any] | None:
        limit += self.broken.get("reads_more", 0)
        some: list[Any] = self.items[self.position : self.position + limit]
        self.position += len(some)
        if self.broken.get("never_ends"):
            return some
        return some or None

    @property
    def offset(self) -> Any:
        return self.broken.get("offset", self.position)


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        ({"splits": ["a", "a"]}, "no split is named twice"),
        ({"splits": [1]}, "splits are named by str"),
        ({"reads_more": 1}, "a read of up to 1 values gave 2"),
        ({"skips": 1}, "reading on from offset 1 gives the rest"),
        ({"offset": 0}, "reading on from offset 0 gives the rest"),
        ({"never_ends": True}, "gave nothing 1000 times in a row, after 20 values"),
    ],
)
def test_a_broken_source_is_told_which_promise_it_breaks(broken: dict[str, Any], promise: str) -> None:
    check_source(Lists)
    with pytest.raises(AssertionError, match=promise):
        check_source(lambda: Lists(**broken), patience=1000)


def test_a_source_whose_values_or_offsets_cannot_travel_is_told_the_type() -> None:
    with pytest.raises(ValueNotSupported, match=r"builtins\.object"):
        check_source(lambda: Lists(items=[object()]))
    with pytest.raises(ValueNotSupported, match=r"builtins\.range"):
        check_source(lambda: Lists(offset=range(3)))


def test_a_source_that_gives_other_values_each_time_is_not_replayable() -> None:
    numbers = count()
    with pytest.raises(AssertionError, match="at a time gives the same values"):
        check_source(lambda: FromIterable([next(numbers)]))


# Operators.


class Sum(Bolt):
    """The running sum of each key, in the keyed state."""

    def open(self, ctx: Any) -> None:
        self.sum = ctx.state.value("sum", default=0)

    def process(self, value: tuple[str, int], out: Any) -> None:
        self.sum.set(self.sum.get() + value[1])
        out.emit((value[0], self.sum.get()))
        if value[1] < 0:
            out.emit_to("negative", value)


class ForgetfulSum(Bolt):
    """The same in an attribute, which no snapshot has."""

    def __init__(self) -> None:
        self.sums: dict[str, int] = {}

    def process(self, value: tuple[str, int], out: Any) -> None:
        self.sums[value[0]] = self.sums.get(value[0], 0) + value[1]
        out.emit((value[0], self.sums[value[0]]))


class PerBatch(Bolt):
    """Its result depends on where batches are cut."""

    def process_batch(self, values: list[Any], out: Any) -> None:
        out.emit(len(values))


class Remembered(Bolt):
    """How many tuples came so far, kept by `snapshot` and `restore`."""

    def __init__(self, **broken: bool) -> None:
        self.broken, self.seen = broken, [0]

    def process(self, value: Any, out: Any) -> None:
        self.seen[0] += 1
        out.emit(self.seen[0])

    def snapshot(self) -> Any:
        return {"no snapshot": None, "no value": lambda: 1}.get(next(iter(self.broken), ""), self.seen)

    def restore(self, snapshot: Any) -> None:
        if "no restore" not in self.broken:
            self.seen = snapshot


class Ticking(Bolt):
    """Every second how many tuples came so far."""

    def __init__(self, forgets: bool = False) -> None:
        self.forgets, self.seen = forgets, 0

    def process(self, value: Any, out: Any) -> None:
        self.seen += 1

    def on_tick(self, out: Any) -> None:
        out.emit(self.seen)

    def snapshot(self) -> Any:
        return None if self.forgets else self.seen

    def restore(self, snapshot: Any) -> None:
        self.seen = snapshot


class Alarm(Bolt):
    """Each key a while after its first value: by the clock, or by event time."""

    def __init__(self, after_s: float, forgets: bool = False, event_time: bool = False) -> None:
        self.after_s, self.forgets, self.event_time = after_s, forgets, event_time
        self.attribute: set[str] = set()

    def open(self, ctx: Any) -> None:
        self.ctx, self.seen = ctx, ctx.state.value("seen", default=False)

    def process(self, value: Any, out: Any) -> None:
        key = self.ctx.state.current
        if key in self.attribute if self.forgets else self.seen.get():
            return
        self.attribute.add(key)
        self.seen.set(True)
        if self.event_time:
            self.ctx.set_event_timer(self.after_s, "alarm")
        else:
            self.ctx.set_timer(self.ctx.now() + self.after_s, "alarm")

    def on_timer(self, name: str, out: Any) -> None:
        out.emit((name, self.ctx.state.current))

    def on_event_timer(self, at_s: float, name: str, out: Any) -> None:
        out.emit((at_s, name, self.ctx.state.current))


PAIRS = [("a", 1), ("b", 2), ("a", -3), ("c", 4), ("a", 5), ("b", 6), ("a", 7), ("b", -1), ("d", 0)]


def first(pair: tuple[str, int]) -> str:
    return pair[0]


def test_the_operators_of_the_engine_pass() -> None:
    check_operator(Sum, PAIRS, key=first, outputs=["negative"])
    check_operator(transforms.Count, ["a", "b", "a", "c"], keyed=True)
    check_operator(lambda: transforms.Reduce(lambda a, b: (a[0], a[1] + b[1])), PAIRS, key=first)
    check_operator(lambda: transforms.Map(str), range(10))
    check_operator(lambda: transforms.FlatMap(range), range(10))
    check_operator(lambda: transforms.Filter(lambda n: n % 2), range(10))
    check_operator(lambda: transforms.Branch(lambda n: n % 2), range(10), outputs=["otherwise"])
    check_operator(sinks.Collect, range(10))
    check_operator(sinks.Latest, PAIRS)


def test_what_a_bolt_keeps_by_snapshot_ticks_and_timers_passes() -> None:
    check_operator(Remembered, "abcdefg")
    check_operator(Ticking, "abcdefg")
    for after_s in (0.0, 1.2, 60.0):
        check_operator(lambda after_s=after_s: Alarm(after_s), PAIRS, key=first)  # type: ignore[misc]
    check_operator(lambda: Alarm(60.0, event_time=True), PAIRS, key=first)


@pytest.mark.parametrize(
    ("make", "promise"),
    [
        (ForgetfulSum, "the output after a recovery at tuple"),
        (PerBatch, "batches of 1 give the same output"),
        (lambda: Remembered(**{"no snapshot": True}), "the output after a recovery at tuple 1"),
        (lambda: Remembered(**{"no restore": True}), "the output after a recovery at tuple 1"),
        (lambda: Ticking(forgets=True), "the output after a recovery at 1 s"),
        (lambda: Alarm(0.2, forgets=True), "the output after a recovery at 1 s"),
        (lambda: Sum(), "emitted to output 'negative', which is not declared"),
    ],
)
def test_a_broken_operator_is_told_which_promise_it_breaks(make: Callable[[], Bolt], promise: str) -> None:
    with pytest.raises(AssertionError, match=promise):
        check_operator(make, PAIRS, key=first)


def test_an_operator_that_is_not_deterministic_is_told_so() -> None:
    numbers = count()
    with pytest.raises(AssertionError, match="the same input gives the same output"):
        check_operator(lambda: transforms.Map(lambda value: (value, next(numbers))), ["a"])


def test_an_operator_whose_snapshot_cannot_travel_is_told_the_type() -> None:
    with pytest.raises(ValueNotSupported, match=r"builtins\.function"):
        check_operator(lambda: Remembered(**{"no value": True}), "abc")


def test_ticks_that_are_not_deterministic_are_found_out() -> None:
    class Counts(Bolt):
        def process(self, value: Any, out: Any) -> None: ...

        def on_tick(self, out: Any) -> None:
            out.emit(next(numbers))

    numbers = count()
    with pytest.raises(AssertionError, match="the same input at the same times gives the same output"):
        check_operator(Counts, "abc")


def test_every_kit_is_exported() -> None:
    assert set(testing.__all__) == {*testing._HOME}
    assert all(callable(getattr(testing, name)) for name in testing.__all__)


def test_an_operator_whose_output_cannot_travel_is_told_the_type() -> None:
    with pytest.raises(ValueNotSupported, match=r"builtins\.type"):
        check_operator(lambda: transforms.Map(lambda value: int), ["a"])


# Links.


class MemoryEnd:
    """One end of a link in memory."""

    def __init__(self) -> None:
        self.closed = False
        self.inbox: deque[tuple[bytes, bytes]] = deque()
        self.other: MemoryEnd = self

    def send(self, frames: Iterable[Frame]) -> None:
        if not self.closed:
            self.other.inbox.extend((frame.header, frame.body) for frame in frames)

    def close(self) -> None:
        self.closed = self.other.closed = True


class Deaf(MemoryEnd):
    def close(self) -> None:
        self.closed = True


class Reordering(MemoryEnd):
    def send(self, frames: Iterable[Frame]) -> None:
        super().send(reversed(list(frames)))


class Lossy(MemoryEnd):
    def send(self, frames: Iterable[Frame]) -> None:
        super().send(frame for frame in frames if frame.body)


class Doubling(MemoryEnd):
    def send(self, frames: Iterable[Frame]) -> None:
        super().send(frame for frame in frames for _ in range(2))


class LateSender(MemoryEnd):
    def send(self, frames: Iterable[Frame]) -> None:
        self.other.inbox.extend((frame.header, frame.body) for frame in frames)


def pair_of(cls: type[MemoryEnd]) -> Callable[[], LinkPair]:
    def make() -> LinkPair:
        left, right = cls(), cls()
        left.other, right.other = right, left

        def turn() -> tuple[Arrived, Arrived]:
            arrived = list(left.inbox), list(right.inbox)
            left.inbox.clear()
            right.inbox.clear()
            return arrived

        return LinkPair(left, right, turn)

    return make


def test_a_link_in_memory_passes() -> None:
    check_link(pair_of(MemoryEnd))


@pytest.mark.parametrize(
    ("cls", "promise"),
    [
        (Reordering, "frame 0 left to right arrived changed"),
        (Lossy, "for all frames to arrive"),
        (Doubling, "503 frames were sent left to right, 1006 arrived"),
        (Deaf, "for the other end to see that the link is closed"),
        (LateSender, "a frame arrived that was sent after the end"),
    ],
)
def test_a_broken_link_is_told_which_promise_it_breaks(
    cls: type[MemoryEnd], promise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rstream.testing.links.sleep", lambda seconds: None)
    with pytest.raises(AssertionError, match=promise):
        check_link(pair_of(cls), timeout_s=0.02)
