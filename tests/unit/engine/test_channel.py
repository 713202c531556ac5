"""Channels and links as machines: numbering, retained output, fencing by incarnation and session."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from rstream import Topology
from rstream.clock import ManualClock
from rstream.config import Config
from rstream.core import messages
from rstream.core.channel import CONTROL, END_OF_STREAM, Batch, ChannelId, InChannel, OutChannel, TaskId
from rstream.core.deployment import WorkerAddress
from rstream.core.histogram import Histogram
from rstream.core.messages import (
    Ack,
    Data,
    FragmentEnd,
    FragmentHeld,
    FragmentPiece,
    Greet,
    Hello,
    Order,
    Pull,
    Pulled,
    Safe,
)
from rstream.core.placement import deploy
from rstream.core.restoring import Piece
from rstream.core.router import ByLoad, ByPartialKey, RoundRobin, make_router
from rstream.core.versions import Version
from rstream.errors import OperatorError, ProtocolError, StateLost
from rstream.groupings import Global, Key, LoadBalanced, LocalOrShuffle, PartialKey, Shuffle
from rstream.keys import KeyRanges, slot_of
from rstream.runtime.embedded import Embedded
from rstream.values import FLAT, GENERAL, PLAIN, kind_of

ID = ChannelId(0, 0, 0)


def filled(local: bool, *batches: list[Any]) -> OutChannel:
    channel = OutChannel(ID, local)
    for values in batches:
        channel.note(kind_of(values), 1.0)
        channel.pending.extend(values)
        channel.seal()
    return channel


# The sending end.


@pytest.mark.parametrize("local", [True, False])
def test_elements_are_numbered_and_retained_until_they_are_covered(local: bool) -> None:
    channel = filled(local, ["a", "b"], ["c"], ["d", "e"])
    assert [(batch.first, batch.count) for batch in channel.log] == [(0, 2), (2, 1), (3, 2)]
    assert (channel.base, channel.ack, channel.next, channel.outstanding) == (0, 0, 5, 5)
    channel.acknowledge(consumed=4, covered=3)
    assert [batch.first for batch in channel.log] == [3]
    assert (channel.base, channel.ack, channel.outstanding) == (3, 4, 1)
    channel.acknowledge(consumed=5, covered=5)
    assert not channel.log
    assert channel.bytes_retained == 0


def test_what_a_replay_makes_anew_is_not_retained_where_the_receiver_covered_it_before() -> None:
    channel = OutChannel(ID, False)
    channel.replaying = True
    channel.acknowledge(consumed=4, covered=3)
    for values in (["a", "b"], ["c"], ["d", "e"]):
        channel.note(kind_of(values), 1.0)
        channel.pending.extend(values)
        channel.seal()
    assert [batch.first for batch in channel.log] == [3]
    assert (channel.base, channel.next) == (3, 5)
    assert channel.bytes_retained == channel.log[0].size_bytes


def test_an_older_acknowledgement_changes_nothing() -> None:
    channel = filled(True, ["a", "b"], ["c"])
    channel.acknowledge(3, 3)
    channel.acknowledge(1, 0)
    assert (channel.base, channel.ack) == (3, 3)


@pytest.mark.parametrize(("consumed", "covered"), [(3, 0), (1, 2)])
def test_an_acknowledgement_of_what_was_never_sent_is_a_contradiction(consumed: int, covered: int) -> None:
    with pytest.raises(ProtocolError, match="acknowledged"):
        filled(True, ["a", "b"]).acknowledge(consumed, covered)


@pytest.mark.parametrize(
    ("batches", "kind"),
    [([["a"], [1]], PLAIN), ([[("a",)], [("b", 1)]], FLAT), ([["a"], [("b",)]], GENERAL), ([[["a"]]], GENERAL)],
)
def test_values_of_several_steps_become_one_batch_of_the_kind_that_fits_all(batches: list[Any], kind: int) -> None:
    channel = OutChannel(ID, local=False)
    for age, values in enumerate(batches):
        channel.note(kind_of(values), 9.0 - age)
        channel.pending.extend(values)
    batch = channel.seal()
    assert batch is not None
    assert batch.kind == kind
    assert batch.born_s == 10.0 - len(batches)  # the oldest counts
    assert batch.take() == [value for values in batches for value in values]
    assert channel.seal() is None


def test_the_end_is_an_element_of_its_own() -> None:
    channel = filled(True, ["a"])
    channel.end(2.0)
    [end] = channel.take_sealed()
    assert (end.first, end.count, end.kind, end.body, channel.next) == (1, 1, CONTROL, END_OF_STREAM, 2)


def test_a_control_element_stands_after_all_that_was_emitted_before_it() -> None:
    channel = OutChannel(ID, local=True)
    channel.note(0, 1.0)
    channel.pending.append("a")
    channel.control(b"now", 2.0)
    assert [(batch.first, batch.kind) for batch in channel.take_sealed()] == [(0, 0), (1, CONTROL)]
    assert channel.take_sealed() == []


def test_the_age_of_the_oldest_unconsumed_element_is_known() -> None:
    channel = filled(True, ["a"], ["b"])
    assert channel.oldest_born_s() == 1.0
    channel.acknowledge(2, 2)
    assert channel.oldest_born_s() is None


# The receiving end.


def batch(first: int, *values: Any) -> Batch:
    return Batch(first, len(values), kind_of(list(values)), list(values), None, 1.0)


def test_what_is_known_already_is_dropped_by_offset() -> None:
    channel = InChannel(ID, local=True)
    assert channel.receive(batch(0, "a", "b"))
    assert not channel.receive(batch(0, "a", "b"))
    assert channel.receive(batch(1, "b", "c"))
    taken = channel.consume(10)
    assert taken is not None
    assert taken[0] == ["a", "b", "c"]
    assert channel.recv == 3


def test_a_gap_is_a_contradiction() -> None:
    channel = InChannel(ID, local=True)
    with pytest.raises(ProtocolError, match="element 1 came, 0 was to come next"):
        channel.receive(batch(1, "b"))


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 100])
def test_batches_are_cut_and_joined_to_what_a_step_takes(limit: int) -> None:
    channel = InChannel(ID, local=True)
    for first in range(0, 9, 3):
        channel.receive(batch(first, first, first + 1, first + 2))
    channel.receive(Batch(9, 1, CONTROL, None, END_OF_STREAM, 1.0))
    came: list[int] = []
    while (taken := channel.consume(limit)) is not None:
        assert 1 <= len(taken[0]) <= limit
        came += taken[0]
        channel.cons += len(taken[0])
        channel.validate()
    assert came == list(range(9))
    assert channel.consume_control() == END_OF_STREAM


def test_a_receiver_may_change_the_batch_that_the_sender_retains() -> None:
    for values in (["a", "b"], [["a"], ["b"]]):
        out = filled(True, values)
        channel = InChannel(ID, local=True)
        channel.receive(out.log[0])
        taken = channel.consume(10)
        assert taken is not None
        taken[0].clear()
        assert out.log[0].take() == values


# Routers.


def channels(local: str = "11") -> list[OutChannel]:
    return [OutChannel(ChannelId(0, 0, number), mark == "1") for number, mark in enumerate(local)]


def push(router: Any, *values: Any) -> list[list[Any]]:
    router.push(list(values), kind_of(list(values)), 0.0)
    return [channel.pending for channel in router.channels]


def test_round_robin_goes_on_where_it_was() -> None:
    router = make_router(Shuffle(), channels("000"))
    assert isinstance(router, RoundRobin)
    for _ in range(2):
        push(router, 1, 2, 3, 4, 5)
    assert sorted(len(channel.pending) for channel in router.channels) == [3, 3, 4]


def test_local_or_shuffle_stays_on_its_worker_where_it_can() -> None:
    router = make_router(LocalOrShuffle(), channels("0101"), near=[1, 3])
    assert [channel.id.target for channel in router.channels] == [1, 3]
    assert len(make_router(LocalOrShuffle(), channels("000")).channels) == 3


def test_equal_keys_follow_the_ranges() -> None:
    router = make_router(Key(), channels("1111"))
    pending = push(router, *range(100))
    for number, values in enumerate(pending):
        assert values == [n for n in range(100) if KeyRanges.even(4).owner(slot_of(n)) == number]


def test_a_router_forgets_routes_before_they_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rstream.core.router.ROUTE_CACHE_MAX", 10)
    router: Any = make_router(Key(), channels("11"))
    push(router, *range(1000))
    assert len(router._routes) <= 10
    assert sum(len(channel.pending) for channel in router.channels) == 1000


def test_a_partial_key_takes_the_channel_that_got_less() -> None:
    router = make_router(PartialKey(), channels("1111"))
    assert isinstance(router, ByPartialKey)
    used = [len(pending) for pending in push(router, *["hot"] * 100)]
    assert sorted(used) in ([0, 0, 50, 50], [0, 0, 0, 100])


def test_the_load_balanced_router_fills_the_least_used_and_then_goes_round() -> None:
    router = make_router(LoadBalanced(), channels("111"))
    assert isinstance(router, ByLoad)
    assert [len(pending) for pending in push(router, *range(6))] == [2, 2, 2]  # nothing is known yet
    for channel in router.channels:
        channel.pending.clear()
    router.reset([0.5, 0.2, 0.9], step=0.1)
    assert [len(pending) for pending in push(router, *range(3))] == [0, 3, 0]
    router.reset([1.0, 1.0, 1.0], step=0.1)
    for channel in router.channels:
        channel.pending.clear()
    assert [len(pending) for pending in push(router, *range(6))] == [2, 2, 2]


def test_the_load_balanced_router_goes_on_balancing_after_its_replicas_changed() -> None:
    all_four = channels("1111")
    router = make_router(LoadBalanced(), all_four, first=Version.first(2, of=4))
    assert isinstance(router, ByLoad)
    router.apply(Version.first(2, of=4).weighed([0.5, 0.2], 0.1), all_four)
    assert [len(pending) for pending in push(router, *range(3))] == [0, 3]
    grown = Version.first(2, of=4).shared_by([0, 1, 2], 1)
    router.apply(grown, all_four)
    assert router.state() == [[0.0, 0.0, 0.0], 0.1, 0]  # no backlog is known of the new one; the step still is
    push(router, *range(7))
    assert router.state()[0] == pytest.approx([0.3, 0.2, 0.2])
    again = make_router(LoadBalanced(), all_four, first=grown)
    again.restore(router.state())
    assert again.state() == router.state()
    again.apply(grown.weighed([0.3, 0.0, 0.3], 0.1), all_four)
    assert again.state()[0] == [0.3, 0.0, 0.3]


def test_channels_that_got_nothing_remember_no_kind() -> None:
    for grouping in (Key(), Global(), Shuffle()):
        router = make_router(grouping, channels("1111"))
        push(router, "x")
        assert [channel.pending_kind >= 0 for channel in router.channels] == [
            bool(channel.pending) for channel in router.channels
        ]


# Links: sessions and incarnations.


def two_workers() -> Embedded:
    topology = Topology("links")
    topology.source("numbers", range(50)).grouped(Shuffle()).sink("out", parallelism=2)
    host = Embedded(topology.build(), Config(), workers=2, clock=ManualClock())
    host.start()
    return host


def test_frames_of_another_session_or_an_older_incarnation_are_refused() -> None:
    host = two_workers()
    sender, receiver = host.machines["links/w0"], host.machines["links/w1"]
    session = receiver.in_links["links/w0"].session
    assert session is not None
    channel = next(iter(receiver.in_links["links/w0"].channels))

    def data(incarnation: int, session: int) -> None:
        receiver.on_data("links/w0", Data(incarnation, session, channel, 0, 1, PLAIN, 0.0), b"\xa1x")

    data(0, session + 1)
    assert receiver.in_links["links/w0"].channels[channel][0].recv == 0
    data(0, session)
    assert receiver.in_links["links/w0"].channels[channel][0].recv == 1
    assert receiver.on_greet(Greet("links/w0", 0, ""))
    session = receiver.in_links["links/w0"].session
    assert session is not None
    data(4, session)  # a process that the tables do not name: it is still alive behind a partition
    assert receiver.in_links["links/w0"].channels[channel][0].recv == 1
    assert not receiver.on_greet(Greet("links/w0", 4, ""))
    sender.on_ack("links/w1", Ack(0, 999, [(channel, 1, 1)]))
    assert sender.out_links["links/w1"].channels[channel].ack == 0
    host.close()


def test_a_receiver_that_wants_what_was_let_go_is_a_contradiction() -> None:
    host = two_workers()
    for _ in range(20):
        host.turn()
    sender = host.machines["links/w0"]
    [channel] = sender.out_links["links/w1"].channels
    assert sender.out_links["links/w1"].channels[channel].base > 0
    with pytest.raises(StateLost, match="are gone"):
        sender.on_hello("links/w1", Hello(0, 77, [(channel, 0, 0, 0, 0, 0)], []))
    host.close()


@pytest.mark.parametrize(
    "message",
    [
        Greet("w", 3, "token"),
        Hello(1, 2, [(ChannelId(1, 2, 3), 4, 5, 6, 7, 8)], [(TaskId("count", 1), 9)]),
        Data(1, 2, ChannelId(0, 1, 2), 3, 4, FLAT, 5.5),
        Ack(1, 2, [(ChannelId(1, 2, 3), 4, 5)]),
        Order(1, 2, [(TaskId("count", 1), 7, [(0, 1, 2, 3, 4.5)], 6)]),
        FragmentPiece(1, 2, TaskId("count", 1), (0, 4), (0, 3), (0, 1), 5, 2, 1, "code", 7),
        FragmentEnd(1, 2, TaskId("count", 1), (0, 4), 5, 99, 1000, 1 << 63),
        FragmentHeld(1, 2, TaskId("count", 1), (0, 4), 5, 6, True),
        Safe(1, 2, TaskId("count", 1), (0, 4), (0, 1)),
        Pull(1, TaskId("count", 1), (0, 4), 5, 0, 8),
        Pulled(1, TaskId("count", 1), (0, 4), Piece(5, 0, 3, None, None, 2, 1, 1000, "code", 1 << 63)),
    ],
)
def test_messages_arrive_as_they_were_sent(message: Any) -> None:
    came = messages.decode(messages.encode(message))
    assert came == message
    assert type(came) is type(message)


# Placement and measuring.


def test_tasks_are_placed_side_by_side_and_tiers_follow() -> None:
    topology = Topology("place")
    topology.source("s", range(9), parallelism=2).map("m", abs, parallelism=4).sink("o")
    workers = {"w0": WorkerAddress("w0", "n0"), "w1": WorkerAddress("w1", "n0"), "w2": WorkerAddress("w2", "n1")}
    deployment = deploy(topology.build(), list(workers)).with_workers(workers)
    assert deployment.tasks_of("w0") == [TaskId("s", 0), TaskId("m", 0), TaskId("m", 3), TaskId("o", 0)]
    assert deployment.tier(TaskId("s", 0), TaskId("m", 3)) == "thread"
    assert deployment.tier(TaskId("s", 0), TaskId("m", 1)) == "process"
    assert deployment.tier(TaskId("s", 0), TaskId("m", 2)) == "node"
    assert deployment.splits_of(TaskId("s", 1)) == ["1/2"]
    assert str(TaskId("m", 3)) == "m#3"


def test_a_histogram_tells_quantiles_within_its_width() -> None:
    latencies = Histogram()
    assert latencies.quantile(0.5) is None
    for ms in range(1, 1001):
        latencies.add(ms / 1000)
    for share in (0.1, 0.5, 0.9, 0.99):
        assert latencies.quantile(share) == pytest.approx(share, rel=0.06)
    other = Histogram(latencies.counts)
    other.merge(latencies.counts)
    assert sum(other.counts) == 2000
    other.add(1e9)
    other.add(0.0)
    assert other.counts[-1] == other.counts[0] == 1


def test_an_operator_error_survives_pickling_with_all_it_carries() -> None:
    error = OperatorError("ValueError: x", step="s", task=2, node="n1", traceback="tb", value="v")
    came = pickle.loads(pickle.dumps(error))
    assert (str(came), came.step, came.task, came.node, came.traceback, came.value) == (
        "step 's', task 2, node n1: ValueError: x",
        "s",
        2,
        "n1",
        "tb",
        "v",
    )
    assert str(OperatorError("x", step="s", task=0, node="", traceback="")) == "step 's', task 0: x"
