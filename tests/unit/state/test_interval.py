"""Backups adapt to the load of the node, and the caches stay bounded whatever the load."""

from __future__ import annotations

import pytest

from rstream.errors import ConfigError
from rstream.state.interval import Backup, BackupInterval

RULE = BackupInterval(interval_s=5.0, load_max=0.8, cache_bytes_max=1_000)


def simulate(load: float, bytes_per_s: int, packing_s: int, seconds: int) -> tuple[list[int], int]:
    """Cut times and the largest cache, second by second; a cut is safe after `packing_s`."""
    cuts, largest, cache, since_s, safe_at, cut_bytes = [], 0, 0, 0, -1, 0
    for second in range(seconds):
        under_way = safe_at >= second
        if safe_at == second:
            cache -= cut_bytes
            under_way = False
        decision = RULE.decide(since_s, load, cache, under_way)
        if decision in (Backup.CUT, Backup.FORCE) or (decision is Backup.HOLD and not under_way):
            cuts.append(second)
            since_s, safe_at, cut_bytes = 0, second + packing_s, cache
        if decision is not Backup.HOLD:
            cache += bytes_per_s
        since_s += 1
        largest = max(largest, cache)
    return cuts, largest


def test_an_idle_node_backs_up_at_every_interval() -> None:
    cuts, _ = simulate(load=0.2, bytes_per_s=10, packing_s=1, seconds=21)
    assert cuts == [5, 10, 15, 20]


def test_a_loaded_node_pauses_until_the_caches_are_half_full() -> None:
    cuts, largest = simulate(load=0.95, bytes_per_s=50, packing_s=1, seconds=21)
    assert cuts == [10, 20]
    assert largest < RULE.cache_bytes_max


@pytest.mark.parametrize("load", [0.0, 0.79, 0.8, 1.0])
@pytest.mark.parametrize("packing_s", [1, 7, 30])
@pytest.mark.parametrize("bytes_per_s", [1, 90, 400])
def test_the_caches_never_outgrow_their_bound_by_more_than_one_step(
    load: float, packing_s: int, bytes_per_s: int
) -> None:
    cuts, largest = simulate(load, bytes_per_s, packing_s, seconds=200)
    assert largest < RULE.cache_bytes_max + bytes_per_s
    assert cuts or bytes_per_s == 1


def test_no_second_cut_begins_before_the_first_is_safe() -> None:
    for load, cache_bytes in ((0.1, 0), (0.1, 600), (0.9, 600)):
        assert RULE.decide(60.0, load, cache_bytes, under_way=True) is Backup.WAIT


def test_the_interval_that_results_is_the_shorter_of_the_two_reasons() -> None:
    assert RULE.effective_s(load=0.1, fill_bytes_per_s=50) == 5.0
    assert RULE.effective_s(load=0.1, fill_bytes_per_s=500) == 1.0
    assert RULE.effective_s(load=0.9, fill_bytes_per_s=50) == 10.0
    assert RULE.effective_s(load=0.9, fill_bytes_per_s=0) == float("inf")


def test_a_rule_that_cannot_work_is_refused() -> None:
    with pytest.raises(ConfigError, match="interval_s=0"):
        BackupInterval(interval_s=0.0)
    with pytest.raises(ConfigError, match=r"load_max=1\.5"):
        BackupInterval(load_max=1.5)
