"""A rescale by split backups and replay loses nothing and counts nothing twice."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from rstream.state.repartition import Cached, repartition, replay


@given(st.lists(st.integers(0, 999), unique=True), st.integers(1, 6), st.integers(1, 6))
def test_every_key_ends_at_its_new_owner_and_only_those_with_another_owner_move(
    keys: list[int], before: int, after: int
) -> None:
    plan = repartition(keys, range(before), range(after), lambda key: key % before, lambda key: key % after)
    assert plan.merged == {new: [key for key in sorted(keys) if key % after == new] for new in range(after)}
    assert {*plan.moves} == {key for key in keys if key % before != key % after}
    assert {*plan.stay} == {*keys} - {*plan.moves}
    parts = [key for parts in plan.split.values() for part in parts.values() for key in part]
    assert sorted(parts) == sorted(keys)


@given(st.integers(1, 5), st.integers(1, 5), st.randoms(use_true_random=False))
def test_counts_are_exact_though_snapshots_were_taken_at_different_times(
    before: int, after: int, random: Random
) -> None:
    cache = [Cached(f"u{up}", seq, random.randrange(12)) for up in range(3) for seq in range(1, 20)]
    covered = {f"u{up}": {old: random.randrange(20) for old in range(before)} for up in range(3)}
    in_snapshots = Counter(each.key for each in cache if each.seq <= covered[each.upstream][each.key % before])
    again = replay(cache, covered, range(after), lambda key: key % before, lambda key: key % after)
    assert all(each.key % after == owner for owner, tuples in again.items() for each in tuples)
    replayed = Counter(each.key for tuples in again.values() for each in tuples)
    assert in_snapshots + replayed == Counter(each.key for each in cache)


def test_an_upstream_that_no_snapshot_has_seen_is_replayed_whole() -> None:
    again = replay([Cached("new", 1, "k")], {}, [0], lambda _: 0, lambda _: 0)
    assert again == {0: [Cached("new", 1, "k")]}
