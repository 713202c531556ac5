"""Checkpoints in a folder: there as a whole or not at all, checked when read, and removed when nobody needs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rstream.core.channel import TaskId
from rstream.core.worker_checkpoints import Saving
from rstream.errors import ConfigError, StateLost
from rstream.runtime.checkpoint_store import CheckpointStore
from rstream.state.erasure import Label, encode

TASK = TaskId("count/words", 3)


def saving(number: int, content: bytes = b"state" * 1000) -> Saving:
    [whole] = encode(content, 1, 0, Label(str(TASK), (1, number)), stripe_bytes=512)
    return Saving(number, TASK, whole)


def test_what_was_written_is_read_back_in_pieces(tmp_path: Path) -> None:
    store = CheckpointStore(f"file://{tmp_path}", "words/run")
    store.write(saving(7))
    pieces = list(store.read(7, TASK))
    assert len(pieces) > 1
    assert b"".join(pieces) == b"state" * 1000
    assert not list(tmp_path.rglob("*.new"))


def test_a_damaged_or_cut_off_checkpoint_is_refused(tmp_path: Path) -> None:
    store = CheckpointStore(f"file://{tmp_path}", "words/run")
    store.write(saving(1))
    [file] = [path for path in tmp_path.rglob("*") if path.is_file()]
    content = file.read_bytes()
    file.write_bytes(content[:-1] + b"!")
    with pytest.raises(StateLost, match=r"checkpoint 1 of count/words#3 is damaged"):
        list(store.read(1, TASK))
    file.write_bytes(content[:3])
    with pytest.raises(StateLost, match=r"checkpoint 1 of count/words#3 cannot be read"):
        list(store.read(1, TASK))
    with pytest.raises(StateLost, match=r"checkpoint 2 of count/words#3 cannot be read"):
        list(store.read(2, TASK))


def test_older_checkpoints_go_and_the_named_one_stays(tmp_path: Path) -> None:
    store = CheckpointStore(f"file://{tmp_path}", "words/run")
    for number in (1, 2, 10):
        store.write(saving(number))
    store.drop_before(10)
    assert list(store.read(10, TASK))
    with pytest.raises(StateLost):
        list(store.read(2, TASK))


def test_a_place_that_cannot_be_used_is_refused_in_one_line() -> None:
    with pytest.raises(ConfigError, match=r"state.store: cannot use 'nowhere://x'"):
        CheckpointStore("nowhere://x")
