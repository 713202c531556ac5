"""The run loop: the one data thread of a worker process. It drives the worker machine and its links.

Other threads (control calls, gRPC, blocking operators) reach it only through `post`, which wakes it.
"""

from __future__ import annotations

import collections
import contextlib
import gc
import logging
import os
import select
import selectors
import socket
import sys
import threading
import traceback
from collections.abc import Callable

from rstream.clock import SystemClock, sleep
from rstream.config import LinkConfig
from rstream.core import messages
from rstream.core.bolt_task import BoltTask
from rstream.core.intake import Intake
from rstream.core.live_changes import Progress
from rstream.core.messages import Frame, Greet
from rstream.core.worker import WorkerMachine
from rstream.core.worker_checkpoints import Reading, Saving
from rstream.errors import OperatorError, RStreamError, RunError
from rstream.runtime.death_watch import DeathWatch
from rstream.runtime.embedded import start_thread
from rstream.runtime.ingest_door import IngestDoor
from rstream.runtime.links import (
    Connection,
    GrpcConnection,
    GrpcListener,
    SocketConnection,
    channel_credentials,
    dial_grpc,
    dial_unix,
    link_cap,
    listen_unix,
    server_credentials,
    start_daemon,
)

_LOG = logging.getLogger(__name__)
IDLE_MAX_S = 0.5
REDIAL_S = 0.05
GC_THRESHOLDS = (50_000, 20, 20)
"""A worker makes and drops millions of tuples that are in no cycle. With Python's own thresholds the collector walks
those in flight again and again, and with them everything that Ray and the user have loaded."""
SWITCH_INTERVAL_S = 0.0005
"""So long another thread of a worker (Ray's, control calls, reports) keeps the interpreter lock from the loop at most.
With Python's own 5 ms a report a second would show in the latency's p99."""
INBOX_MAX = 100_000
"""So many calls wait for the loop at most. From half of that on, what comes over the wire waits in gRPC."""
EARLY_MAX = 10_000
COARSE_WAIT_S = 0.1
"""From here on a millisecond does not matter."""
FD_SETSIZE = 1024
"""What `select` takes at most; a worker's selector is among its first files."""


