"""Unit tests take no time and start nothing: `sleep` and `ray.init` raise here."""

from __future__ import annotations

import sys
import time

import pytest
from hypothesis import settings

# How long one example takes depends on what else the machine does; a test is not about that. And what fails here fails
# everywhere, with the same examples.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("unit tests neither sleep nor start Ray; use a ManualClock or the embedded host")

    monkeypatch.setattr(time, "sleep", refuse)
    if "ray" in sys.modules:
        monkeypatch.setattr(sys.modules["ray"], "init", refuse)
