"""How a lost task comes back: which snapshot, which records, from whom. A pure choice from the answers to a fence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rstream.core.backup import LostTask
from rstream.core.channel import TaskId
from rstream.core.order import OrderLog
from rstream.core.restoring import Place, Restore
from rstream.errors import ProtocolError, StateLost
from rstream.state.erasure import Epoch
from rstream.state.fragments import Held, newest_chain


def plan_restore(task: TaskId, answers: Mapping[str, Mapping[TaskId, LostTask]]) -> Restore:
    """The newest snapshot that can be decoded, and the longest run of records from its position on (R4)."""
    known = {worker: answer[task] for worker, answer in answers.items() if task in answer}
    inventory = [held for each in known.values() for held in each.inventory]
    stable = max((each.stable for each in known.values()), default=0)
    chain = newest_chain(inventory)
    epoch = chain[-1] if chain else None
    position = _position_of(known, epoch) if epoch is not None else 0
    if position < stable:
        raise StateLost(
            f"{task}: its snapshot at step {stable} was acknowledged, but the newest that can be rebuilt is at step "
            f"{position}: {_what_is_lost(inventory)}; more was lost than the backups cover"
        )
    places = sorted(
        Place(held.label.epoch, held.index, held.r, worker)
        for worker, each in known.items()
        for held in each.inventory
        if chain is not None and held.label.epoch in chain
    )
    log = OrderLog(position)
    for each in sorted(known.values(), key=lambda each: each.base):
        if each.base <= log.end:
            log.extend(each.base, each.records)
    return Restore(task, tuple(chain or ()), log.records, tuple(places))


def _what_is_lost(inventory: Sequence[Held]) -> str:
    """Which snapshot the newest one of which anything is left cannot be rebuilt for want of."""
    found: dict[Epoch, dict[int, Held]] = {}
    for each in inventory:
        found.setdefault(each.label.epoch, {})[each.index] = each
    at = max(found, default=None)
    if at is None:
        return "no fragment of any snapshot is left"
    while at in found and len(found[at]) >= next(iter(found[at].values())).r:
        previous = next(iter(found[at].values())).label.previous
        if previous is None:
            return f"no fragment of any snapshot after {at} is left"
        at = previous
    if at not in found:
        return f"no fragment of snapshot {at} is left"
    one = next(iter(found[at].values()))
    return f"of snapshot {at} {len(found[at])} of {one.r + one.c} fragments are left and {one.r} are needed"


def _position_of(known: Mapping[str, LostTask], epoch: tuple[int, int]) -> int:
    for each in known.values():
        if epoch in each.positions:
            return each.positions[epoch]
    raise ProtocolError(f"nobody knows at which step snapshot {epoch} was cut")