class WorkerLoop(threading.Thread):
    """Runs one worker machine; `failed` is called once with the error that stopped it."""

    def __init__(
        self,
        socket_path: str,
        host: str,
        node: str,
        token: str,
        links: LinkConfig,
        failed: Callable[[RStreamError], None],
        finished: Callable[[], None],
        progressed: Callable[[Progress], None],
        checkpoints: Callable[[list[Saving] | list[Reading]], None],
        dead: Callable[[str], None],
    ) -> None:
        super().__init__(name="rstream-loop", daemon=True)
        self.node, self.token = node, token
        self.machine: WorkerMachine | None = None
        self.running = False
        self.beat_s = 0.0
        self._failed, self._finished, self._progressed = failed, finished, progressed
        self._checkpoints = checkpoints
        self._deaths = DeathWatch(dead)
        self._clock = SystemClock()
        self._links = links
        self._inbox: collections.deque[Callable[[], None]] = collections.deque()
        self._selector = selectors.EpollSelector()
        self._selector_fd = self._selector.fileno()
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self._asleep = False
        self._waited_s = 0.0
        self._stopping = False
        self.has_finished = False
        self._socket_path = socket_path
        self._listener = listen_unix(socket_path)
        self._door: IngestDoor | None = None
        """Where senders knock, once there is a machine for them."""
        self._grpc = GrpcListener(
            host, lambda _: None, self._grpc_arrived, server_credentials(links), self._sender_arrived
        )
        self.endpoint = self._grpc.endpoint
        self._out: dict[str, Connection] = {}
        self._full: set[str] = set()
        """Workers that take what they are sent more slowly than it is made: their tuples stay in the channels."""
        self._in: dict[str, Connection] = {}
        self._peer: dict[int, tuple[str, bool]] = {}
        self._next_dial_s = 0.0
        self._early: list[tuple[Connection, tuple[bytes, bytes]]] = []
        """Greetings of workers that were quicker than our own deployment."""
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        self._selector.register(self._listener, selectors.EVENT_READ, None)

    # From other threads.

    def post(self, call: Callable[[], None]) -> None:
        """Run something on the loop, soon."""
        if len(self._inbox) >= INBOX_MAX:
            raise RunError(f"node {self.node}: {INBOX_MAX} calls wait for a worker's loop; user code holds it")
        self._inbox.append(call)
        if self._asleep:
            with contextlib.suppress(BlockingIOError, OSError):
                self._wake_write.send(b"x")

    def _post_from_wire(self, call: Callable[[], None]) -> None:
        """The same on gRPC's threads: they can wait, and with them whoever sends."""
        while len(self._inbox) >= INBOX_MAX // 2 and self.is_alive():
            sleep(0.001)
        self.post(call)

    def stop(self) -> None:
        """End the loop; tasks are closed."""
        self.post(self._stop)

    def deploy(self, machine: WorkerMachine, ingest_token: str = "") -> None:
        """Take a machine and connect it; must run on the loop. With a token, senders may come too."""
        machine.open(self._clock.now())
        self.machine = machine
        self._door = IngestDoor(Intake([machine], ingest_token)) if ingest_token else None
        # What is loaded by now stays: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self.retable()
        early, self._early = self._early, []
        for connection, frame in early:
            self._arrived(connection, frame)

    def retable(self) -> None:
        """The machine's tables have changed: end links with workers that are gone, dial those that are new."""
        assert self.machine is not None, "tables belong to a machine"
        workers = self.machine.deployment.workers
        for book in (self._out, self._in):
            for peer in [peer for peer in book if peer not in workers]:
                connection = book.pop(peer)
                self._peer.pop(id(connection), None)
                connection.close()
                self._forget(connection)
        self.has_finished = False
        self._next_dial_s = 0.0

    # The loop.

    def run(self) -> None:
        try:
            while not self._stopping:
                self._turn()
        except OperatorError as error:
            self._failed(error.on(self.node))
        except RStreamError as error:
            self._failed(error)
        except Exception as error:
            text = "".join(traceback.format_exception(error))
            self._failed(
                RunError(f"node {self.node}: the worker's loop failed: {type(error).__name__}: {error}\n{text}")
            )
        finally:
            self._shut()

    def _turn(self) -> None:
        worked = False
        beat_s = self._clock.monotonic()
        if self.running and self.machine is not None:
            self.machine.gaps.add(beat_s - self.beat_s - self._waited_s)
        self.beat_s, self._waited_s = beat_s, 0.0
        while self._inbox:
            self._inbox.popleft()()
            worked = True
        machine = self.machine
        if machine is not None:
            if self.beat_s >= self._next_dial_s and machine.out_links.keys() != self._out.keys():
                self._dial(machine)
            if self.running:
                worked |= machine.run_pass()
                for task, work in machine.thread_work:
                    self._start_thread(task, work)
                machine.thread_work.clear()
            self._send(machine)
            if self._door is not None:
                self._door.answer(not worked)
            if progress := machine.take_progress():
                self._progressed(progress)
            for jobs in (machine.savings, machine.readings):
                if jobs:
                    self._checkpoints(jobs[:])
                    jobs.clear()
            if not worked and self.running and not self.has_finished and machine.finished:
                self.has_finished = True
                self._finished()
        self._poll(0.0 if worked else self._wait_s())

    def _wait_s(self) -> float:
        if self.machine is None:
            return IDLE_MAX_S
        wait_s = REDIAL_S if self._full or self.machine.out_links.keys() != self._out.keys() else IDLE_MAX_S
        wake_s = self.machine.next_wake_s() if self.running else None
        return wait_s if wake_s is None else min(wait_s, max(0.0, wake_s - self._clock.now()))

    def _send(self, machine: WorkerMachine) -> None:
        if self._full:
            self._full = {peer for peer in self._full if peer in self._out and self._out[peer].full}
            for peer, link in machine.out_links.items():
                link.full = peer in self._full
        batches: dict[int, tuple[Connection, list[Frame]]] = {}
        for peer, ours, frame in machine.outgoing():
            connection = (self._out if ours else self._in).get(peer)
            if connection is not None:
                batches.setdefault(id(connection), (connection, []))[1].append(frame)
        for connection, frames in batches.values():
            connection.send(frames)
            if connection.full:
                self._fill(machine, connection)
            self._watch(connection)

    def _fill(self, machine: WorkerMachine, connection: Connection) -> None:
        peer, ours = self._peer.get(id(connection), ("", False))
        if ours and peer in machine.out_links:
            self._full.add(peer)
            machine.out_links[peer].full = True

    def _poll(self, timeout_s: float) -> None:
        self._asleep = timeout_s > 0.0
        if self._inbox:
            timeout_s = 0.0
        asleep_s = self._clock.monotonic() if timeout_s > 0.0 else None
        if 0.0 < timeout_s < COARSE_WAIT_S and self._selector_fd < FD_SETSIZE:
            # epoll rounds up to whole milliseconds; a source that has a tuple due in 0.3 ms cannot wait that long.
            select.select((self._selector_fd,), (), (), timeout_s)
            timeout_s = 0.0
        events = self._selector.select(timeout_s)
        self._asleep = False
        if asleep_s is not None:
            self._waited_s = self._clock.monotonic() - asleep_s
        for key, mask in events:
            if key.data is not None:
                connection: SocketConnection = key.data
                if mask & selectors.EVENT_WRITE:
                    connection.flush()
                if mask & selectors.EVENT_READ:
                    for frame in connection.receive():
                        self._arrived(connection, frame)
                self._watch(connection)
            elif key.fileobj is self._listener:
                self._accept()
            else:
                with contextlib.suppress(BlockingIOError):
                    self._wake_read.recv(4096)

    # Connections.

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                accepted, _ = self._listener.accept()
                connection = SocketConnection(accepted)
                self._selector.register(accepted, selectors.EVENT_READ, connection)

    def _dial(self, machine: WorkerMachine) -> None:
        self._next_dial_s = self._clock.monotonic() + REDIAL_S
        for peer in [peer for peer in machine.out_links if peer not in self._out]:
            address = machine.deployment.workers[peer]
            connection: Connection | None
            if address.node == self.node:
                connection = dial_unix(address.socket)
                if connection is None:
                    continue  # it does not listen yet, or not any more: the coordinator will say
                self._selector.register(connection.socket, selectors.EVENT_READ, connection)
            else:
                cap = link_cap(self._links.bytes_per_s, self.node, address.node)
                connection = dial_grpc(
                    address.endpoint, self._grpc_arrived, start_daemon, channel_credentials(self._links), cap=cap
                )
            self._out[peer] = connection
            self._peer[id(connection)] = (peer, True)
            connection.send([machine.greet()])
            self._watch(connection)

    def _watch(self, connection: Connection) -> None:
        """Keep the selector's interest in step with what the connection waits for."""
        if connection.closed:
            self._lost(connection)
        elif isinstance(connection, SocketConnection):
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.wants_write else 0)
            if self._selector.get_key(connection.socket).events != wanted:
                self._selector.modify(connection.socket, wanted, connection)

    def _lost(self, connection: Connection) -> None:
        self._forget(connection)
        peer, ours = self._peer.pop(id(connection), ("", False))
        if not peer or self.machine is None or self._stopping:
            return
        if isinstance(connection, SocketConnection):
            self._deaths.look(peer, connection.peer_pid)
        elif peer in self.machine.deployment.workers:
            self._deaths.knock(peer, self.machine.deployment.workers[peer].endpoint)
        if ours:
            self.machine.on_lost(peer)
            self._out.pop(peer, None)
        elif self._in.get(peer) is connection:
            del self._in[peer]

    def _forget(self, connection: Connection) -> None:
        if isinstance(connection, SocketConnection):
            # A closed socket has no number any more; the selector finds the entry by the object.
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(connection.socket)

    def _grpc_arrived(self, connection: GrpcConnection, frame: tuple[bytes, bytes] | None) -> None:
        if frame is None:
            self._post_from_wire(lambda: self._lost(connection))
        else:
            self._post_from_wire(lambda: self._arrived(connection, frame))

    def _sender_arrived(self, connection: GrpcConnection, frame: tuple[bytes, bytes] | None) -> None:
        def on_loop() -> None:
            if self._door is not None:
                self._door.arrived(connection, frame)
            else:
                connection.close()

        self._post_from_wire(on_loop)

    def _arrived(self, connection: Connection, frame: tuple[bytes, bytes]) -> None:
        if self.machine is None:
            if len(self._early) < EARLY_MAX:
                self._early.append((connection, frame))
            else:
                _LOG.error("more than %d frames came before this worker had any tasks: not from workers", EARLY_MAX)
                connection.close()
            return
        header, body = frame
        message = messages.decode(header)
        if isinstance(message, Greet):
            if message.token != self.token or not self.machine.on_greet(message):
                connection.close()
                self._forget(connection)  # its number may be another socket's in a moment
                return
            if isinstance(connection, GrpcConnection):
                there = self.machine.deployment.workers[message.worker].node
                connection.cap = link_cap(self._links.bytes_per_s, self.node, there)
            self._in[message.worker] = connection
            self._peer[id(connection)] = (message.worker, False)
            return
        peer, _ = self._peer.get(id(connection), ("", False))
        if peer:
            self.machine.handle(peer, message, body)

    # Blocking operators and the end.

    def _start_thread(self, task: BoltTask, work: Callable[[], None]) -> None:
        start_thread(work, lambda error: self.post(lambda: self._thread_done(task, error)), str(task.id))

    def _thread_done(self, task: BoltTask, error: OperatorError | None) -> None:
        if error is not None:
            raise error
        if self.machine is not None:
            self.machine.thread_done(task)

    def _stop(self) -> None:
        self._stopping = True

    def _shut(self) -> None:
        if self.machine is not None:
            with contextlib.suppress(OperatorError):
                self.machine.close()
        for connection in (*self._out.values(), *self._in.values()):
            connection.close()
        self._grpc.close()
        self._listener.close()
        self._selector.close()
        with contextlib.suppress(OSError):
            os.unlink(self._socket_path)
