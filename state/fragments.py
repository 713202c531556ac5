"""What a worker holds for others: fragments of their snapshots, by task, epoch and index.

A snapshot is a base, or a delta that changes the snapshot before it, so a restore needs a whole chain. Nothing that a
chain still needs is dropped: older epochs go when the owner says that a newer one is safe, and an old base only when
the newer one builds on another base. Fragments of a task's earlier incarnation are refused once a later one is known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from rstream.state.erasure import Epoch, Fragment, Label


@dataclass(frozen=True)
class Held:
    """One line of an inventory: which fragment is held, and how many of its kind a decode needs."""

    label: Label
    index: int
    r: int
    size_bytes: int
    c: int = 0
    """How many more than r there were."""


class FragmentStore:
    """The fragments that one worker holds.

    >>> from rstream.state.erasure import encode
    >>> store = FragmentStore()
    >>> fragments = encode(b"state", 1, 1, Label("count/0", (1, 1)))
    >>> store.put(fragments[0]), store.bytes_held
    (True, 5)
    """

    def __init__(self) -> None:
        self._fragments: dict[str, dict[Epoch, dict[int, Fragment]]] = {}
        self._incarnations: dict[str, int] = {}
        self._bytes: dict[str, int] = defaultdict(int)

    @property
    def bytes_held(self) -> int:
        """The contents of all fragments together."""
        return sum(self._bytes.values())

    def bytes_of(self, task: str) -> int:
        """The contents of all fragments of one task."""
        return self._bytes.get(task, 0)

    def tasks(self) -> list[str]:
        """The tasks that fragments are held for, sorted."""
        return sorted(self._fragments)

    def fence(self, task: str, incarnation: int) -> None:
        """From now on refuse fragments of earlier incarnations of a task; those already held stay."""
        self._incarnations[task] = max(incarnation, self._incarnations.get(task, 0))

    def put(self, fragment: Fragment, checked: bool = False) -> bool:
        """Hold a fragment; False, and nothing held, if it is damaged or from an earlier incarnation.

        `checked` spares the checksum where it was computed on arrival.
        """
        task, epoch = fragment.label.task, fragment.label.epoch
        if epoch[0] < self._incarnations.get(task, 0) or not (checked or fragment.is_good()):
            return False
        self.fence(task, epoch[0])
        by_index = self._fragments.setdefault(task, {}).setdefault(epoch, {})
        replaced = by_index.get(fragment.index)
        self._bytes[task] += fragment.size_bytes - (0 if replaced is None else replaced.size_bytes)
        by_index[fragment.index] = fragment
        return True

    def safe(self, task: str, epoch: Epoch, base: Epoch) -> int:
        """The snapshot `epoch`, built on `base`, is safe: drop what no restore needs any more; the bytes freed.

        Epochs before the base go, and so do those after it that the chain of `epoch` passes by.
        """
        before = self.bytes_of(task)
        chain = self._chain_here(task, epoch)
        for old in [old for old in self._fragments.get(task, {}) if old < epoch]:
            if old < base or (chain is not None and old not in chain):
                self._drop(task, old)
        return before - self.bytes_of(task)

    def drop_task(self, task: str) -> None:
        """Forget all fragments of a task, and its incarnation: its topology is gone."""
        self._fragments.pop(task, None)
        self._bytes.pop(task, None)
        self._incarnations.pop(task, None)

    def drop_fragment(self, task: str, epoch: Epoch, index: int) -> None:
        """Forget one fragment, if it is held: it has a new home."""
        by_index = self._fragments.get(task, {}).get(epoch, {})
        fragment = by_index.pop(index, None)
        if fragment is not None:
            self._bytes[task] -= fragment.size_bytes
            if not by_index:
                self._drop(task, epoch)

    def drop_bad(self, task: str) -> int:
        """Forget fragments that fail their checksum, before anybody relies on them; how many there were."""
        bad = [
            (epoch, index)
            for epoch, by_index in self._fragments.get(task, {}).items()
            for index, fragment in by_index.items()
            if not fragment.is_good()
        ]
        for epoch, index in bad:
            self.drop_fragment(task, epoch, index)
        return len(bad)

    def find(self, task: str, epoch: Epoch, index: int) -> Fragment | None:
        """One fragment, if it is held."""
        return self._fragments.get(task, {}).get(epoch, {}).get(index)

    def get(self, task: str, epoch: Epoch) -> list[Fragment]:
        """The fragments of one snapshot that are held here, by index."""
        by_index = self._fragments.get(task, {}).get(epoch, {})
        return [by_index[index] for index in sorted(by_index)]

    def inventory(self, task: str) -> list[Held]:
        """What is held for a task: the answer to a fence."""
        return [
            Held(fragment.label, index, fragment.r, fragment.size_bytes, fragment.c)
            for _, by_index in sorted(self._fragments.get(task, {}).items())
            for index, fragment in sorted(by_index.items())
        ]

    def newest_complete(self, task: str) -> Epoch | None:
        """The newest snapshot that could be restored from this worker alone."""
        chain = newest_chain(self.inventory(task))
        return chain[-1] if chain else None

    def validate(self) -> None:
        """Check the byte counts and that nothing empty is kept; for tests."""
        for task, epochs in self._fragments.items():
            assert epochs, f"{task}: listed without fragments"
            assert all(epochs.values()), f"{task}: an empty epoch is still listed"
            held = sum(each.size_bytes for by_index in epochs.values() for each in by_index.values())
            assert held == self._bytes[task], f"{task}: {held} bytes held, {self._bytes[task]} accounted"

    def _drop(self, task: str, epoch: Epoch) -> None:
        by_index = self._fragments[task].pop(epoch)
        self._bytes[task] -= sum(fragment.size_bytes for fragment in by_index.values())
        if not self._fragments[task]:
            del self._fragments[task], self._bytes[task]

    def _chain_here(self, task: str, epoch: Epoch) -> set[Epoch] | None:
        """The epochs that `epoch` builds on as far as this worker knows, or None when a link is missing."""
        chain: set[Epoch] = set()
        at: Epoch | None = epoch
        while at is not None:
            by_index = self._fragments.get(task, {}).get(at)
            if not by_index:
                return None
            chain.add(at)
            at = next(iter(by_index.values())).label.previous
        return chain


def newest_chain(held: Iterable[Held]) -> list[Epoch] | None:
    """The newest snapshot of a task that can be rebuilt, as its chain from the base on, or None.

    Each link needs at least r fragments of its own epoch, from whichever workers.

    >>> base, delta = Label("t", (1, 1)), Label("t", (1, 2), previous=(1, 1), base=(1, 1))
    >>> newest_chain([Held(base, 0, 1, 5), Held(delta, 0, 2, 5), Held(delta, 1, 2, 5)])
    [(1, 1), (1, 2)]
    >>> newest_chain([Held(base, 0, 1, 5), Held(delta, 0, 2, 5)])
    [(1, 1)]
    """
    indexes: dict[tuple[Label, int], set[int]] = defaultdict(set)
    for each in held:
        indexes[each.label, each.r].add(each.index)
    labels = {label.epoch: label for (label, r), found in indexes.items() if len(found) >= r}
    for epoch in sorted(labels, reverse=True):
        chain: list[Epoch] = []
        at: Epoch | None = epoch
        while at is not None and at in labels:
            chain.append(at)
            at = labels[at].previous
        if at is None:
            return chain[::-1]
    return None
