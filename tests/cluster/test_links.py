"""The links between workers keep the promises of a link: Unix sockets on a node, gRPC streams between nodes."""

from __future__ import annotations

import socket
import threading
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from rstream.testing import check_link
from rstream.testing.links import Arrived, LinkPair
from tests.deadline import wait_until

links: Any = pytest.importorskip("rstream.runtime.links")


def socket_pair() -> LinkPair:
    left, right = map(links.SocketConnection, socket.socketpair())
    return LinkPair(left, right, lambda: turn_sockets(left, right))


def turn_sockets(left: Any, right: Any) -> tuple[Arrived, Arrived]:
    arrived: list[Arrived] = []
    for end in (left, right):
        end.flush()
        arrived.append([] if end.closed else end.receive())
    return arrived[0], arrived[1]


def test_unix_sockets_keep_the_promises_of_a_link() -> None:
    check_link(socket_pair)


def test_a_unix_socket_is_dialled_once_somebody_listens(tmp_path: Path) -> None:
    path = str(tmp_path / "links" / "worker.sock")
    assert links.dial_unix(path) is None
    listener = links.listen_unix(path)
    dialled = links.dial_unix(path)
    accepted, _ = listener.accept()
    answering = links.SocketConnection(accepted)

    def make() -> LinkPair:
        return LinkPair(dialled, answering, lambda: turn_sockets(dialled, answering), listener.close)

    pair = make()
    pair.left.close()
    wait_until(lambda: pair.turn() and pair.right.closed, "the other end to see the end")
    listener.close()


def grpc_pair() -> LinkPair:
    inboxes: dict[int, deque[tuple[bytes, bytes]]] = {}
    accepted: list[Any] = []

    def arrived(connection: Any, frame: tuple[bytes, bytes] | None) -> None:
        if frame is not None:
            inboxes.setdefault(id(connection), deque()).append(frame)

    listener = links.GrpcListener("127.0.0.1", accepted.append, arrived)
    left = links.dial_grpc(listener.endpoint, arrived, lambda pump: threading.Thread(target=pump, daemon=True).start())
    right: Any = wait_until(lambda: accepted[:1], "the listener to accept the stream")[0]

    def taken(connection: Any) -> Arrived:
        inbox = inboxes.setdefault(id(connection), deque())
        return [inbox.popleft() for _ in range(len(inbox))]

    return LinkPair(left, right, lambda: (taken(left), taken(right)), listener.close)


def test_grpc_streams_keep_the_promises_of_a_link() -> None:
    check_link(grpc_pair)
