"""The one way in which a test waits: for a condition, until a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], what: str, timeout_s: float = 90.0, every_s: float = 0.05) -> T:
    """The first true answer of `condition`; fails the test with `what` when there is none in time."""
    end_s = time.monotonic() + timeout_s
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() >= end_s:
            raise AssertionError(f"waited {timeout_s:g} s for {what}; last answer: {answer!r}")
        time.sleep(every_s)
