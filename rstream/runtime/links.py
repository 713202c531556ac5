"""Links as bytes: framing, Unix sockets for workers of one node, gRPC streams between nodes.

A connection belongs to one worker loop. `send` never blocks: what the other side does not take yet is kept. The
protocol's credits bound the tuples of that; `full` says when they are so large that no more should be sent for now, and
a connection with more than any protocol could want waiting is closed, with an error in the log: its link is dialled
again, and what was not received is sent again. What arrives is handed over as (header, body) and never unpickled.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import logging
import os
import queue
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from typing import Any, Protocol

import grpc

from rstream.clock import SystemClock
from rstream.config import LinkConfig
from rstream.core.messages import Frame
from rstream.errors import ProtocolError
from rstream.runtime.byte_cap import ByteCap
from rstream.runtime.death_watch import peer_pid

_LENGTHS = struct.Struct("<II")
_LOG = logging.getLogger(__name__)
FRAME_BYTES_MAX = 1 << 30
LINK_BYTES_FULL = 64 << 20
LINK_BYTES_MAX = 4 << 30
STALE_SOCKET_S = 60.0
_RECEIVE_BYTES = 1 << 18
LINK_METHOD = "/rstream.Link/Frames"
INGEST_METHOD = "/rstream.Ingest/Frames"
_GRPC_OPTIONS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


class Connection(Protocol):
    """One end of a link."""

    closed: bool

    @property
    def full(self) -> bool:
        """So much waits for the other side that tuples should stay where they are."""

    def send(self, frames: Iterable[Frame]) -> None:
        """Send, in order; never blocks."""

    def close(self) -> None:
        """End the connection."""


def pack(frames: Iterable[Frame]) -> list[bytes]:
    """The buffers of some frames, each preceded by the lengths of its header and body."""
    buffers: list[bytes] = []
    for frame in frames:
        buffers.append(_LENGTHS.pack(len(frame.header), len(frame.body)) + frame.header)
        if frame.body:
            buffers.append(frame.body)
    return buffers


class Unpacker:
    """Cuts a stream of bytes into frames again.

    >>> unpacker = Unpacker()
    >>> [piece] = pack([Frame(b"header")])
    >>> list(unpacker.feed(piece[:3])), list(unpacker.feed(piece[3:]))
    ([], [(b'header', b'')])
    """

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Add bytes; gives every frame that is complete now."""
        buffer = self._data
        buffer += data
        at = 0
        try:
            while len(buffer) - at >= _LENGTHS.size:
                header_bytes, body_bytes = _LENGTHS.unpack_from(buffer, at)
                if header_bytes + body_bytes > FRAME_BYTES_MAX:
                    raise ProtocolError(f"a frame of {header_bytes + body_bytes} bytes arrived: not a link of rstream")
                start = at + _LENGTHS.size
                end = start + header_bytes + body_bytes
                if len(buffer) < end:
                    break
                at = end
                yield bytes(buffer[start : start + header_bytes]), bytes(buffer[start + header_bytes : end])
        finally:
            del buffer[:at]


