"""Queues between threads have a maximum: who can wait waits, who cannot is told, and nothing is lost."""

from __future__ import annotations

import logging
import queue
import socket
import threading
from collections.abc import Callable

import pytest

from rstream.core.messages import Frame
from rstream.runtime import links
from rstream.runtime.bounded import Arrivals


def bring(arrivals: Arrivals[int]) -> threading.Thread:
    """A thread that puts a hundred numbers."""

    def run() -> None:
        for number in range(100):
            arrivals.put(number)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_who_brings_more_than_there_is_room_for_waits_until_something_is_taken() -> None:
    arrivals: Arrivals[int] = Arrivals(items_max=3)
    bringing = bring(arrivals)
    assert [arrivals.get(timeout_s=60.0) for _ in range(100)] == list(range(100))
    bringing.join()
    with pytest.raises(queue.Empty):
        arrivals.get()


def test_nobody_waits_for_ever_for_a_taker_that_is_gone() -> None:
    arrivals: Arrivals[int] = Arrivals(items_max=1)
    bringing = bring(arrivals)
    assert arrivals.get(timeout_s=60.0) == 0
    arrivals.close()
    bringing.join(60)
    assert not bringing.is_alive()


def over_a_socket() -> tuple[links.SocketConnection, Callable[[], object]]:
    left, right = map(links.SocketConnection, socket.socketpair())

    def take() -> None:
        right.receive()
        left.flush()

    return left, take


def over_grpc() -> tuple[links.GrpcConnection, Callable[[], object]]:
    connection = links.GrpcConnection(lambda *_: None)
    outgoing = connection.outgoing()
    # What was taken is on its way once gRPC asks for more.
    connection.send([Frame(b"first")])
    next(outgoing)
    return connection, lambda: next(outgoing)


@pytest.mark.parametrize("make", [over_a_socket, over_grpc])
def test_a_link_says_that_it_is_full_until_the_other_side_takes_something(
    make: Callable[[], tuple[links.Connection, Callable[[], object]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "LINK_BYTES_FULL", 1 << 20)
    connection, take = make()
    assert not connection.full
    for _ in range(8):
        connection.send([Frame(b"header", bytes(1 << 18))])
    assert connection.full
    for _ in range(7):
        take()
    assert not connection.full
    assert not connection.closed
    connection.close()


@pytest.mark.parametrize("make", [over_a_socket, over_grpc])
def test_a_link_whose_other_side_takes_nothing_is_closed_with_an_error(
    make: Callable[[], tuple[links.Connection, Callable[[], object]]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(links, "LINK_BYTES_MAX", 4 << 20)
    connection, take = make()
    with caplog.at_level(logging.ERROR):
        for _ in range(20):
            connection.send([Frame(b"header", bytes(1 << 18))])
    assert connection.closed
    assert "takes nothing: it is dialled anew" in caplog.text
    del take
