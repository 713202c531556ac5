"""Any r good fragments of an epoch give the bytes back; anything less says so."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from random import Random

import pytest

from rstream.errors import ConfigError, StateLost
from rstream.state import erasure
from rstream.state.erasure import (
    CODES,
    Fragment,
    FragmentWriter,
    Label,
    choose_good,
    decode,
    decode_stripes,
    encode,
    encode_stripes,
)

LABEL = Label("count/0", (1, 7), previous=(1, 6), base=(1, 4))
DATA = Random(1).randbytes(1_003)


@pytest.mark.parametrize("code", CODES)
def test_every_loss_pattern_up_to_ten_holders_is_survived(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setattr(erasure, "available_code", lambda: code)
    patterns = 0
    for r, c in ((r, u - r) for u in range(1, 11) for r in range(1, u + 1)):
        fragments = encode(DATA, r, c, LABEL)
        assert r == 1 or c == 0 or fragments[0].code == code
        for kept in combinations(fragments, r):
            assert decode(kept) == DATA, f"({r}, {c}), kept {[each.index for each in kept]}"
            patterns += 1
    assert patterns == 2_036


@pytest.mark.parametrize(("r", "c"), [(1, 0), (1, 2), (3, 0), (5, 3), (8, 8)])
@pytest.mark.parametrize("length", [0, 1, 99, 100, 101, 1_000])
def test_any_length_comes_back_through_stripes(r: int, c: int, length: int) -> None:
    data = DATA[:length]
    fragments = encode(data, r, c, LABEL, stripe_bytes=100)
    assert len(fragments[0].pieces) == max(1, -(-length // 100))
    assert decode(fragments[c:]) == data
    assert [len(stripe) for stripe in decode_stripes(fragments)][:-1] == [100] * (len(fragments[0].pieces) - 1)


def test_one_fragment_too_few_is_refused_with_the_numbers() -> None:
    fragments = encode(DATA, 5, 3, LABEL)
    with pytest.raises(StateLost, match=r"count/0, epoch \(1, 7\): 4 good fragments of 8 are left, 5 are needed"):
        decode(fragments[:4])
    with pytest.raises(StateLost, match="no good fragment among the 0"):
        decode([])


def test_a_fragment_with_one_flipped_bit_counts_as_lost() -> None:
    fragments = encode(DATA, 3, 1, LABEL)
    flipped = bytearray(fragments[1].pieces[0])
    flipped[len(flipped) // 2] ^= 1
    bad = replace(fragments[1], pieces=(bytes(flipped),))
    assert not bad.is_good()
    assert decode([fragments[0], bad, *fragments[2:]]) == DATA
    with pytest.raises(StateLost, match="2 good fragments of 4"):
        decode([fragments[0], bad, fragments[2]])


@pytest.mark.parametrize(
    "lie",
    [
        {"index": 2}, {"r": 2}, {"c": 2}, {"length": 5}, {"code": "copy"}, {"pieces": ()},
        {"label": replace(LABEL, epoch=(1, 8))}, {"label": replace(LABEL, task="count/1")},
        {"label": replace(LABEL, previous=None)}, {"label": replace(LABEL, base=(1, 5))},
    ],
)  # fmt: skip
def test_a_fragment_that_lies_about_what_it_is_counts_as_lost(lie: dict[str, object]) -> None:
    fragment = encode(DATA, 3, 1, LABEL)[1]
    assert fragment.is_good()
    assert not replace(fragment, **lie).is_good()  # type: ignore[arg-type]


def test_epochs_are_never_mixed() -> None:
    older, newer = encode(DATA, 3, 2, LABEL), encode(DATA, 3, 2, replace(LABEL, epoch=(1, 8)))
    with pytest.raises(StateLost, match=r"mixed: epochs \[\(1, 7\), \(1, 8\)\]"):
        decode([*older[:2], *newer[2:3]])
    with pytest.raises(StateLost, match="mixed"):
        decode([*older, *newer])


def test_a_writer_fed_bit_by_bit_makes_the_same_fragments() -> None:
    whole = encode(DATA, 4, 2, LABEL, stripe_bytes=100)
    writer = FragmentWriter(LABEL, 4, 2, stripe_bytes=100)
    for start in range(0, len(DATA), 37):
        writer.write(DATA[start : start + 37])
        assert not writer.pump()
    assert writer.finish() == whole
    steps = list(encode_stripes(DATA, 4, 2, LABEL, stripe_bytes=100))
    assert steps == [None] * 10 + [whole]


def test_raw_fragments_are_chosen_first_because_they_need_no_arithmetic() -> None:
    fragments = encode(DATA, 3, 2, LABEL)
    assert [each.index for each in choose_good(reversed(fragments))] == [0, 1, 2]
    assert [each.index for each in choose_good(fragments[1:])] == [1, 2, 3]


def test_one_raw_fragment_is_a_plain_copy() -> None:
    assert [each.pieces for each in encode(DATA, 1, 2, LABEL)] == [(DATA,)] * 3


def test_a_fragment_survives_the_way_through_plain_values() -> None:
    for fragment in encode(DATA, 2, 1, LABEL) + encode(b"", 1, 0, Label("a/0", (1, 1))):
        again = Fragment.from_plain(fragment.to_plain())
        assert again == fragment
        assert again.is_good()


def test_the_second_code_is_used_where_the_first_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasure, "CODES", ("libphazr", "liberasurecode_rs_vand"))
    monkeypatch.setattr(erasure, "available_code", erasure.available_code.__wrapped__)
    assert encode(DATA, 2, 1, LABEL)[0].code == "liberasurecode_rs_vand"
    monkeypatch.setattr(erasure, "CODES", ("libphazr",))
    with pytest.raises(ConfigError, match="has none of libphazr"):
        encode(DATA, 2, 1, LABEL)


@pytest.mark.parametrize(("r", "c"), [(0, 1), (1, -1)])
def test_impossible_numbers_are_refused(r: int, c: int) -> None:
    with pytest.raises(ConfigError, match=f"got r={r}, c={c}"):
        encode(DATA, r, c, LABEL)