class SocketConnection:
    """A link over a Unix socket, driven by the loop's selector."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.socket = sock
        self.peer_pid = peer_pid(sock)
        self.closed = False
        self._out: collections.deque[memoryview] = collections.deque()
        self._waiting_bytes = 0
        self._unpacker = Unpacker()

    @property
    def full(self) -> bool:
        return self._waiting_bytes > LINK_BYTES_FULL

    @property
    def wants_write(self) -> bool:
        """Bytes wait for the socket to take them."""
        return bool(self._out)

    def send(self, frames: Iterable[Frame]) -> None:
        if self.closed:
            return
        buffers = pack(frames)
        self._waiting_bytes += sum(map(len, buffers))
        self._out.extend(map(memoryview, buffers))
        self.flush()
        _close_if_nothing_is_taken(self, self._waiting_bytes)

    def flush(self) -> None:
        """Give the socket what it takes now."""
        while self._out and not self.closed:
            try:
                sent = self.socket.sendmsg([*_first(self._out, 64)])
            except BlockingIOError:
                return
            except OSError:
                self.close()
                return
            self._waiting_bytes -= sent
            while sent:
                if sent >= len(self._out[0]):
                    sent -= len(self._out.popleft())
                else:
                    self._out[0] = self._out[0][sent:]
                    sent = 0

    def receive(self) -> list[tuple[bytes, bytes]]:
        """The frames that have arrived; closes when the other side has."""
        frames: list[tuple[bytes, bytes]] = []
        for _ in range(16):
            try:
                data = self.socket.recv(_RECEIVE_BYTES)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.close()
                break
            frames += self._unpacker.feed(data)
            if len(data) < _RECEIVE_BYTES:
                break
        return frames

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._out.clear()
            self._waiting_bytes = 0
            self.socket.close()


def _close_if_nothing_is_taken(connection: Connection, waiting_bytes: int) -> None:
    if waiting_bytes > LINK_BYTES_MAX and not connection.closed:
        _LOG.error("%d bytes wait for the other side of a link, which takes nothing: it is dialled anew", waiting_bytes)
        connection.close()


def _first(items: collections.deque[memoryview], count: int) -> Iterator[memoryview]:
    for index, item in enumerate(items):
        if index == count:
            return
        yield item


def listen_unix(path: str) -> socket.socket:
    """A listening Unix socket at `path`; its folder is readable by this user alone."""
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    remove_stale_sockets(folder)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(128)
    listener.setblocking(False)
    return listener


def remove_stale_sockets(folder: str) -> None:
    """Remove what killed workers could not: sockets past their first minute at which nobody listens."""
    for entry in os.scandir(folder):
        with contextlib.suppress(OSError):
            if SystemClock.now() - entry.stat().st_mtime < STALE_SOCKET_S:
                continue
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                probe.setblocking(False)
                if probe.connect_ex(entry.path) == errno.ECONNREFUSED:
                    os.unlink(entry.path)


def dial_unix(path: str) -> SocketConnection | None:
    """Connect to another worker of this node; None while it does not listen yet."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.connect(path)
    except OSError as error:
        sock.close()
        if error.errno in (errno.ENOENT, errno.ECONNREFUSED, errno.EAGAIN):
            return None
        raise
    return SocketConnection(sock)


def link_cap(bytes_per_s: float | None, here: str, there: str) -> ByteCap:
    """What bounds a link from one node to another: what the one sends, and what the other receives."""
    return ByteCap(bytes_per_s, [f"from {here}", f"to {there}"])


_END = None

Arrived = Callable[[Any, tuple[bytes, bytes] | None], None]
"""Called on gRPC's threads with a connection and a frame of it, None once it has ended."""


class GrpcConnection:
    """A link over a gRPC stream. gRPC's own threads carry the bytes; arrivals go to the loop by `arrived`."""

    def __init__(self, arrived: Arrived, cap: ByteCap | None = None) -> None:
        self.closed = False
        self.cap = cap or ByteCap(None)
        self._arrived = arrived
        self._out: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        # Two counters, because two threads count: the loop what it puts, gRPC's own what it takes.
        self._put_bytes = self._taken_bytes = 0
        self._unpacker = Unpacker()
        self._on_close: Callable[[], Any] | None = None

    @property
    def full(self) -> bool:
        return self._put_bytes - self._taken_bytes > LINK_BYTES_FULL

    def send(self, frames: Iterable[Frame]) -> None:
        buffers = pack(frames)
        if buffers and not self.closed:
            message = b"".join(buffers)
            self._put_bytes += len(message)
            self._out.put(message)
            _close_if_nothing_is_taken(self, self._put_bytes - self._taken_bytes)

    def outgoing(self) -> Iterator[bytes]:
        """What gRPC sends, until the connection ends."""
        while (message := self._out.get()) is not _END:
            self.cap.wait(len(message))
            self._taken_bytes += len(message)
            yield message

    def pump(self, incoming: Iterable[bytes]) -> None:
        """Hand every arriving frame to the loop; a last None says that the connection has ended."""
        try:
            for message in incoming:
                for frame in self._unpacker.feed(message):
                    self._arrived(self, frame)
        except (grpc.RpcError, ProtocolError):
            pass  # a lost stream is an end like any other: the link is dialled again
        finally:
            self.close()
            self._arrived(self, None)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._out.put(_END)
            if self._on_close is not None:
                self._on_close()


