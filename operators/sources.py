"""The first sources: iterables, generators with a rate, files by offset, and lines from a TCP server.

`ParquetRows` and `Ingest` have modules of their own and are named here with the others.
"""

from __future__ import annotations

import glob
import io
import math
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from rstream.api import Reader, Source, Spout
from rstream.errors import DataError, TopologyError
from rstream.operators.ingest import Ingest
from rstream.operators.parquet_source import ParquetRows

__all__ = ["Files", "FromFunction", "FromIterable", "Ingest", "ParquetRows", "Rate", "TcpLines", "as_source"]


class FromIterable(Source):
    """The items of a list, tuple or other sequence, dealt out over the source's tasks.

    >>> reader = FromIterable([1, 2, 3]).reader("0/1", None)
    >>> reader.read(2), reader.read(2), reader.read(2)
    ([1, 2], [3], None)
    """

    def __init__(self, items: Iterable[Any]) -> None:
        self.items = items if isinstance(items, Sequence) else list(items)

    def splits(self, parallelism: int) -> Sequence[str]:
        return [f"{part}/{parallelism}" for part in range(parallelism)]

    def reader(self, split: str, offset: Any) -> Reader:
        part, parts = map(int, split.split("/"))
        return _SequenceReader(self.items if parts == 1 else self.items[part::parts], offset or 0)


class _SequenceReader(Reader):
    def __init__(self, items: Sequence[Any], position: int) -> None:
        self._items, self._position = items, position

    def read(self, limit: int) -> list[Any] | None:
        values = list(self._items[self._position : self._position + limit])
        self._position += len(values)
        return values or None

    @property
    def offset(self) -> int:
        return self._position


class FromFunction(Source):
    """What a function's iterator yields; read again from the start and skipped to the offset when replayed.

    >>> reader = FromFunction(lambda: range(3)).reader("0", 1)
    >>> reader.read(10), reader.read(10)
    ([1, 2], None)
    """

    def __init__(self, function: Callable[[], Iterable[Any]]) -> None:
        self.function = function

    def splits(self, parallelism: int) -> Sequence[str]:
        return ["0"]

    def reader(self, split: str, offset: Any) -> Reader:
        return _IteratorReader(iter(self.function()), offset or 0)


class _IteratorReader(Reader):
    def __init__(self, items: Iterator[Any], skip: int) -> None:
        self._items, self._position = items, skip
        for _ in islice(items, skip):
            pass

    def read(self, limit: int) -> list[Any] | None:
        values = list(islice(self._items, limit))
        self._position += len(values)
        return values or None

    @property
    def offset(self) -> int:
        return self._position


class Rate(Source):
    """`make(n)` for n = 0, 1, 2, ... at `per_s` tuples a second over all tasks, `limit` of them if it is set.

    >>> reader = Rate(lambda n: n, per_s=10, limit=3).reader("0/1", None)
    >>> reader.now_s = 50.0; reader.read(100)
    []
    >>> reader.now_s = 50.2; reader.read(100)
    [0, 1]
    """

    def __init__(self, make: Callable[[int], Any], per_s: float, limit: int | None = None) -> None:
        if not per_s > 0:
            raise TopologyError(f"a rate must be above 0 tuples per second, got {per_s!r}")
        self.make, self.per_s, self.limit = make, per_s, limit

    def splits(self, parallelism: int) -> Sequence[str]:
        return [f"{part}/{parallelism}" for part in range(parallelism)]

    def reader(self, split: str, offset: Any) -> Reader:
        part, parts = map(int, split.split("/"))
        return _RateReader(self, part, parts, offset or 0)


class _RateReader(Reader):
    idle_s = 0.001

    def __init__(self, source: Rate, part: int, parts: int, position: int) -> None:
        self._make, self._part, self._parts = source.make, part, parts
        self._per_s = source.per_s / parts
        self._end = None if source.limit is None else len(range(part, source.limit, parts))
        self._position = position
        self._start: tuple[float, int] | None = None

    def read(self, limit: int) -> list[Any] | None:
        if self._end is not None and self._position >= self._end:
            return None
        if self._start is None or self._start[0] == math.inf:
            self._start = self.now_s, self._position
        start_s, first = self._start
        stop = self._position + limit
        if self.now_s != math.inf:
            stop = min(stop, first + int((self.now_s - start_s) * self._per_s + 1e-9))
        if self._end is not None:
            stop = min(stop, self._end)
        if stop <= self._position:
            next_s = start_s + (self._position + 1 - first) / self._per_s
            self.idle_s = min(max(next_s - self.now_s, _RateReader.idle_s), 1.0)
            return []
        make, part, parts = self._make, self._part, self._parts
        values = [make(part + parts * index) for index in range(self._position, stop)]
        self._position = stop
        return values

    @property
    def offset(self) -> int:
        return self._position


