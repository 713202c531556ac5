"""Who has died: a link that ended, and a process that is gone. Known in milliseconds, without asking Ray.

A link may also end because its process lives and closed it, so the end alone proves nothing. On this node the process
itself is looked at. Of another node, whose system is still there, it is known by nobody listening any more where the
worker did; a node that does not answer at all may only be cut off, and is left to Ray and to leases.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

from rstream.clock import SystemClock, sleep

LOOK_EVERY_S = 0.002
LOOK_FOR_S = 2.0
"""A process closes its sockets a little before it is gone; a large one takes longer to be."""
KNOCK_EVERY_S = 0.02
KNOCKS = 3
"""So often in a row nobody must be there: a worker whose loop has failed says so first, and then stops listening."""
KNOCK_TIMEOUT_S = 0.3
DOUBT_S = 15.0
"""So long nothing new is put on a node that seems lost; by then Ray knows."""
Answer = Literal["somebody listens", "nobody listens", "no answer"]
_CREDENTIALS = struct.Struct("3i")


def peer_pid(sock: socket.socket) -> int:
    """The process at the other end of a Unix socket; 0 where the system does not say."""
    if not hasattr(socket, "SO_PEERCRED"):
        return 0
    pid, _, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return int(pid)


def is_gone(pid: int) -> bool:
    """Whether a process of this machine has ended; one that nobody has waited for yet has.

    >>> import os
    >>> is_gone(os.getpid())
    False
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"Z", b"X")
    except FileNotFoundError:
        return True
    except ProcessLookupError:  # it ended while it was being read
        return True


def knock(endpoint: str) -> Answer:
    """What the machine at ip:port says to somebody who wants to connect. Its kernel answers, so a process that is busy
    listens as well as any.

    >>> with socket.create_server(("127.0.0.1", 0)) as listener:
    ...     endpoint = f"127.0.0.1:{listener.getsockname()[1]}"
    ...     knock(endpoint)
    'somebody listens'
    >>> knock(endpoint)
    'nobody listens'
    """
    host, _, port = endpoint.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK_TIMEOUT_S).close()
    except ConnectionRefusedError:
        return "nobody listens"
    except (OSError, ValueError):
        return "no answer"
    return "somebody listens"


def refuses(endpoint: str) -> bool:
    """Whether the machine at ip:port answers that nobody listens there; no answer says nothing."""
    return knock(endpoint) == "nobody listens"


class DoubtfulNodes:
    """Nodes that lost several workers at once, and so are probably lost themselves, although Ray does not know yet.

    >>> doubtful = DoubtfulNodes()
    >>> doubtful.add("n1"); "n1" in doubtful, "n2" in doubtful
    (True, False)
    """

    def __init__(self) -> None:
        self._until_s: dict[str, float] = {}

    def add(self, node: str) -> None:
        """Several workers of this node are gone."""
        self._until_s[node] = SystemClock.monotonic() + DOUBT_S

    def why(self) -> list[str]:
        """What a topology that starts now should know: the nodes that it does without."""
        return [
            f"node {node} lost several workers at once just now: it is avoided"
            for node in self._until_s
            if node in self
        ]

    def __contains__(self, node: object) -> bool:
        return SystemClock.monotonic() < self._until_s.get(str(node), 0.0)


class DeathWatch:
    """Looks after workers whose links have ended, and says who is dead."""

    def __init__(self, dead: Callable[[str], None]) -> None:
        self._dead = dead
        self._looked_after: set[str] = set()

    def look(self, worker: str, pid: int) -> None:
        """A link with this worker of our node has ended; is it dead?"""
        if pid:
            self._watch(worker, partial(is_gone, pid), 1, LOOK_EVERY_S)

    def knock(self, worker: str, endpoint: str) -> None:
        """A link with this worker of another node has ended; is it dead?"""
        self._watch(worker, partial(refuses, endpoint), KNOCKS, KNOCK_EVERY_S)

    def knock_at(self, endpoints: Mapping[str, str]) -> list[str]:
        """Those of some workers that are dead already; the others are looked after for a while, because a node does
        not lose all of its processes in the same instant."""
        dead = []
        for worker, endpoint in endpoints.items():
            if refuses(endpoint):
                dead.append(worker)
            else:
                self.knock(worker, endpoint)
        return dead

    def _watch(self, worker: str, gone: Callable[[], bool], times: int, every_s: float) -> None:
        if worker not in self._looked_after:
            self._looked_after.add(worker)
            watch = partial(self._watching, worker, gone, times, every_s)
            threading.Thread(target=watch, name="rstream-deaths", daemon=True).start()

    def _watching(self, worker: str, gone: Callable[[], bool], times: int, every_s: float) -> None:
        end_s = SystemClock.monotonic() + LOOK_FOR_S
        found = 0
        while found < times and SystemClock.monotonic() < end_s:
            found = found + 1 if gone() else 0
            if found < times:
                sleep(every_s)
        if found == times:
            with contextlib.suppress(Exception):  # without a coordinator there is nobody to tell; Ray will, later
                self._dead(worker)
        self._looked_after.discard(worker)
