"""A topology with a keyed state of a given size under a load that is due at fixed times, for what disturbs it.

Tuples are due at times that are fixed beforehand, as those of a log that others write to: whatever was not read in time
is there at once afterwards. The sink writes down when each one arrived. A disturbance is over when the last tuple that
it delayed has arrived; that is the same question for every backend.
"""

from __future__ import annotations

import os
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import CannotMeasure, expect
from rstream import Bolt, Topology, submit
from rstream.api import Context, Out, Reader, Source
from rstream.client import Handle
from rstream.clock import SystemClock, sleep
from rstream.groupings import Global, Shuffle

LATE_S = 0.3
"""A tuple is late from here on; where nothing disturbs, hardly any is."""
CALM_S = 1.0
"""So long no tuple that is due may be late for a disturbance to be over."""
WARM_S = 2.0
READERS = 2
WORKERS = 4
SPARES = 2
CELL_BYTES = 1000
PRIME = 1_000_003
READY_TIMEOUT_S = 240.0

_ARRIVAL = struct.Struct("<qd")
_clock = SystemClock()


class Scheduled(Source):
    """First every key once, as fast as it goes, then `per_s` tuples a second that are due at fixed times.

    `items` are the keys; without them, those from 0 on.
    """

    def __init__(self, start_s: float, keys: int, per_s: float, items: Sequence[int] | None = None) -> None:
        self.start_s, self.keys, self.per_s = start_s, keys, per_s
        self.items = range(keys) if items is None else items

    def due_s(self, n: int) -> float:
        """When tuple n is due."""
        return self.start_s + (n - self.keys) / self.per_s if n >= self.keys else 0.0

    def splits(self, parallelism: int) -> Sequence[str]:
        return [f"{part}/{parallelism}" for part in range(parallelism)]

    def reader(self, split: str, offset: Any) -> Reader:
        part, parts = map(int, split.split("/"))
        return _ScheduledReader(self, part if offset is None else offset, parts)


class _ScheduledReader(Reader):
    idle_s = 0.002

    def __init__(self, source: Scheduled, next: int, step: int) -> None:
        self._source, self._next, self._step = source, next, step

    def read(self, limit: int) -> list[Any] | None:
        source = self._source
        values: list[Any] = []
        while len(values) < limit and source.due_s(self._next) <= self.now_s:
            values.append((self._next, source.items[self._next * PRIME % source.keys]))
            self._next += self._step
        return values

    @property
    def offset(self) -> int:
        return self._next


class Count(Bolt):
    """Counts each key, in a cell of so many bytes."""

    def __init__(self, cell_bytes: int) -> None:
        self._pad = "x" * cell_bytes

    def open(self, ctx: Context) -> None:
        self._cell = ctx.state.value("cells", default=(0, ""))

    def process(self, value: tuple[int, int], out: Out) -> None:
        count = self._cell.get()[0] + 1
        self._cell.set((count, self._pad))
        out.emit((value[0], count))


