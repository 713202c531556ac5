"""A topology with a state of a given size whose stateful worker is killed, and how long its results are late for it."""

from __future__ import annotations

import os
import random
import signal
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

from benchmarks.stateful import CELL_BYTES, WARM_S, Scheduled, delayed_s, end, start, wait_calm, wait_ready
from rstream.clock import SystemClock, sleep
from rstream.keys import SLOTS, slot_of


@dataclass(frozen=True)
class Case:
    """One run: what is killed after how much state was gathered."""

    experiment: str
    backend: str
    state_mb: float
    interval_s: float
    per_s: float
    tasks: int = 4
    """Of the stateful step, over which its state is spread; the worker with the last one is killed."""
    bytes_per_s: float | None = None
    on_one: bool = False
    """All keys belong to the task that is killed."""

    @property
    def keys(self) -> int:
        """How many keys make that much state."""
        return max(self.tasks, int(self.state_mb * 1e6 / CELL_BYTES))

    def items(self) -> list[int] | None:
        """The keys, where they all belong to the last task."""
        if not self.on_one:
            return None
        first = SLOTS * (self.tasks - 1) // self.tasks
        return list(islice((key for key in count() if slot_of(key) >= first), self.keys))


def run_case(case: Case, folder: Path, chance: random.Random) -> dict[str, Any]:
    """Run it, kill, and give the phases; wrong counts are an error."""
    name = f"{case.experiment}-{case.backend}-{case.state_mb:g}-{case.interval_s:g}".lower()
    path = folder / f"{name}-{chance.randrange(1 << 30)}.arrivals"
    source = Scheduled(SystemClock.now() + WARM_S, case.keys, case.per_s, case.items())
    handle = start(name, source, path, case.tasks, case.interval_s, case.backend, case.bytes_per_s)
    wait_ready(handle, path, source)
    sleep(chance.uniform(0.0, case.interval_s))
    victims = [w for w in handle.status()["workers"] if f"count#{case.tasks - 1}" in w["tasks"]]
    killed_s = SystemClock.now()
    os.kill(victims[0]["pid"], signal.SIGKILL)
    recovery = wait_calm(handle, path, source, lambda status: status["restarts"] == 1)["recoveries"][-1]
    arrivals = end(handle, path, source)
    return {
        "experiment": case.experiment,
        "backend": case.backend,
        "state_mb": case.state_mb,
        "interval_s": case.interval_s,
        "mb_per_s": None if case.bytes_per_s is None else case.bytes_per_s / 1e6,
        "recovery_s": delayed_s(arrivals, source, killed_s),
        "detect_s": recovery["noticed_s"] - killed_s,
        **{phase: recovery[phase] for phase in ("start_s", "fetch_s", "decode_s", "load_s", "restore_s", "replay_s")},
    }
