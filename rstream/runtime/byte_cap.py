"""A cap on the bytes that pass a point each second, shared by all processes of this machine that name the point alike.

For benchmarks that need a network of a known speed: every node has a point for what it sends and one for what it
receives, and so has a store. Whoever sends waits until all points on the way have had time for its bytes.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import re
import struct
import tempfile
from collections.abc import Sequence

from rstream.clock import SystemClock, sleep

_TIME = struct.Struct("<d")


class ByteCap:
    """At most `bytes_per_s` through each of these points; None is no cap.

    >>> ByteCap(None, ["a node"]).wait(1 << 30)
    """

    def __init__(self, bytes_per_s: float | None, points: Sequence[str] = ()) -> None:
        self._bytes_per_s = bytes_per_s
        self._points = [_Point(point) for point in sorted(points)] if bytes_per_s is not None else []

    def wait(self, size: int) -> None:
        """Wait until so many bytes have had their time at every point."""
        if self._bytes_per_s is None:
            return
        until_s = max((point.pass_on(size / self._bytes_per_s) for point in self._points), default=0.0)
        wait_s = until_s - SystemClock.monotonic()
        if wait_s > 0:
            sleep(wait_s)


class _Point:
    """When the last bytes that were let through are through: one number in a file that processes share."""

    def __init__(self, name: str) -> None:
        folder = os.path.join(tempfile.gettempdir(), f"rstream-{os.getuid()}", "caps")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        path = os.path.join(folder, re.sub(r"\W", "-", name))
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        if os.fstat(self._file).st_size < _TIME.size:
            os.ftruncate(self._file, _TIME.size)
        self._shared = mmap.mmap(self._file, _TIME.size)

    def pass_on(self, takes_s: float) -> float:
        """Take the next free time of that length; gives its end, by the monotonic clock of this machine."""
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            (free_s,) = _TIME.unpack(self._shared[:])
            now_s = SystemClock.monotonic()
            # A number from before a restart of the machine lies ahead of its clock: nobody sends for an hour.
            end_s: float = max(now_s, free_s if free_s < now_s + 3600.0 else 0.0) + takes_s
            self._shared[:] = _TIME.pack(end_s)
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)
        return end_s