class Arrivals(Bolt):
    """Writes down when each tuple came, and adds up what they say, which is how wrong counts are found."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.tuples = self.sum = 0

    def open(self, ctx: Context) -> None:
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def process_batch(self, values: list[tuple[int, int]], out: Out) -> None:
        now_s = _clock.now()
        os.write(self._file, b"".join([_ARRIVAL.pack(n, now_s) for n, _ in values]))
        self.tuples += len(values)
        self.sum += sum(count for _, count in values)

    def close(self) -> None:
        os.close(self._file)

    def snapshot(self) -> Any:
        return [self.tuples, self.sum]

    def restore(self, snapshot: Any) -> None:
        self.tuples, self.sum = snapshot

    def results(self) -> list[Any]:
        """What `handle.results()` gives."""
        return [(self.tuples, self.sum)]


def truth(keys: int, numbers: Iterable[int]) -> tuple[int, int]:
    """How many tuples there are, and the sum of all running counts, counted without rstream.

    >>> truth(2, range(5))
    (5, 9)
    """
    counts = Counter(n * PRIME % keys for n in numbers)
    return counts.total(), sum(count * (count + 1) // 2 for count in counts.values())


def read_numbers(arrivals: Iterable[int], readers: int) -> list[int]:
    """What the readers have read: each its own numbers from the first to the last that arrived, none left out.

    >>> read_numbers([0, 1, 2, 4], 2), read_numbers([0, 1, 4], 2)
    ([0, 2, 4, 1], [0, 2, 4, 1])
    """
    arrived = set(arrivals)
    last = {part: max((n for n in arrived if n % readers == part), default=-1) for part in range(readers)}
    return [n for part in range(readers) for n in range(part, last[part] + 1, readers)]


def delayed_s(arrivals: dict[int, float], source: Scheduled, at_s: float) -> float:
    """From a disturbance until the last tuple that it delayed had arrived.

    >>> source = Scheduled(100.0, 0, 10.0)
    >>> on_time = {n: source.due_s(n) + 0.01 for n in range(100)}
    >>> delayed_s({**on_time, 30: 104.5, 31: 104.5}, source, 103.0)
    1.5
    """
    end_s = at_s
    for n in sorted(n for n in arrivals if n >= source.keys):
        due_s, arrived_s = source.due_s(n), arrivals[n]
        if due_s > end_s + CALM_S:
            break
        if due_s > at_s - CALM_S and arrived_s > max(at_s, due_s + LATE_S):
            end_s = max(end_s, arrived_s)
    return end_s - at_s


def read_arrivals(path: Path) -> dict[int, float]:
    """When each tuple first arrived."""
    found: dict[int, float] = {}
    for n, at_s in _ARRIVAL.iter_unpack(path.read_bytes()):
        found.setdefault(n, at_s)
    return found


def written(path: Path) -> int:
    """How many arrivals were written, those that came twice included."""
    return path.stat().st_size // _ARRIVAL.size


def start(
    name: str, source: Scheduled, path: Path, tasks: int, interval_s: float, backend: str, bytes_per_s: float | None
) -> Handle:
    """Submit read -> split -> count (keyed, so many tasks) -> arrivals; the file at `path` gets the arrivals."""
    topology = Topology(name, backup={"interval_s": interval_s}, stats_interval_s=0.2)
    rows = topology.source("read", source, parallelism=READERS)
    split = rows.grouped(Shuffle()).map("split", _same, parallelism=2)
    counted = split.key_by("item", _item).process("count", Count(CELL_BYTES), parallelism=tasks)
    counted.grouped(Global()).sink("arrivals", Arrivals(str(path)))
    flags: dict[str, Any] = {"state.backend": backend, "state.store": (path.parent / "store").as_uri()}
    if bytes_per_s is not None:
        flags["links.bytes_per_s"] = bytes_per_s
    return submit(topology, workers=WORKERS, spares=SPARES, folder="", **flags)


def end(handle: Handle, path: Path, source: Scheduled) -> dict[int, float]:
    """Let it process what is on its way and end; gives the arrivals, and an error where the counts are wrong."""
    handle.kill(drain=True)
    handle.wait(READY_TIMEOUT_S)
    arrivals = read_arrivals(path)
    wanted = truth(source.keys, read_numbers(arrivals, READERS))
    expect(f"{handle.name}: counts", [wanted], handle.results("arrivals"))
    return arrivals


def wait_ready(handle: Handle, path: Path, source: Scheduled) -> None:
    """Wait until every key is there, all of it is saved, and nothing is late."""
    end_s = _clock.monotonic() + READY_TIMEOUT_S
    filled_s, saved = 0.0, False
    first_checkpoint = 0
    while _clock.monotonic() < end_s:
        status = handle.status()
        if status["state"] in ("FAILED", "FINISHED", "KILLED"):
            raise CannotMeasure(f"{handle.name}: ")
        now_s = _clock.now()
        counting = next(each for each in status["operators"] if each["name"] == "count")
        checkpoint = int(status["survives"]["what"].rpartition("checkpoint ")[2] or 0) if _checkpointed(status) else 0
        if not filled_s and counting["processed"] >= source.keys:
            filled_s, first_checkpoint = now_s, checkpoint
        elif filled_s and not saved:
            backed_up = counting["backed_up_s"] is not None and counting["backed_up_s"] > filled_s
            # The one that is being made when the last key comes may lack it; the second after it has all.
            saved = backed_up or checkpoint >= first_checkpoint + 2
        elif saved and status["healed"] and is_on_time(path, source):
            return
        sleep(0.05)
    raise CannotMeasure(f"{handle.name}: not ready within {READY_TIMEOUT_S:g} s")


def wait_calm(
    handle: Handle, path: Path, source: Scheduled, is_done: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """Wait until it is done, by its status, and nothing has been late for a while; gives the status."""
    end_s = _clock.monotonic() + READY_TIMEOUT_S
    calm_s = 0.0
    while _clock.monotonic() < end_s:
        status, now_s = handle.status(), _clock.monotonic()
        fine = is_done(status) and status["healed"] and is_on_time(path, source)
        calm_s = (calm_s or now_s) if fine else 0.0
        if calm_s and now_s - calm_s > 2 * CALM_S:
            return status
        sleep(0.05)
    raise CannotMeasure(f"{handle.name}: results were still late {READY_TIMEOUT_S:g} s after it was disturbed")


def _checkpointed(status: dict[str, Any]) -> bool:
    return "go back to checkpoint" in status["survives"]["what"]


def is_on_time(path: Path, source: Scheduled) -> bool:
    """The newest arrivals were not late."""
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, (file.tell() // _ARRIVAL.size - 200) * _ARRIVAL.size))
        newest = [(n, at_s) for n, at_s in _ARRIVAL.iter_unpack(file.read()) if n >= source.keys]
    return bool(newest) and all(at_s - source.due_s(n) < LATE_S for n, at_s in newest)


def _same(value: Any) -> Any:
    return value


def _item(value: tuple[int, int]) -> int:
    return value[1]
