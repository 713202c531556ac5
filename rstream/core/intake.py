"""The worker's side of ingest: streams of senders in, answers out. No I/O.

Offsets are acknowledged only when a safe snapshot of the source covers them, and only under the lease. What arrived and
is not covered dies with this worker; the sender still has it and sends it again to whoever takes over the lane.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from rstream.core.channel import TaskId
from rstream.core.deployment import Deployment
from rstream.core.ingest_messages import (
    VERSION,
    Answer,
    Elsewhere,
    Look,
    Open,
    Opened,
    Places,
    Progress,
    Push,
    Refusal,
    decode_request,
)
from rstream.core.source_task import SourceTask
from rstream.core.worker import WorkerMachine
from rstream.graph import Graph
from rstream.operators.ingest import WINDOW, Ingest, IngestReader

PROGRESS_SHARE = 8
"""A sender hears of what was taken when this share of its window was; at once when nothing else is to be done."""
PUSH_MAX = 4 * WINDOW
"""A sender that has so much more than its window waiting does not keep to it."""


@dataclass(slots=True)
class _Stream:
    """One open stream: whose records it brings, and what its sender knows."""

    step: str
    lane: int
    part: int
    reader: IngestReader
    told: Progress


class _Place(NamedTuple):
    """Where a lane is."""

    machine: WorkerMachine
    task: SourceTask
    reader: IngestReader

    def covered(self, part: int) -> int:
        """Without snapshots, what was read counts as covered, as for every other channel."""
        backed_up = self.machine.is_backed_up(self.task)
        return self.reader.covered_to(part) if backed_up else self.reader.taken(part)


class Intake:
    """The streams of senders at one endpoint, by numbers that the host gives them; behind it are one worker or more."""

    def __init__(self, machines: Sequence[WorkerMachine], token: str) -> None:
        self._machines, self._token = machines, token
        self._streams: dict[int, _Stream] = {}

    @property
    def is_idle(self) -> bool:
        """No sender is connected."""
        return not self._streams

    def arrived(self, stream: int, header: bytes, body: bytes) -> Answer | None:
        """A sender's message; gives the answer that is due at once, after which a refused stream is to be ended."""
        try:
            request = decode_request(header)
        except msgspec.DecodeError as error:
            return self._refuse(stream, f"this is no message of a sender: {error}")
        if isinstance(request, Push):
            return self._push(stream, request, body)
        if request.version != VERSION:
            return self._refuse(stream, f"the sender speaks version {request.version}, this worker {VERSION}")
        if not hmac.compare_digest(request.token.encode(), self._token.encode()):
            return self._refuse(stream, "wrong token")
        return self._look(stream, request) if isinstance(request, Look) else self._open(stream, request)

    def closed(self, stream: int) -> None:
        """The stream has ended, whoever ended it."""
        self._streams.pop(stream, None)

    def answers(self, at_rest: bool) -> Iterator[tuple[int, Answer]]:
        """What senders are to be told now; `at_rest` when the worker has nothing else to do."""
        for number, stream in list(self._streams.items()):
            place = self._find(stream.step, stream.lane)
            if place is None or place.reader is not stream.reader:
                del self._streams[number]
                yield number, Elsewhere()
                continue
            told, news = stream.told, self._progress(place, stream)
            step = 1 if at_rest else max(1, stream.reader.window // PROGRESS_SHARE)
            if (
                news.refused
                or (news.covered, news.want) != (told.covered, told.want)
                or news.taken - told.taken >= step
            ):
                stream.told = Progress(news.covered, news.taken, news.want, [])
                yield number, news

    def _progress(self, place: _Place, stream: _Stream) -> Progress:
        reader, part, covered = place.reader, stream.part, stream.told.covered
        refused = reader.take_refusals(part)
        place.task.counters.failed += len(refused)
        if place.machine.clock() < place.machine.lease_until_s:
            covered = max(covered, place.covered(part))
        missing = reader.missing(part)
        return Progress(covered, reader.taken(part), reader.received(part) + missing if missing else 0, refused)

    def _refuse(self, stream: int, reason: str) -> Refusal:
        self.closed(stream)
        return Refusal(reason)

    def _look(self, stream: int, look: Look) -> Answer:
        try:
            return places_of(self._machines[0].deployment, look.step)
        except LookupError as error:
            return self._refuse(stream, str(error.args[0]))

    def _open(self, stream: int, request: Open) -> Answer:
        place = self._find(request.step, request.lane)
        if place is None:
            return Elsewhere()
        part, reader = request.part, place.reader
        for number in [number for number, each in self._streams.items() if each.part == part]:
            del self._streams[number]  # its sender has come again, and the old stream is not yet known to be dead
        opened = Opened(place.covered(part), reader.taken(part), reader.received(part), reader.window)
        told = Progress(opened.covered, opened.taken, 0, [])
        self._streams[stream] = _Stream(request.step, request.lane, part, reader, told)
        return opened

    def _push(self, number: int, push: Push, body: bytes) -> Answer | None:
        stream = self._streams.get(number)
        place = None if stream is None else self._find(stream.step, stream.lane)
        if stream is None or place is None or place.reader is not stream.reader:
            self.closed(number)
            return Elsewhere()
        reader, part = stream.reader, stream.part
        if push.count < 1:
            return self._refuse(number, f"a push of {push.count} records came")
        before = reader.waiting_bytes
        if not reader.push(part, push.first, push.count, push.kind, body):
            return self._refuse(number, f"offset {push.first} came, {reader.received(part)} was to come next")
        place.task.uncovered_bytes += reader.waiting_bytes - before
        place.task.counters.received += push.count
        place.task.idle_until_s = 0.0
        if (waiting := reader.waiting(part)) > reader.window + PUSH_MAX + reader.missing(part):
            return self._refuse(number, f"{waiting} records wait: the sender ignores its window of {reader.window}")
        return None

    def _find(self, step: str, lane: int) -> _Place | None:
        for machine in self._machines:
            for task in machine.sources:
                if task.id.operator == step and str(lane) in task.splits and task.opened:
                    reader = task.readers.get(task.splits.index(str(lane)))
                    return _Place(machine, task, reader) if isinstance(reader, IngestReader) else None
        return None


def ingest_steps(graph: Graph) -> list[str]:
    """The steps of a topology that take what senders push."""
    return [operator.name for operator in graph.operators if isinstance(operator.logic, Ingest)]


def places_of(deployment: Deployment, step: str) -> Places:
    """Who takes the lanes of an ingest source; a LookupError says why there is none of that name."""
    known, topology = ingest_steps(deployment.graph), f"topology {deployment.graph.name!r}"
    if not known:
        raise LookupError(f"{topology} has no ingest source; use sources.Ingest(...) in it")
    if not step and len(known) > 1:
        raise LookupError(f"{topology} has several ingest sources, name one of them: {', '.join(known)}")
    step = step or known[0]
    if step not in known:
        raise LookupError(f"{topology} has no ingest source {step!r}; it has: {', '.join(known)}")
    source = deployment.graph.by_name[step].logic
    assert isinstance(source, Ingest), "ingest steps have ingest sources"
    hosts = [
        deployment.placement[TaskId(step, lane % deployment.parallelism[step])]
        for lane in range(len(deployment.splits[step]))
    ]
    return Places(
        deployment.graph.name,
        deployment.run,
        step,
        [deployment.workers[host].endpoint if host in deployment.workers else "" for host in hosts],
        [address.endpoint for address in deployment.workers.values()],
        source.columns(),
    )
