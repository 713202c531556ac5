"""Unit tests take no time and start nothing: `sleep` and `ray.init` raise here."""

from __future__ import annotations

import sys
import time

import pytest
from hypothesis import settings

# How long one example takes depends on what else the machine does; a test is not about that.
settings.register_profile("no deadlines", deadline=None)
settings.load_profile("no deadlines")


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("unit tests neither sleep nor start Ray; use a ManualClock or the embedded host")

    monkeypatch.setattr(time, "sleep", refuse)
    if "ray" in sys.modules:
        monkeypatch.setattr(sys.modules["ray"], "init", refuse)
