"""The cache of user code on a node: what is used stays, what nobody uses goes."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from rstream.clock import SystemClock
from rstream.runtime.code import UNUSED_S, pack_folder, trim, unpack


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"rstream-{os.getuid()}" / "code"


def archive_of(folder: Path, text: str) -> tuple[str, bytes]:
    folder.mkdir()
    (folder / "helpers.py").write_text(text)
    return pack_folder(str(folder))


def grown_old(folder: Path) -> None:
    long_ago_s = SystemClock.now() - UNUSED_S - 60
    os.utime(folder, (long_ago_s, long_ago_s))


def test_the_same_files_are_unpacked_once(cache: Path, tmp_path: Path) -> None:
    code, archive = archive_of(tmp_path / "job", "WORD = 'here'")
    first = Path(unpack(code, archive))
    (first / "mark").touch()
    assert Path(unpack(code, archive)) == first
    assert {path.name for path in first.iterdir()} == {"helpers.py", "mark"}
    assert [path.name for path in cache.iterdir()] == [code]


def test_a_folder_that_nobody_has_used_for_a_day_goes(cache: Path, tmp_path: Path) -> None:
    used = Path(unpack(*archive_of(tmp_path / "used", "a = 1")))
    (cache / "fresh").mkdir()
    (cache / "old").mkdir()
    (cache / "old" / "helpers.py").touch()
    for folder in (used, cache / "old"):
        grown_old(folder)
    trim(str(cache))
    assert {path.name for path in cache.iterdir()} == {used.name, "fresh"}, "a folder in use stays, however old"
    assert (used / "helpers.py").exists()


def test_a_folder_that_was_trimmed_is_unpacked_again(cache: Path, tmp_path: Path) -> None:
    code, archive = archive_of(tmp_path / "job", "a = 2")
    (cache / code).mkdir(parents=True)
    grown_old(cache / code)
    trim(str(cache))
    assert (Path(unpack(code, archive)) / "helpers.py").read_text() == "a = 2"
