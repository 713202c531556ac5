"""Queues between threads, each with a maximum.

The protocol's credits and the number of tasks bound what these hold; a maximum that is reached means that something
else went wrong, and then it must be seen: whoever puts waits, or is told. Nothing is ever dropped.
"""

from __future__ import annotations

import queue
import threading
from typing import Generic, TypeVar

from rstream.errors import RunError

T = TypeVar("T")

ARRIVALS_MAX = 10_000
ORDERS_MAX = 100_000
LOOK_S = 0.1


class Arrivals(Generic[T]):
    """What gRPC's threads bring and one other thread takes: full, it lets them wait, and gRPC lets the sender wait.

    >>> arrivals = Arrivals()
    >>> arrivals.put("frame")
    >>> arrivals.get(timeout_s=1.0)
    'frame'
    """

    def __init__(self, items_max: int = ARRIVALS_MAX) -> None:
        self._items: queue.Queue[T] = queue.Queue(items_max)
        self._closed = threading.Event()

    def put(self, item: T) -> None:
        """Wait for a place; once nobody takes anything any more, forget it."""
        while not self._closed.is_set():
            try:
                self._items.put(item, timeout=LOOK_S)
            except queue.Full:
                continue
            return

    def get(self, timeout_s: float = 0.0) -> T:
        """The next one; raises queue.Empty where none comes in time."""
        return self._items.get(timeout=timeout_s) if timeout_s > 0.0 else self._items.get_nowait()

    def close(self) -> None:
        """Nobody takes anything any more: whoever waits to put need not."""
        self._closed.set()


class Orders(Generic[T]):
    """What one thread is to do, given by others that cannot wait: full, it refuses loudly.

    >>> orders = Orders("answers", items_max=1)
    >>> orders.put("first")
    >>> orders.put("second")
    Traceback (most recent call last):
    ...
    rstream.errors.RunError: answers: 1 wait already; whoever handles them is stuck
    """

    def __init__(self, what: str, items_max: int = ORDERS_MAX) -> None:
        self._what = what
        self._items: queue.Queue[T] = queue.Queue(items_max)

    def put(self, item: T) -> None:
        """Give one more; raises RunError where too many wait."""
        try:
            self._items.put_nowait(item)
        except queue.Full:
            raise RunError(f"{self._what}: {self._items.maxsize} wait already; whoever handles them is stuck") from None

    def get(self) -> T:
        """The next one; waits for it."""
        return self._items.get()
