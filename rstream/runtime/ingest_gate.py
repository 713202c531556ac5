"""Ingest on the embedded host: one gRPC endpoint on this machine for all of its workers."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Sequence
from typing import Any

from rstream.clock import fresh_id
from rstream.config import Config
from rstream.core.intake import Intake
from rstream.core.worker import WorkerMachine
from rstream.runtime.bounded import Arrivals
from rstream.runtime.ingest_client import IngestTarget
from rstream.runtime.ingest_door import IngestDoor, ingest_token
from rstream.runtime.links import GrpcListener, server_credentials


class IngestGate:
    """Listens for senders; frames wait until the host's turn."""

    def __init__(self, config: Config) -> None:
        self._token, self._tls = ingest_token(config, fresh_id()), config.links
        self._arrived: Arrivals[tuple[Any, tuple[bytes, bytes] | None]] = Arrivals()
        self._early: tuple[Any, tuple[bytes, bytes] | None] | None = None
        self._door: IngestDoor | None = None
        self._listener = GrpcListener(
            "127.0.0.1",
            lambda _: None,
            lambda connection, _: connection.close(),
            server_credentials(config.links),
            lambda connection, frame: self._arrived.put((connection, frame)),
        )
        self.endpoint = self._listener.endpoint

    def target(self, step: str = "") -> IngestTarget:
        """Where to send to."""
        return IngestTarget((self.endpoint,), self._token, step, self._tls)

    def open(self, machines: Sequence[WorkerMachine]) -> None:
        """Let senders in; all machines of the process are behind one endpoint."""
        self._door = IngestDoor(Intake(machines, self._token))

    def turn(self) -> bool:
        """Hand over what has arrived; True if anything had."""
        worked = False
        while self._door is not None and (found := self._next()) is not None:
            self._door.arrived(*found)
            worked = True
        return worked

    def _next(self) -> tuple[Any, tuple[bytes, bytes] | None] | None:
        found, self._early = self._early, None
        if found is None:
            with contextlib.suppress(queue.Empty):
                found = self._arrived.get()
        return found

    def answer(self, at_rest: bool) -> None:
        """Tell senders how far they are."""
        if self._door is not None:
            self._door.answer(at_rest)

    def wait(self, timeout_s: float) -> None:
        """Wait for a sender, for so long at most."""
        if self._early is None and timeout_s > 0.0:
            with contextlib.suppress(queue.Empty):
                self._early = self._arrived.get(timeout_s)

    def close(self) -> None:
        """Let nobody in any more."""
        self._arrived.close()
        self._listener.close()
