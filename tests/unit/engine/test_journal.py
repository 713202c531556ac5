"""The coordinator's journal in a folder: names come back as they were, and a write is there whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow import fs

from rstream.errors import ConfigError
from rstream.runtime.journal import FolderStore, open_store

NAMES = [
    "topology/plain",
    "topology/with spaces",
    "topology/straße",
    "topology/100%",
    "topology/a%2Fb",
    "topology/x.new",
]


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    opened = open_store(f"file://{tmp_path}/journal")
    assert isinstance(opened, FolderStore)
    return opened


def test_what_is_put_is_found_again_by_another_process_of_the_same_folder(store: FolderStore, tmp_path: Path) -> None:
    for number, name in enumerate(NAMES):
        store.put(name, b"first")
        store.put(name, b"%d" % number)
    store.put("code/abc", b"archive")
    again = open_store(f"file://{tmp_path}/journal")
    assert again.names("topology/") == sorted(NAMES)
    assert again.names("") == sorted([*NAMES, "code/abc"])
    assert [again.get(name) for name in NAMES] == [b"%d" % number for number in range(len(NAMES))]


def test_what_is_deleted_is_gone_and_may_be_deleted_twice(store: FolderStore) -> None:
    store.put("topology/one", b"x")
    for _ in range(2):
        store.delete("topology/one")
        assert store.get("topology/one") is None
    assert store.names("topology/") == []


def test_a_write_that_was_cut_short_changes_nothing(store: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("topology/one", b"whole")
    with monkeypatch.context() as broken:

        class Crashing:
            """A file system whose process ends between writing and moving."""

            def __getattr__(self, name: str) -> object:
                if name == "move":
                    raise KeyboardInterrupt
                return getattr(real, name)

        real: fs.FileSystem = store._fs
        broken.setattr(store, "_fs", Crashing())
        for name in ("topology/one", "topology/two"):
            with pytest.raises(KeyboardInterrupt):
                store.put(name, b"half")
    assert store.get("topology/one") == b"whole"
    assert store.get("topology/two") is None
    assert store.names("topology/") == ["topology/one"]
    store.put("topology/two", b"whole too")
    assert store.names("topology/") == ["topology/one", "topology/two"]


def test_a_place_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for uri in ("nonsense://x", f"file://{tmp_path}/file/journal"):
        with pytest.raises(ConfigError, match=r"coordinator\.store: cannot use"):
            open_store(uri)
