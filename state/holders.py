"""Who holds the fragments of a task's snapshots, and what losses that survives.

Holders come from the operator upstream of the task, then from the one before, along the logical ring (the first
operator's upstream is the last), so that recovery finds state next to the tuples to replay. Never the task's own
worker; another node before the own one. A *domain* is what can fail together: a node, or a worker where all workers
are on one node. Everything here is a pure function of the placement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

U_MAX: Final = 10
"""The most fragments that a snapshot is cut into, unless config says otherwise."""


def domains(nodes: Mapping[str, str]) -> dict[str, str]:
    """The failure domain of each worker, from the node that each is on.

    >>> domains({"w1": "n1", "w2": "n2"}), domains({"w1": "n1", "w2": "n1"})
    ({'w1': 'n1', 'w2': 'n2'}, {'w1': 'w1', 'w2': 'w2'})
    """
    if len(set(nodes.values())) >= 2:
        return dict(nodes)
    return {worker: worker for worker in nodes}


@dataclass(frozen=True)
class Survival:
    """What a task's state outlives: the task itself is lost in every case."""

    holders: int
    """How many holders, whichever, may be lost together with the task."""
    own_domain: bool
    """Whether the loss of the task's whole domain is survived."""
    any_domain: bool
    """Whether r fragments are left after the loss of any one domain at all."""

    def __str__(self) -> str:
        if self.holders < 0:
            return "nothing: too few holders"
        lost = (
            f"the task with any {self.holders} of its holders" if self.holders else "the task, with all holders alive"
        )
        if self.any_domain:
            return lost + "; any one domain, even while the task is on the move"
        return lost + ("; its whole domain" if self.own_domain else "; not its whole domain")


@dataclass(frozen=True)
class Layout:
    """Where the fragments of a task go: fragment i to `holders[i]`."""

    worker: str
    holders: tuple[str, ...]
    r: int
    c: int
    survives: Survival
    warning: str = ""


def choose_holders(
    worker: str,
    ring: Sequence[Sequence[str]],
    position: int,
    nodes: Mapping[str, str],
    check: int | None = None,
    u_max: int = U_MAX,
) -> Layout:
    """The holders for a task on `worker` of the operator at `position` of the ring.

    `ring` lists the workers of each operator in topological order; `nodes` all workers of the topology, spares without
    a task included. `check` fixes c; left out, c is such that the loss of any one domain leaves r fragments.

    >>> nodes = {"a": "n1", "b": "n2", "c": "n3", "d": "n1"}
    >>> layout = choose_holders("d", [["a", "b", "c"], ["d"]], 1, nodes)
    >>> layout.holders, layout.r, layout.c
    (('b', 'c'), 1, 1)
    >>> str(layout.survives)
    'the task with any 1 of its holders; any one domain, even while the task is on the move'
    """
    domain_of = domains(nodes)
    order = list(_along_the_ring(worker, ring, position, nodes))
    foreign = [[each for each in layer if domain_of[each] != domain_of[worker]] for layer in order]
    near = [each for layer in order for each in layer if domain_of[each] == domain_of[worker]]
    candidates: list[str] = []
    for layer in foreign:
        if len({domain_of[each] for each in candidates}) >= 2:
            break
        candidates += layer
    if len(candidates) == 1:
        # A second holder at home costs a copy, and serves when only this process or only the other node dies.
        candidates += near[:1]
    holders, c = _balanced(candidates, domain_of, u_max) if check is None else _fixed(candidates, check, u_max)
    if not holders:
        warning = f"worker {worker}: no other worker can hold its state; give the topology a second worker"
        return Layout(worker, (), 1, 0, Survival(-1, False, False), warning)
    r = len(holders) - c
    warning = "" if len(holders) > 1 else f"worker {worker}: one holder only ({holders[0]}), a plain copy; add a worker"
    return Layout(worker, tuple(holders), r, c, survival(worker, holders, r, domain_of), warning)


def _along_the_ring(
    worker: str, ring: Sequence[Sequence[str]], position: int, nodes: Mapping[str, str]
) -> Iterator[list[str]]:
    """All other workers, each once: by operator from the nearest upstream on, at last those without a task."""
    seen = {worker}
    upstream = [ring[(position - step) % len(ring)] for step in range(1, len(ring) + 1)]
    for layer in [*upstream, sorted(nodes)]:
        fresh = [each for each in dict.fromkeys(layer) if each not in seen and each in nodes]
        seen.update(fresh)
        yield fresh


