"""A source that cannot run out before a test is done with a running topology, however slow the machine is."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rstream.api import Reader
from rstream.operators import sources

LOOK_S = 0.02


class Gated(sources.Rate):
    """As `Rate`, for the first half of its tuples; the second half waits for a file, and then comes at once."""

    def __init__(self, make: Callable[[int], Any], per_s: float, limit: int, gate: Path) -> None:
        super().__init__(make, per_s, limit)
        self.total, self.gate = limit, gate

    def reader(self, split: str, offset: Any) -> Reader:
        part, parts = map(int, split.split("/"))
        return _GatedReader(super().reader(split, offset), len(range(part, self.total, parts)) // 2, self.gate)


class _GatedReader(Reader):
    def __init__(self, paced: Reader, half: int, gate: Path) -> None:
        self._paced, self._half, self._gate = paced, half, gate
        self._open = False

    def read(self, limit: int) -> list[Any] | None:
        paced = self._paced
        paced.now_s = self.now_s
        if self.now_s != math.inf:  # else it is read again what was read before
            self._open = self._open or self._gate.exists()
            if self._open:
                paced.now_s = math.inf
            else:
                limit = min(limit, self._half - paced.offset)
                if limit <= 0:
                    self.idle_s = LOOK_S
                    return []
        values = paced.read(limit)
        self.idle_s = paced.idle_s
        return values

    @property
    def offset(self) -> Any:
        return self._paced.offset