class Phases(Source):
    """`make(n)` for n = 0, 1, 2, ... at a pace that changes: `phases` are (seconds, tuples a second over all tasks).

    >>> reader = Phases(lambda n: n, [(1.0, 2.0), (1.0, 4.0)]).reader("0/1", None)
    >>> reader.now_s = 50.0; reader.read(100)
    []
    >>> reader.now_s = 51.5; reader.read(100)
    [0, 1, 2, 3]
    """

    def __init__(self, make: Callable[[int], Any], phases: Sequence[tuple[float, float]]) -> None:
        if not phases or any(not seconds > 0 or per_s < 0 for seconds, per_s in phases):
            raise TopologyError(f"phases are pairs of seconds above 0 and a rate of at least 0, got {phases!r}")
        self.make, self.phases = make, list(phases)

    @property
    def limit(self) -> int:
        """How many tuples there are in all."""
        return int(sum(seconds * per_s for seconds, per_s in self.phases) + 1e-6)

    def due(self, after_s: float) -> float:
        """How many tuples are due so long after the beginning."""
        count = 0.0
        for seconds, per_s in self.phases:
            count += min(seconds, max(0.0, after_s)) * per_s
            after_s -= seconds
        return count

    def due_to(self, part: int, parts: int, after_s: float) -> int:
        """How many of them belong to one of so many tasks."""
        return len(range(part, int(self.due(after_s) + 1e-6), parts))

    def after(self, count: float) -> float:
        """How long after the beginning so many tuples are due."""
        after_s = 0.0
        for seconds, per_s in self.phases:
            if per_s > 0 and count <= seconds * per_s:
                return after_s + count / per_s
            after_s, count = after_s + seconds, count - seconds * per_s
        return after_s

    def splits(self, parallelism: int) -> Sequence[str]:
        return [f"{part}/{parallelism}" for part in range(parallelism)]

    def reader(self, split: str, offset: Any) -> Reader:
        part, parts = map(int, split.split("/"))
        return _PhasesReader(self, part, parts, offset or 0)


class _PhasesReader(Reader):
    idle_s = 0.001

    def __init__(self, source: Phases, part: int, parts: int, position: int) -> None:
        self._source, self._part, self._parts = source, part, parts
        self._end = len(range(part, source.limit, parts))
        self._position = position
        self._start_s = math.inf

    def read(self, limit: int) -> list[Any] | None:
        if self._position >= self._end:
            return None
        parts, source = self._parts, self._source
        stop = min(self._position + limit, self._end)
        if self.now_s != math.inf:
            if self._start_s == math.inf:  # the first time, or after what was read again
                self._start_s = self.now_s - source.after(self._position * parts)
            passed_s = self.now_s - self._start_s
            stop = min(stop, source.due_to(self._part, parts, passed_s))
            if stop <= self._position:
                wait_s = source.after(self._part + parts * self._position + 1) - passed_s
                self.idle_s = min(max(wait_s, _PhasesReader.idle_s), 1.0)
                return []
        values = [source.make(self._part + parts * index) for index in range(self._position, stop)]
        self._position = stop
        return values

    @property
    def offset(self) -> int:
        return self._position


class Files(Source):
    """The lines of text files, by byte offset: a path, a glob or several. Large files are cut into several splits.

    A line is what ends with a newline; the last one may lack it. Lines come without their line ends.
    """

    def __init__(self, *paths: str | os.PathLike[str], encoding: str = "utf-8", split_bytes: int = 8 << 20) -> None:
        if not paths:
            raise DataError("no file to read lines from; name a path or a glob")
        if split_bytes < 1:
            raise DataError(f"split_bytes must be at least 1, got {split_bytes}")
        if "\n".encode(encoding) != b"\n":
            raise DataError(f"lines of {encoding} text cannot be cut by bytes; convert the files to UTF-8 first")
        self.paths = [os.fspath(path) for path in paths]
        self.encoding, self.split_bytes = encoding, split_bytes

    def splits(self, parallelism: int) -> Sequence[str]:
        found = [path for pattern in self.paths for path in self._expand(pattern)]
        return [
            f"{start}:{min(start + self.split_bytes, size)}:{path}"
            for path in found
            for size in [os.path.getsize(path)]
            for start in range(0, size, self.split_bytes)
        ]

    def _expand(self, pattern: str) -> list[str]:
        paths = sorted(glob.glob(pattern)) if glob.has_magic(pattern) else [pattern]
        for path in paths:
            if not os.path.isfile(path):
                raise DataError(f"no file {path!r} to read lines from; check the path")
        if not paths:
            raise DataError(f"no file matches {pattern!r}; check the path")
        return [os.path.abspath(path) for path in paths]

    def reader(self, split: str, offset: Any) -> Reader:
        start, end, path = split.split(":", 2)
        return _LineReader(path, int(start), int(end), self.encoding, offset)