def _balanced(candidates: Sequence[str], domain_of: Mapping[str, str], u_max: int) -> tuple[list[str], int]:
    """Holders in turn from each domain, and c = the most of them in one domain; as many raw fragments as possible.

    Holders that only make their domain's share larger are left out: they would cost bytes and save none.
    """
    turn: Counter[str] = Counter()
    in_turn = []
    for arrival, each in enumerate(candidates):
        in_turn.append((turn[domain_of[each]], arrival, each))
        turn[domain_of[each]] += 1
    ordered = [each for _, _, each in sorted(in_turn)][:u_max]
    if len(turn) < 2:  # all of them fail together, but then the task is alive
        return ordered, len(ordered) // 2
    best: tuple[list[str], int] = ([], 0)
    for u in range(2, len(ordered) + 1):
        c = max(Counter(domain_of[each] for each in ordered[:u]).values())
        if u - c > len(best[0]) - best[1]:
            best = (ordered[:u], c)
    return best


def _fixed(candidates: Sequence[str], check: int, u_max: int) -> tuple[list[str], int]:
    holders = list(candidates[:u_max])
    return holders, max(0, min(check, len(holders) - 1))


def rehome(
    layout: Layout, leaving: Iterable[str], ring: Sequence[Sequence[str]], position: int, nodes: Mapping[str, str]
) -> tuple[Layout, list[tuple[int, str, str]]]:
    """A layout without the workers that leave, and the moves (fragment index, from, to) that lead to it.

    r, c and all other fragments stay. Each fragment goes to the candidate that leaves the fewest fragments in one
    domain, the nearest along the ring on ties. Where no candidate is left the fragment has no move and its place is
    empty: then cut a new snapshot for the layout that `choose_holders` gives. `nodes` are all workers; those that
    leave may be among them.
    """
    gone = set(leaving)
    staying = {worker: node for worker, node in nodes.items() if worker not in gone}
    domain_of = domains(staying)
    own = domain_of.get(layout.worker, "")
    others = [each for layer in _along_the_ring(layout.worker, ring, position, staying) for each in layer]
    candidates = [each for each in others if each not in layout.holders]
    held = Counter(domain_of[each] for each in layout.holders if each not in gone)
    holders, moves = list(layout.holders), []
    for index, holder in enumerate(layout.holders):
        if holder not in gone:
            continue
        if not candidates:
            holders[index] = ""
            continue
        best = min(candidates, key=lambda each: (domain_of[each] == own, held[domain_of[each]]))
        candidates.remove(best)
        held[domain_of[best]] += 1
        holders[index] = best
        moves.append((index, holder, best))
    survives = survival(layout.worker, holders, layout.r, domain_of)
    return replace(layout, holders=tuple(holders), survives=survives), moves


def survival(worker: str, holders: Sequence[str], r: int, domain_of: Mapping[str, str]) -> Survival:
    """What a placement of fragments survives; an empty name is a place without a holder."""
    present = [holder for holder in holders if holder]
    per_domain = Counter(domain_of[holder] for holder in present)
    at_home = per_domain[domain_of[worker]] if worker in domain_of else 0
    left = len(present) - at_home >= r
    return Survival(len(present) - r, left, left and all(len(present) - lost >= r for lost in per_domain.values()))


def combined(survivals: Iterable[Survival]) -> Survival | None:
    """What all of them survive: the line for a whole topology; None without stateful tasks."""
    every = list(survivals)
    if not every:
        return None
    return Survival(
        min(each.holders for each in every),
        all(each.own_domain for each in every),
        all(each.any_domain for each in every),
    )


def backup_layout(layers: Sequence[int], check: int) -> list[tuple[int, int, int, int]]:
    """The paper's layout: (holder layer, u, r, c) for each layer of instances, with a fixed number of check blocks.

    >>> backup_layout([1, 10, 8, 1], check=3)
    [(3, 1, 1, 0), (0, 1, 1, 0), (1, 10, 7, 3), (2, 8, 5, 3)]
    """
    laid_out = []
    for layer in range(len(layers)):
        upstream = (layer - 1) % len(layers)
        u = layers[upstream]
        c = min(check, u - 1)
        laid_out.append((upstream, u, u - c, c))
    return laid_out