class GrpcListener:
    """Accepts links from workers of other nodes, and streams of senders where `ingest` takes them."""

    def __init__(
        self,
        host: str,
        accepted: Callable[[GrpcConnection], None],
        arrived: Arrived,
        credentials: grpc.ServerCredentials | None = None,
        ingest: Arrived | None = None,
    ) -> None:
        def handler(arrived: Arrived) -> grpc.RpcMethodHandler:
            def frames(incoming: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
                connection = GrpcConnection(arrived)
                context.add_callback(connection.close)
                accepted(connection)
                pumps.submit(connection.pump, incoming)
                yield from connection.outgoing()

            return grpc.stream_stream_rpc_method_handler(frames)

        handlers = [_generic(LINK_METHOD, handler(arrived))]
        if ingest is not None:
            handlers.append(_generic(INGEST_METHOD, handler(ingest)))
        pumps = futures.ThreadPoolExecutor(256, thread_name_prefix="rstream-grpc-in")
        self._pumps = pumps
        self._server = grpc.server(
            futures.ThreadPoolExecutor(256, thread_name_prefix="rstream-grpc"), options=_GRPC_OPTIONS
        )
        self._server.add_generic_rpc_handlers(handlers)
        address = f"{host}:0"
        port = (
            self._server.add_insecure_port(address)
            if credentials is None
            else self._server.add_secure_port(address, credentials)
        )
        self.endpoint = f"{host}:{port}"
        self._server.start()

    def close(self) -> None:
        """End all links and stop listening."""
        self._server.stop(grace=None)
        self._pumps.shutdown(wait=False, cancel_futures=True)


def _generic(path: str, handler: grpc.RpcMethodHandler) -> grpc.GenericRpcHandler:
    service, method = path.strip("/").split("/")
    return grpc.method_handlers_generic_handler(service, {method: handler})


def dial_grpc(
    endpoint: str,
    arrived: Arrived,
    start: Callable[[Callable[[], None]], None],
    credentials: grpc.ChannelCredentials | None = None,
    method: str = LINK_METHOD,
    cap: ByteCap | None = None,
) -> GrpcConnection:
    """Connect to a worker of another node, or as a sender; `start` runs the reading side on a thread, and the end.

    To close a channel waits until what is being written is out. To a machine that is cut off that is for ever, and the
    run loop must not wait for it.
    """
    channel = (
        grpc.insecure_channel(endpoint, options=_GRPC_OPTIONS)
        if credentials is None
        else grpc.secure_channel(endpoint, credentials, options=_GRPC_OPTIONS)
    )
    connection = GrpcConnection(arrived, cap)
    connection._on_close = lambda: start(channel.close)
    call = channel.stream_stream(method)(connection.outgoing())
    start(lambda: connection.pump(call))
    return connection


def start_daemon(call: Callable[[], None]) -> None:
    """Run the reading side of a connection on a thread of its own."""
    threading.Thread(target=call, name="rstream-grpc-out", daemon=True).start()


def server_credentials(links: LinkConfig) -> grpc.ServerCredentials | None:
    """What a worker shows to those who connect; None without TLS."""
    if links.tls_cert is None:
        return None
    ca = _read(links.tls_ca)
    return grpc.ssl_server_credentials([(_read(links.tls_key), _read(links.tls_cert))], ca, ca is not None)


def channel_credentials(links: LinkConfig) -> grpc.ChannelCredentials | None:
    """What one who connects checks and shows; None without TLS."""
    if links.tls_cert is None and links.tls_ca is None:
        return None
    return grpc.ssl_channel_credentials(_read(links.tls_ca), _read(links.tls_key), _read(links.tls_cert))


def _read(path: str | None) -> bytes | None:
    if path is None:
        return None
    with open(path, "rb") as file:
        return file.read()
