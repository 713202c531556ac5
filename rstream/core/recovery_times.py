"""What a recovery's time went into: as each worker that brought tasks back measured it, and what `status` makes of it.

Fetching, decoding and loading overlap: pieces are decoded and loaded while later ones are on their way. So `fetch_s` is
the time until everything was there, and `decode_s` and `load_s` are the work that was done, most of it meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class RecoveryTimes:
    """One restore on one worker; times are those of its clock, None where it has not come to that yet."""

    started_s: float
    tasks: int
    fetched_s: float | None = None
    decode_s: float = 0.0
    load_s: float = 0.0
    restored_s: float | None = None
    replayed_s: float | None = None

    def restored(self, now_s: float) -> None:
        """All tasks are back, and replay from now on what they had done."""
        self.restored_s = now_s
        if self.fetched_s is None:
            self.fetched_s = now_s


@dataclass(frozen=True, slots=True)
class Death:
    """A worker with tasks was found dead."""

    worker: str
    noticed_s: float
    tasks: Sequence[str]


def recoveries(deaths: Sequence[Death], times: Iterable[RecoveryTimes]) -> list[dict[str, Any]]:
    """For each death when it was noticed, and the longest of each phase over the workers that then restored tasks.

    >>> [one] = recoveries([Death("w1", 10.0, ["count#0"])], [RecoveryTimes(10.25, 1, 10.5, 0.05, 0.1, 10.75, 11.0)])
    >>> one["start_s"], one["fetch_s"], one["restore_s"], one["replay_s"]
    (0.25, 0.25, 0.5, 0.25)
    """
    known = list(times)
    found = []
    for number, death in enumerate(deaths):
        end_s = deaths[number + 1].noticed_s if number + 1 < len(deaths) else float("inf")
        mine = [each for each in known if death.noticed_s <= each.started_s < end_s]
        found.append(
            {
                "worker": death.worker,
                "noticed_s": death.noticed_s,
                "tasks": list(death.tasks),
                "start_s": _longest((death.noticed_s, each.started_s) for each in mine),
                "fetch_s": _longest((each.started_s, each.fetched_s) for each in mine),
                "decode_s": max((each.decode_s for each in mine), default=None),
                "load_s": max((each.load_s for each in mine), default=None),
                "restore_s": _longest((each.started_s, each.restored_s) for each in mine),
                "replay_s": _longest((each.restored_s, each.replayed_s) for each in mine),
            }
        )
    return found


def _longest(spans: Iterable[tuple[float | None, float | None]]) -> float | None:
    lengths = [end - start for start, end in spans if start is not None and end is not None]
    return max(lengths, default=None)
