"""Adapters from the vector functions about state (names and arguments in `golden/signatures.md`) to product code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from rstream.errors import StateLost
from rstream.state.erasure import Label, decode, encode
from rstream.state.holders import backup_layout
from rstream.state.index import PrefixTree
from rstream.state.repartition import Cached, repartition, replay


def rs_recover(r: int, c: int, lost: list[int]) -> dict[str, Any]:
    """Whether what is left after a loss pattern gives the bytes back, tried with real bytes."""
    data = bytes(range(256)) * 5
    left = [fragment for fragment in encode(data, r, c, Label("t/0", (1, 1))) if fragment.index not in lost]
    try:
        recover = decode(left) == data
    except StateLost:
        recover = False
    return {"alive": len(left), "recover": recover}


def sl_prefix_lookup(paths: dict[str, Any], query: str) -> dict[str, Any]:
    """The value of a path in the index, or None."""
    tree = PrefixTree[Any]()
    for path, value in paths.items():
        tree.put(path, value)
    return {"value": tree.get(query)}


def sl_backup_layout(layers: list[int], check: int) -> dict[str, Any]:
    """Where each layer's blocks go."""
    rows = backup_layout(layers, check)
    return {"layout": [{"holder_layer": holder, "u": u, "r": r, "c": c} for holder, u, r, c in rows]}


def es_repartition(hashes: dict[str, int], m_old: int, m_new: int) -> dict[str, Any]:
    """Which keys move when the owner is the hash modulo the number of owners."""
    plan = repartition(
        hashes, range(m_old), range(m_new), lambda key: hashes[key] % m_old, lambda key: hashes[key] % m_new
    )
    split = {str(old): {str(new): keys for new, keys in parts.items()} for old, parts in plan.split.items()}
    merged = {str(new): keys for new, keys in plan.merged.items()}
    return {"split": split, "merged": merged, "moves": {k: [*v] for k, v in plan.moves.items()}, "stay": plan.stay}


def es_replay(
    m_old: int, m_new: int, cache: dict[str, Any], snap_seq: dict[str, Any], snap_count: dict[str, int]
) -> dict[str, Any]:
    """What is replayed to whom, and what the counts are then."""
    hashes = {key: number for tuples in cache.values() for _, key, number in tuples}
    cached = [Cached(upstream, seq, key) for upstream, tuples in cache.items() for seq, key, _ in tuples]
    covered = {upstream: {int(old): seq for old, seq in seqs.items()} for upstream, seqs in snap_seq.items()}
    again = replay(cached, covered, range(m_new), lambda key: hashes[key] % m_old, lambda key: hashes[key] % m_new)
    count = Counter(snap_count)
    count.update(each.key for tuples in again.values() for each in tuples)
    owner = {key: str(hashes[key] % m_new) for key in count if key in hashes}
    sent = {str(new): [[each.upstream, each.seq] for each in tuples] for new, tuples in again.items()}
    return {"count": dict(count), "owner": owner, "replay": sent}


ADAPTERS: dict[str, Callable[..., dict[str, Any]]] = {
    "rs_recover": rs_recover,
    "sl_prefix_lookup": sl_prefix_lookup,
    "sl_backup_layout": sl_backup_layout,
    "es_repartition": es_repartition,
    "es_replay": es_replay,
}
