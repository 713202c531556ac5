"""When a task cuts its next snapshot: Es-Stream's interval that adapts to the load of the node, with a bound.

The paper stops backups while a node is loaded, which lets the caches upstream grow for ever. Here the bytes that wait
for the next snapshot are bounded: half way to the bound a loaded node cuts nevertheless, and at the bound the task's
inputs have to wait. Time, load and bytes are arguments; nothing is measured here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from rstream.errors import ConfigError

FORCE_SHARE: Final = 0.5
"""The share of the bound at which a snapshot is cut whatever the load: what is left is room for packing it."""


PATIENCE: Final = 6.0
"""So many intervals a loaded node may leave its tasks without a snapshot: what has to be replayed stays bounded too."""


def wait_s(interval_s: float, load: float, load_max: float) -> float:
    """How long after the last cut the next one is due, by the load of the node.

    >>> wait_s(5.0, load=0.4, load_max=0.8), wait_s(5.0, load=0.9, load_max=0.8)
    (5.0, 30.0)
    """
    return interval_s if load < load_max else interval_s * PATIENCE


class Backup(Enum):
    """What to do now."""

    WAIT = "wait"
    CUT = "cut"
    """The interval is over and the node has time."""
    FORCE = "force"
    """The caches are filling up: cut although the node is loaded, or the interval is not over."""
    HOLD = "hold"
    """The caches are full: take no input until a snapshot is safe; cut one if none is under way."""


@dataclass(frozen=True)
class BackupInterval:
    """The rule for one task.

    >>> rule = BackupInterval(interval_s=5.0, cache_bytes_max=1000)
    >>> rule.decide(since_s=5.0, load=0.4, cache_bytes=100)
    <Backup.CUT: 'cut'>
    >>> rule.decide(since_s=5.0, load=0.9, cache_bytes=100)
    <Backup.WAIT: 'wait'>
    >>> rule.decide(since_s=5.0, load=0.9, cache_bytes=500)
    <Backup.FORCE: 'force'>
    """

    interval_s: float = 5.0
    load_max: float = 0.8
    """The paper's alpha: from this load of the node on (largest of CPU, memory, I/O), backups pause."""
    cache_bytes_max: int = 64 << 20
    """The most that upstream tasks may have to keep for one task."""

    def __post_init__(self) -> None:
        if self.interval_s <= 0 or not 0 < self.load_max <= 1 or self.cache_bytes_max < 1:
            raise ConfigError(
                "backup interval: wanted interval_s > 0, 0 < load_max <= 1 and cache_bytes_max >= 1, got "
                f"interval_s={self.interval_s:g}, load_max={self.load_max:g}, cache_bytes_max={self.cache_bytes_max}"
            )

    def decide(self, since_s: float, load: float, cache_bytes: int, under_way: bool = False) -> Backup:
        """What to do `since_s` seconds after the last cut; `under_way` while one is not yet safe."""
        if cache_bytes >= self.cache_bytes_max:
            return Backup.HOLD
        if under_way:
            return Backup.WAIT
        if cache_bytes >= self.cache_bytes_max * FORCE_SHARE:
            return Backup.FORCE
        return Backup.CUT if since_s >= self.interval_s and load < self.load_max else Backup.WAIT

    def effective_s(self, load: float, fill_bytes_per_s: float) -> float:
        """The interval that results at a steady load and input: what `status` and the lab show."""
        if fill_bytes_per_s <= 0:
            return self.interval_s if load < self.load_max else float("inf")
        forced_s = self.cache_bytes_max * FORCE_SHARE / fill_bytes_per_s
        return min(self.interval_s, forced_s) if load < self.load_max else forced_s
