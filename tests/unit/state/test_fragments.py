"""A holder keeps every fragment that a restore may need, and nothing longer than that."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from rstream.state.erasure import Epoch, Fragment, Label, decode, encode
from rstream.state.fragments import FragmentStore, newest_chain


def snapshot(n: int, previous: Epoch | None = None, base: Epoch | None = None, tinc: int = 1) -> list[Fragment]:
    return encode(f"snapshot {n}".encode() * 10, 2, 1, Label("count/0", (tinc, n), previous, base))


def held_epochs(store: FragmentStore) -> list[Epoch]:
    return sorted({held.label.epoch for held in store.inventory("count/0")})


def test_an_old_base_goes_only_when_a_newer_base_is_safe() -> None:
    store = FragmentStore()
    store.put(snapshot(1)[0])
    store.put(snapshot(2, (1, 1), (1, 1))[0])
    assert store.safe("count/0", (1, 2), base=(1, 1)) == 0
    store.put(snapshot(3)[0])
    assert held_epochs(store) == [(1, 1), (1, 2), (1, 3)]
    before = store.bytes_held
    freed = store.safe("count/0", (1, 3), base=(1, 3))
    assert held_epochs(store) == [(1, 3)]
    assert freed == before - store.bytes_held > 0
    store.validate()


def test_a_delta_that_the_safe_chain_passes_by_is_dropped() -> None:
    store = FragmentStore()
    store.put(snapshot(1)[0])
    store.put(snapshot(2, (1, 1), (1, 1))[0])  # never became safe
    store.put(snapshot(3, (1, 1), (1, 1))[0])
    store.safe("count/0", (1, 3), base=(1, 1))
    assert held_epochs(store) == [(1, 1), (1, 3)]


def test_a_holder_that_lacks_a_link_keeps_what_it_cannot_judge() -> None:
    store = FragmentStore()
    store.put(snapshot(1)[0])
    store.put(snapshot(2, (1, 1), (1, 1))[0])
    store.safe("count/0", (1, 4), base=(1, 1))
    assert held_epochs(store) == [(1, 1), (1, 2)]


def test_a_safe_word_does_not_touch_what_is_newer() -> None:
    store = FragmentStore()
    store.put(snapshot(1)[0])
    store.put(snapshot(2)[0])
    store.safe("count/0", (1, 1), base=(1, 1))
    assert held_epochs(store) == [(1, 1), (1, 2)]


def test_fragments_of_an_earlier_incarnation_are_refused_and_held_ones_stay() -> None:
    store = FragmentStore()
    assert store.put(snapshot(5)[0])
    store.fence("count/0", 2)
    assert not store.put(snapshot(6)[0])
    assert held_epochs(store) == [(1, 5)]
    assert store.put(snapshot(1, tinc=3)[0])
    assert not store.put(snapshot(9, tinc=2)[0])
    store.safe("count/0", (3, 1), base=(3, 1))
    assert held_epochs(store) == [(3, 1)]


def test_a_damaged_fragment_is_not_taken() -> None:
    store = FragmentStore()
    assert not store.put(replace(snapshot(1)[0], pieces=(b"something else",)))
    assert store.bytes_held == 0
    assert store.tasks() == []


def test_the_newest_snapshot_whose_whole_chain_is_there_wins() -> None:
    workers = [FragmentStore() for _ in range(3)]
    base, delta, late = snapshot(1), snapshot(2, (1, 1), (1, 1)), snapshot(3, (1, 2), (1, 1))
    for worker, pieces in zip(workers, zip(base, delta, late, strict=True), strict=True):
        for piece in pieces:
            worker.put(piece)
    everyone = [held for worker in workers for held in worker.inventory("count/0")]
    assert newest_chain(everyone) == [(1, 1), (1, 2), (1, 3)]
    without = [held for held in everyone if held.label.epoch != (1, 2) or held.index == 0]
    assert newest_chain(without) == [(1, 1)]
    assert newest_chain(held for held in everyone if held.label.epoch != (1, 1)) is None
    assert newest_chain([]) is None
    assert decode(worker.get("count/0", (1, 3))[0] for worker in workers[1:]) == b"snapshot 3" * 10


def test_a_worker_alone_knows_what_it_could_restore() -> None:
    store = FragmentStore()
    first, second, _ = snapshot(1)
    store.put(first)
    assert store.newest_complete("count/0") is None
    store.put(second)
    assert store.newest_complete("count/0") == (1, 1)
    store.drop_fragment("count/0", (1, 1), 0)
    assert store.newest_complete("count/0") is None
    store.validate()


def test_the_bytes_add_up_whatever_happens() -> None:
    random, store = Random(3), FragmentStore()
    made = [snapshot(n, tinc=tinc) for tinc in (1, 2) for n in range(1, 6)]
    for _ in range(300):
        fragment = random.choice(random.choice(made))
        epoch = fragment.label.epoch
        match random.randrange(4):
            case 0 | 1:
                store.put(fragment)
            case 2:
                store.drop_fragment("count/0", epoch, fragment.index)
            case _:
                store.safe("count/0", epoch, epoch)
        store.validate()
    store.drop_task("count/0")
    assert (store.bytes_held, store.tasks()) == (0, [])
    assert store.put(made[0][0])
