"""A point that bytes pass lets one after the other through, whichever process they come from."""

from __future__ import annotations

import pytest

from rstream.clock import SystemClock, fresh_id
from rstream.runtime.byte_cap import ByteCap, _Point


def test_two_who_name_a_point_alike_share_it_and_others_do_not() -> None:
    name = f"test {fresh_id()}"
    one, same, other = _Point(name), _Point(name), _Point(f"{name}, another")
    start_s = SystemClock.monotonic()
    first_s = one.pass_on(100.0)
    assert first_s == pytest.approx(start_s + 100.0, abs=10.0)
    assert same.pass_on(50.0) == pytest.approx(first_s + 50.0)
    assert one.pass_on(1.0) == pytest.approx(first_s + 51.0)
    assert other.pass_on(1.0) < first_s


def test_without_a_cap_nobody_waits() -> None:
    ByteCap(None, ["anything"]).wait(1 << 40)
    ByteCap(1e12, [f"test {fresh_id()}"]).wait(0)
