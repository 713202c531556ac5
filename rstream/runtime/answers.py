"""The answers of workers to the coordinator's calls, handled one at a time and never on Ray's own threads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from rstream.errors import RunError
from rstream.runtime.bounded import Orders

_LOG = logging.getLogger(__name__)


class Answers(threading.Thread):
    """Runs a handler for every answer that has come, under the coordinator's lock."""

    def __init__(self, lock: threading.RLock) -> None:
        super().__init__(name="rstream-answers", daemon=True)
        self._lock = lock
        self._done: Orders[tuple[Callable[[Any], None], Any]] = Orders("answers of workers")

    def when(self, reference: Any, then: Callable[[Any], None], otherwise: Callable[[BaseException], None]) -> None:
        """Handle the result of a call when it is there, or its error."""

        def completed(future: Any) -> None:
            error = future.exception()
            if error is not None:
                self.put(otherwise, error)
            else:
                self.put(then, future.result())

        reference.future().add_done_callback(completed)

    def put(self, handle: Callable[[Any], None], value: Any) -> None:
        """Handle something that did not come from a call in its turn too."""
        try:
            self._done.put((handle, value))
        except RunError:
            # Ray's threads, which may have brought it, say nothing of what they are raised.
            _LOG.critical("an answer of a worker is lost", exc_info=True)
            raise

    def run(self) -> None:
        while True:
            handle, value = self._done.get()
            with self._lock:
                try:
                    handle(value)
                except Exception:
                    # One topology's trouble must not stop the answers of the others.
                    _LOG.exception("an answer of a worker could not be handled")