class _LineReader(Reader):
    """Lines that begin in [start, end): one that crosses `end` is read whole here and skipped by the next split."""

    def __init__(self, path: str, start: int, end: int, encoding: str, offset: int | None) -> None:
        self._file: io.BufferedReader = open(path, "rb")  # noqa: SIM115 - closed in close()
        self._end, self._encoding = end, encoding
        if offset is not None:
            self._position = offset
        elif start == 0:
            self._position = 0
        else:
            self._file.seek(start - 1)
            self._position = start - 1 + len(self._file.readline())
        self._file.seek(self._position)

    def read(self, limit: int) -> list[Any] | None:
        lines: list[bytes] = []
        while len(lines) < limit and self._position < self._end:
            line = self._file.readline()
            if not line:
                break
            lines.append(line)
            self._position += len(line)
        if not lines:
            return None
        return [line.decode(self._encoding).rstrip("\r\n") for line in lines]

    @property
    def offset(self) -> int:
        return self._position

    def close(self) -> None:
        self._file.close()


class TcpLines(Source):
    """Lines from a TCP server, until it closes the connection. What was read cannot be read again."""

    replayable = False

    def __init__(self, host: str, port: int, encoding: str = "utf-8") -> None:
        self.host, self.port, self.encoding = host, port, encoding

    def splits(self, parallelism: int) -> Sequence[str]:
        return [f"{self.host}:{self.port}"]

    def reader(self, split: str, offset: Any) -> Reader:
        return _TcpReader(self.host, self.port, self.encoding)


class _TcpReader(Reader):
    idle_s = 0.002
    line_bytes_max = 16 << 20

    def __init__(self, host: str, port: int, encoding: str) -> None:
        self._address, self._encoding = f"{host}:{port}", encoding
        try:
            self._socket = socket.create_connection((host, port), timeout=10)
        except OSError as error:
            raise DataError(f"cannot read lines from {self._address}: {error}; is a server listening there?") from None
        self._socket.setblocking(False)
        self._lines: deque[bytes] = deque()
        self._rest = bytearray()
        self._lines_read = 0
        self._ended = False

    def read(self, limit: int) -> list[Any] | None:
        if not self._lines and not self._ended:
            self._receive()
        if not self._lines:
            return None if self._ended else []
        lines = [self._lines.popleft() for _ in range(min(limit, len(self._lines)))]
        self._lines_read += len(lines)
        return [line.decode(self._encoding).rstrip("\r") for line in lines]

    def _receive(self) -> None:
        try:
            chunk = self._socket.recv(1 << 18)
        except BlockingIOError:
            return
        self._ended = not chunk
        self._rest += chunk
        if b"\n" in chunk:
            *lines, rest = bytes(self._rest).split(b"\n")
            self._lines.extend(lines)
            self._rest = bytearray(rest)
        if self._ended and self._rest:
            self._lines.append(bytes(self._rest))
        if len(self._rest) > self.line_bytes_max:
            raise DataError(f"a line from {self._address} is longer than {self.line_bytes_max} bytes")

    @property
    def offset(self) -> int:
        return self._lines_read

    def close(self) -> None:
        self._socket.close()


def as_source(step: str, source: Any) -> Source | Spout:
    """What the user gave for a source step, as a source or spout."""
    if isinstance(source, Source | Spout):
        return source
    if isinstance(source, type) and issubclass(source, Source | Spout):
        return source()
    if isinstance(source, str | bytes):
        raise TopologyError(f"step {step!r}: a str is no source; for the lines of a file use sources.Files({source!r})")
    if callable(source):
        return FromFunction(source)
    if isinstance(source, Iterable):
        return FromIterable(source)
    raise TopologyError(
        f"step {step!r}: wanted a Source, a Spout, an iterable or a function, got {type(source).__name__}"
    )
