"""The links between workers keep the promises of a link: Unix sockets on a node, gRPC streams between nodes."""

from __future__ import annotations

import socket
import threading
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from rstream import Topology
from rstream.config import LinkConfig
from rstream.core.messages import Frame, Greet, frame
from rstream.testing import check_link
from rstream.testing.links import Arrived, LinkPair
from tests.behaviour.test_ingest import certificate
from tests.cluster.loops import workers
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


NODES = {"unix sockets": ["here", "here"], "gRPC": ["here", "there"]}


def crossing() -> Topology:
    """Half of all numbers go to the other worker."""
    topology = Topology("crossing")
    numbers = topology.source("numbers", range(2_000), parallelism=2)
    numbers.key_by("number").map("double", _double, parallelism=2).sink("out", parallelism=2)
    return topology


def _double(number: int) -> int:
    return number * 2


@pytest.mark.parametrize("nodes", NODES.values(), ids=NODES)
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_two_workers_reach_each_other(tmp_path: Path, nodes: list[str], tls: bool) -> None:
    secured = LinkConfig(**certificate(tmp_path)) if tls else LinkConfig()
    with workers(crossing(), tmp_path, nodes, links=secured) as found:
        found.begin()
        wait_until(lambda: found.finished or found.failures, "both to have ended", timeout_s=60)
        assert found.failures == []
        assert sorted(found.results()) == [2 * number for number in range(2_000)]


@pytest.mark.parametrize("nodes", NODES.values(), ids=NODES)
def test_a_worker_with_a_wrong_token_is_hung_up_on_and_brings_nothing(tmp_path: Path, nodes: list[str]) -> None:
    with workers(crossing(), tmp_path, nodes, tokens=["right", "wrong"]) as found:
        found.begin()
        wait_until(lambda: found.failures or all(loop.lost >= 3 for loop in found.loops), "refusals", timeout_s=60)
        assert found.failures == []
        sessions = [link.session for machine in found.machines for link in machine.out_links.values()]
        assert sessions == [None, None]
        assert not found.finished
        assert len(found.results()) < 2_000, "only what stayed on its worker"


def test_strangers_that_knock_before_there_are_tasks_and_after_are_hung_up_on(tmp_path: Path) -> None:
    with workers(crossing(), tmp_path, ["here", "here"]) as found:
        loop = found.loops[0]

        def knocks() -> Any:
            stranger = links.dial_unix(loop._socket_path)
            stranger.send([frame(Greet("crossing/w1", 0, "a wrong token"))])
            return stranger

        def hung_up(stranger: Any) -> bool:
            return bool(stranger.receive() or stranger.closed)

        early = [knocks() for _ in range(5)]
        wait_until(lambda: len(loop._early) == 5, "the greetings")
        found.begin()  # the worker's own sockets now get the numbers of those that it hangs up on
        wait_until(lambda: all(map(hung_up, early)), "the early ones to be hung up on")
        late = knocks()
        wait_until(lambda: hung_up(late), "a late one too")
        wait_until(lambda: found.finished or found.failures, "the workers to have ended", timeout_s=60)
        assert found.failures == []


def test_a_stream_without_certificates_does_not_get_in_where_there_are_some(tmp_path: Path) -> None:
    secured = LinkConfig(**certificate(tmp_path))
    heard: list[Any] = []
    listener = links.GrpcListener("127.0.0.1", heard.append, lambda *_: None, links.server_credentials(secured))
    try:
        dialled = links.dial_grpc(listener.endpoint, lambda *_: None, links.start_daemon)
        dialled.send([Frame(b"let me in")])
        wait_until(lambda: dialled.closed, "the stream to be refused")
        assert heard == []
    finally:
        listener.close()
