"""Snapshots are packed and loaded in small pieces of work; chains, damaged fragments and late writes come out right."""

from __future__ import annotations

from typing import Any

import pytest

from rstream.core.channel import Batch, TaskId
from rstream.core.context import fresh_state
from rstream.core.packing import Packer
from rstream.core.restoring import Piece, Place, Pulling, Restore
from rstream.errors import StateLost
from rstream.state.erasure import Epoch, Fragment, FragmentWriter, Label
from rstream.state.keyed import KeyedState

TASK = TaskId("count", 0)


def content(position: int, batches: list[Batch], base: int = 0) -> dict[str, Any]:
    return {
        "position": position,
        "ended": False,
        "routers": [],
        "outs": [[[0, 0, 0], base, 0, batches, [], False]],
        "own": None,
    }


def batch(first: int) -> Batch:
    return Batch(first, 2, 0, ["a", "b"], None, 1.5)


def fragments(
    state: KeyedState, epoch: Epoch, head: dict[str, Any], previous: Epoch | None = None, during: Any = None
) -> list[Fragment]:
    label = Label(str(TASK), epoch, previous, (0, 1) if previous else None)
    cut = state.begin_snapshot(full=previous is None)
    packer = Packer(head, cut, FragmentWriter(label, 2, 1, stripe_bytes=200), lambda: 0.0, items=3)
    while packer.work():
        if during is not None:
            during()
    assert packer.fragments is not None
    return packer.fragments


def counted(keys: int) -> KeyedState:
    state = fresh_state()
    count = state.value("count", default="")
    for state.current in range(keys):
        count.set(f"value {state.current}")
    return state


def pulling(chain: list[list[Fragment]]) -> Pulling:
    epochs = [made[0].label.epoch for made in chain]
    places = [Place(each.label.epoch, each.index, each.r, f"w{each.index}") for made in chain for each in made]
    return Pulling(Restore(TASK, tuple(epochs), [], tuple(places)), "here")


def send(pull: Pulling, made: Fragment, bodies: list[bytes] | None = None) -> None:
    for number, body in enumerate(bodies or made.pieces):
        label = made.label
        facts = (made.r, made.c, made.length, made.code, made.checksum)
        piece = Piece(made.index, number, len(made.pieces), label.previous, label.base, *facts)
        pull.take(label.epoch, piece, body)


def test_a_base_and_its_deltas_give_state_and_output_back() -> None:
    state = counted(50)
    base = fragments(state, (0, 1), content(10, [batch(0), batch(2)]))
    state.current = 7
    state.value("count").clear()
    state.current = "new"
    state.value("count").set("fresh")
    delta = fragments(state, (0, 2), content(20, [batch(4)], base=2), previous=(0, 1))
    pull = pulling([base, delta])
    for made in (*base[1:], *delta[:2]):
        send(pull, made)
        while pull.work():
            pass
    assert not pull.is_ready  # index 0 of the base was chosen, being raw, and is still missing
    send(pull, base[0])
    while pull.work():
        pass
    assert pull.is_ready
    assert dict(pull.loader.state.items("count")) == dict(state.items("count"))
    loaded = pull.loader.content()
    assert loaded["position"] == 20
    assert [(part[0], part[1]) for part in loaded["outs"][0][3]] == [(2, 2), (4, 2)]


def test_writes_while_a_snapshot_is_packed_are_not_in_it() -> None:
    state = counted(40)
    before = dict(state.items("count"))

    def write() -> None:
        for state.current in range(0, 40, 3):
            state.value("count").set("late")

    made = fragments(state, (0, 1), content(1, []), during=write)
    pull = pulling([made])
    for index in range(2):
        send(pull, made[index])
    while pull.work():
        pass
    assert dict(pull.loader.state.items("count")) == before


def test_a_damaged_fragment_is_replaced_by_another() -> None:
    state = counted(30)
    made = fragments(state, (0, 1), content(1, []))
    pull = pulling([made])
    spoiled = [bytes(len(made[0].pieces[0])), *made[0].pieces[1:]]
    send(pull, made[1])
    send(pull, made[0], spoiled)
    while pull.work():
        pass
    assert not pull.is_ready
    assert [wanted.fragment for wanted in pull.wanted("w2")] == [2]
    send(pull, made[2])
    while pull.work():
        pass
    assert dict(pull.loader.state.items("count")) == dict(state.items("count"))


def test_too_few_good_fragments_say_what_is_lost() -> None:
    made = fragments(counted(30), (0, 1), content(1, []))
    pull = pulling([made])
    send(pull, made[0], [b"bad"] * len(made[0].pieces))
    with pytest.raises(StateLost, match=r"count#0, snapshot \(0, 1\): 1 good fragments are left, 2 are needed"):
        send(pull, made[2], [b"bad"] * len(made[2].pieces))
