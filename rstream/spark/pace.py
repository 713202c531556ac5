"""When the rows of a replay are due. No Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rstream.spark.profile import Profile


@dataclass(frozen=True)
class Pace:
    """When rows are due: by a profile, by their own times, or at once."""

    profile: Profile | None = None
    speed: float | None = None
    """So many seconds of event time pass in one second."""
    origin_s: float = 0.0
    """The event time of the first row."""

    def due_s(self, numbers: Any, times: Any) -> Any:
        """Seconds after the start at which rows are due: by their numbers among all rows, and their event times."""
        if self.profile is not None:
            return self.profile.due_s(numbers)
        return np.zeros(len(numbers)) if self.speed is None else (times - self.origin_s) / self.speed
