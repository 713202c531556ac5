"""Sends records to a topology's ingest source, exactly once: for the replay, for Spark, for any program.

`look` asks a worker who takes what. An `IngestClient` sends one partition of a sender; it finds the source's worker
again when that has died or its task has moved, and sends what is not covered to the new one. A program that was killed
starts again with the same sender name and goes on at `client.covered`. Needs neither Ray nor a cluster's address.
"""

from __future__ import annotations

import queue
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from rstream.clock import SystemClock, sleep
from rstream.config import LinkConfig
from rstream.core.ingest_messages import (
    Answer,
    Elsewhere,
    Look,
    Open,
    Opened,
    Places,
    Progress,
    Refusal,
    Request,
    decode_answer,
    encode,
)
from rstream.core.messages import Frame
from rstream.core.sender import Sender
from rstream.errors import DataError, RunError
from rstream.operators.ingest import lane_of, part_of
from rstream.runtime.bounded import Arrivals
from rstream.runtime.links import INGEST_METHOD, GrpcConnection, channel_credentials, dial_grpc, start_daemon

ANSWER_S = 5.0
"""How long a worker may take to answer the first message of a stream."""
RETRY_S = 0.1


@dataclass(frozen=True)
class IngestTarget:
    """Where to send to: workers of the topology (any of them will do), the senders' token, and the source's step."""

    workers: tuple[str, ...]
    token: str
    step: str = ""
    """Empty where the topology has one ingest source."""
    tls: LinkConfig = field(default_factory=LinkConfig)


class _Stream:
    """One gRPC stream; its answers come in order, None once it has ended."""

    def __init__(self, endpoint: str, tls: LinkConfig) -> None:
        self._answers: Arrivals[tuple[bytes, bytes] | None] = Arrivals()
        self._connection: GrpcConnection = dial_grpc(
            endpoint,
            lambda _, frame: self._answers.put(frame),
            start_daemon,
            channel_credentials(tls),
            INGEST_METHOD,
        )

    def send(self, request: Request, body: bytes = b"") -> None:
        self._connection.send([Frame(encode(request), body)])

    def answer(self, timeout_s: float) -> Answer | None:
        """The next answer; None when the stream has ended. Raises queue.Empty where nothing comes in time."""
        frame = self._answers.get(timeout_s)
        return None if frame is None else decode_answer(frame[0])

    def close(self) -> None:
        self._answers.close()
        self._connection.close()


def look(target: IngestTarget) -> Places:
    """Ask the workers, one after the other, who takes what; raises what none of them could answer."""
    for endpoint in target.workers:
        stream = _Stream(endpoint, target.tls)
        try:
            stream.send(Look(target.token, target.step))
            answer = stream.answer(ANSWER_S)
        except queue.Empty:
            continue
        finally:
            stream.close()
        if isinstance(answer, Places):
            return answer
        if isinstance(answer, Refusal):
            raise DataError(f"{endpoint} refuses this sender: {answer.reason}")
    names = ", ".join(target.workers) or "(none is known)"
    raise DataError(f"no worker of a topology answers at {names}; does it run there, with the same TLS settings?")


class IngestClient:
    """One partition of a sender. Every call may block: for room in the topology, or for its recovery."""

    def __init__(
        self, target: IngestTarget, sender: str, partition: int = 0, epoch: int = 0, patience_s: float = 120.0
    ) -> None:
        self._target, self._sender, self._partition = target, sender, partition
        self._patience_s = patience_s
        """How long nobody may take the lane before this gives up."""
        self._clock = SystemClock()
        self._machine = Sender(epoch)
        self._stream: _Stream | None = None
        self.waited_s = 0.0
        """How long `send` has waited for the topology to take records: back-pressure."""
        self.reconnects = -1
        self._connect()

    @property
    def covered(self) -> int:
        """So many records of the partition are safe in the topology: begin with the next."""
        return self._machine.place(self._machine.covered)

    @property
    def is_over(self) -> bool:
        """All of this epoch was covered long ago: there is nothing to send."""
        return self._machine.is_over

    @property
    def refused(self) -> list[tuple[int, str]]:
        """(number of the record, reason) of those that the source did not take."""
        return self._machine.refused

    def send(self, values: list[Any]) -> None:
        """Send some records, in order; returns when they are on their way."""
        start_s, waited = self._clock.monotonic(), False
        while not self._machine.has_room:
            waited = True
            self._turn(RETRY_S)
        self._machine.add(values)
        self._turn(0.0)
        while not self._machine.is_sent:
            waited = True
            self._turn(RETRY_S)
        if waited:
            self.waited_s += self._clock.monotonic() - start_s

    def poll(self, wait_s: float = 0.0) -> int:
        """Take in what the source says, for so long at most; gives `covered`. For whoever has nothing to send now."""
        self._turn(wait_s)
        return self.covered

    def finish(self) -> None:
        """Wait until everything is covered."""
        while not self._machine.is_covered:
            self._turn(RETRY_S)

    def close(self) -> None:
        """End the stream; what is not covered would have to be sent again."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def __enter__(self) -> IngestClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _turn(self, wait_s: float) -> None:
        """Send what may be sent, and take in what has come; wait for it if there is nothing."""
        self._ship()
        try:
            while self._stream is not None:
                self._take(self._stream.answer(wait_s))
                wait_s = 0.0
        except queue.Empty:
            pass
        if self._stream is None:
            self._connect()
        self._ship()

    def _ship(self) -> None:
        if self._stream is not None:
            for push, body in self._machine.outgoing():
                self._stream.send(push, body)

    def _take(self, answer: Answer | None) -> None:
        match answer:
            case Progress():
                self._machine.progress(answer)
            case Refusal(reason):
                raise RunError(f"the topology refuses partition {self._partition} of {self._sender!r}: {reason}")
            case None | Elsewhere():
                self.close()

    def _connect(self) -> None:
        end_s = self._clock.monotonic() + self._patience_s
        while True:
            why = self._try_connect()
            if not why:
                self.reconnects += 1
                return
            if self._clock.monotonic() >= end_s:
                raise RunError(
                    f"partition {self._partition} of {self._sender!r}: {why}; {self.covered} records are safe"
                )
            sleep(RETRY_S)

    def _try_connect(self) -> str:
        """Open a stream where the lane is now; gives why that was not possible."""
        try:
            places = look(self._target)
        except DataError as error:
            if self.reconnects < 0:
                raise
            return str(error)
        lane = lane_of(self._sender, self._partition, len(places.lanes))
        if not places.lanes[lane]:
            return f"nobody takes lane {lane} of step {places.step!r}"
        self._target = IngestTarget(
            tuple(dict.fromkeys((*places.workers, *self._target.workers))),
            self._target.token,
            places.step,
            self._target.tls,
        )
        stream = _Stream(places.lanes[lane], self._target.tls)
        stream.send(Open(self._target.token, places.step, lane, part_of(self._sender, self._partition)))
        try:
            answer = stream.answer(ANSWER_S)
        except queue.Empty:
            answer = None
        if not isinstance(answer, Opened):
            stream.close()
            if isinstance(answer, Refusal):
                raise RunError(f"{places.lanes[lane]} refuses this sender: {answer.reason}")
            return f"lane {lane} of step {places.step!r} is not open at {places.lanes[lane]}"
        self._machine.opened(answer)
        self._stream = stream
        return ""
