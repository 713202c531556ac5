"""Publishing a table, on a disk that can exchange two folders and on storage that can only rename: whole or not at all.

A run is ended at every single moment of it; what the next run finds and makes of that is looked at. No Spark.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rstream.errors import DataError
from rstream.spark.location import Location
from rstream.spark.storage import FileInfo
from rstream.spark.target import MANIFEST, Target

KILLED = 9


class Disk:
    """What `Target` needs of a `Storage`, on this disk; `far:` URIs are those of a storage without an exchange."""

    def __init__(self, location: Location, before_each: Callable[[], None] = lambda: None) -> None:
        self.location, self._before_each = location, before_each

    def _path(self, uri: str) -> Path:
        self._before_each()
        return Path(uri.partition(":")[2])

    def exists(self, uri: str) -> bool:
        return self._path(uri).exists()

    def is_directory(self, uri: str) -> bool:
        return self._path(uri).is_dir()

    def children(self, uri: str) -> list[str]:
        return os.listdir(self._path(uri))

    def make_directory(self, uri: str) -> None:
        self._path(uri).mkdir(parents=True)

    def rename(self, source: str, target: str) -> None:
        assert not self._path(target).exists(), "Hadoop would move it into the other one"
        self._path(source).rename(self._path(target))

    def delete(self, uri: str) -> None:
        shutil.rmtree(self._path(uri), ignore_errors=True)

    def read_text(self, uri: str) -> str:
        return self._path(uri).read_text()

    def write_text(self, uri: str, text: str) -> None:
        self._path(uri).write_text(text)

    def walk(self, uri: str, root: str) -> list[FileInfo]:
        raise AssertionError("publishing looks at no single files")


def target(folder: Path, scheme: str, before_each: Callable[[], None] = lambda: None) -> Target:
    path = folder / "table"
    at = Location.parse(str(path)) if scheme == "file" else Location(f"far:{path}", f"far:{path}", None)
    storage: Any = Disk(at, before_each)
    return Target(storage, "ingest", "text")


def publish(place: Target, version: str) -> None:
    with place.staged() as staging:
        Path(staging.partition(":")[2], "data").write_text(version)
        place.publish({"kind": "ingest", "dataset": "text", "version": version})


def published(folder: Path) -> str:
    """The version that stands there, which all parts of it agree on."""
    version = json.loads((folder / "table" / MANIFEST).read_text())["version"]
    assert (folder / "table" / "data").read_text() == version
    return str(version)


def killed_at(moment: int, folder: Path, scheme: str) -> bool:
    """Publish in another process that ends, as by SIGKILL, when it touches the storage for the n-th time."""
    pid = os.fork()
    if pid == 0:
        left = iter(range(moment))
        try:
            publish(target(folder, scheme, lambda: None if next(left, None) is not None else os._exit(KILLED)), "new")
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == KILLED


@pytest.mark.parametrize("scheme", ["file", "far"])
def test_whenever_a_run_is_killed_the_next_one_finds_the_old_data_or_the_new(scheme: str, tmp_path: Path) -> None:
    found = []
    for moment in range(100):
        folder = tmp_path / str(moment)
        publish(target(folder, scheme), "old")
        was_killed = killed_at(moment, folder, scheme)
        if scheme == "file":
            assert published(folder) in ("old", "new"), "readers see the one or the other at every moment"
        with target(folder, scheme).staged():
            found.append(published(folder))
        assert os.listdir(folder) == ["table"], "what the killed run left is gone"
        publish(target(folder, scheme), "newest")
        assert published(folder) == "newest"
        if not was_killed:
            break
    assert found == sorted(found, reverse=True), "old up to some moment, and new from then on"
    assert found[-1] == "new"
    assert found.count("old") > 5


def test_between_the_two_renames_the_old_data_is_put_back_and_not_lost(tmp_path: Path) -> None:
    """Only there is nothing in the target's place."""
    absent = 0
    for moment in range(100):
        folder = tmp_path / str(moment)
        publish(target(folder, "far"), "old")
        if not killed_at(moment, folder, "far"):
            break
        if not (folder / "table").exists():
            absent += 1
            with target(folder, "far").staged():
                assert published(folder) == "old"
    assert absent


def test_a_target_that_another_process_is_writing_is_left_alone(tmp_path: Path) -> None:
    place = target(tmp_path, "far")
    publish(place, "old")
    left = Path(place.staging.partition(":")[2])
    of_another = left.with_name(left.name.replace(str(os.getpid()), str(os.getppid())))
    of_another.mkdir()
    with pytest.raises(DataError, match=f"process {os.getppid()} is writing there now; wait for it or end it"):
        publish(target(tmp_path, "far"), "new")
    assert of_another.is_dir()
    assert published(tmp_path) == "old"
